"""FastCapsules: capsules on the fast body, below a million parameters, for trainings of minutes on a CPU."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from paircaps._utils.checks import require_choice
from paircaps.layers.primary import PRIMARY_NORMS, PrimaryCapsules
from paircaps.models.capsule_model import CapsuleModel
from paircaps.models.fast import MINIMUM_SIZE, FastBackbone
from paircaps.models.registry import register_model
from paircaps.models.stack import capsule_stack
from paircaps.routing import RoutingFactory

VOTES = ("position", "shared")
"""Values of ``votes``: every primary capsule has vote matrices of its own, or those of all positions are the same."""


class FastCapsules(CapsuleModel):
    """A network for short trainings: whitening stem, wide convolutions, primary capsules, capsule layers.

    Args:
        num_classes: capsules of the last layer.
        in_channels: channels of an image.
        image_size: side of an image, or (height, width); at least 9.
        routing: a registered name, or a factory.
        widths: channels of the three groups of convolutions.
        hidden_capsules: sizes of capsule layers between the primary and the last one, such as (32, 16).
        kinds: kinds of primary capsules: so many lie at each position.
        pose_dim: K of every capsule.
        votes: ``"position"`` for vote matrices of every primary capsule's own, ``"shared"`` for the same ones at all
            positions.
        transform: ``"vector"``, K² weights for each pair of capsules, or ``"matrix"``, K weights.
        stem: ``"whitening"``, frozen and fitted to training images, or ``"conv"``, which is trained.
        vote_norm: ``"pose"``, ``"vote"`` or None.
        primary_norm: ``"pose"``, ``"channel"``, ``"capsule"`` or None.
        routing_options: options of every layer's routing.
        streaming: whether dense votes of the whole batch are avoided; see CapsuleLayer.
    """

    FIELD = FastBackbone.FIELD

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = 28,
        routing: str | RoutingFactory = "fm",
        *,
        widths: tuple[int, int, int] = (64, 128, 128),
        hidden_capsules: tuple[int, ...] = (),
        kinds: int = 8,
        pose_dim: int = 16,
        votes: str = "position",
        transform: str = "vector",
        stem: str = "whitening",
        vote_norm: str | None = "pose",
        primary_norm: str | None = "channel",
        routing_options: dict[str, object] | None = None,
        streaming: bool | str = "auto",
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, MINIMUM_SIZE)
        require_choice("votes", votes, VOTES)
        require_choice("primary_norm", primary_norm, PRIMARY_NORMS)
        self.pose_dim = pose_dim
        self._same_everywhere = votes == "shared" and primary_norm != "capsule"
        self.backbone = FastBackbone(in_channels, widths, stem)
        self.primary = PrimaryCapsules(
            self.backbone.out_channels,
            self.backbone.out_size(self.image_size),
            kinds,
            pose_dim,
            kernel_size=3,
            stride=1,
            padding=1,
            norm=primary_norm,
            any_size=self.takes_any_size,
        )
        self.layers = capsule_stack(
            self.primary,
            hidden_capsules,
            num_classes,
            pose_dim=pose_dim,
            transform=transform,
            routing=routing,
            routing_options=routing_options,
            vote_norm=vote_norm,
            streaming=streaming,
            share="position" if votes == "shared" else None,
        )

    @property
    def takes_any_size(self) -> bool:
        """True if votes are shared and no norm has statistics of single positions."""
        return self._same_everywhere

    def fit(self, images: Tensor) -> None:
        """Fit the whitening stem to training images (B, C, H, W)."""
        self.backbone.stem.fit(images)

    def features(self, images: Tensor) -> Tensor:
        """Feature maps of images: (B, C, H, W) to (B, widths[-1], ⌊(H − 1)/8⌋, ⌊(W − 1)/8⌋)."""
        return self.backbone(images)


SIZES: dict[str, dict[str, object]] = {
    "": {},  # the defaults
    "-tiny": {"widths": (32, 48, 64), "kinds": 4, "transform": "matrix"},
}
"""Sizes by the ending of the model's name: below 1,000,000 parameters, and below 150,000 for laptops and teaching."""

for _ending, _size in SIZES.items():
    _factory = partial(FastCapsules, **_size)  # pyright: ignore[reportArgumentType]
    register_model(f"fast-caps{_ending}", _factory, pooling_twin=f"fast-pool{_ending}")
