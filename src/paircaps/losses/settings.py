"""Settings of the training objective: section ``loss`` of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paircaps._utils.checks import require_choice, require_within
from paircaps._utils.registry import unknown_name
from paircaps.losses.base import ClassLoss
from paircaps.losses.registry import create_loss, is_loss, list_losses, loss_factory, takes_option
from paircaps.network import DECODERS

AUTO = "auto"
"""Name that stands for the loss which fits the network."""


@dataclass(frozen=True)
class Loss:
    """Settings of the training objective.

    Args:
        name: class loss, one of paircaps.losses.list_losses(), such as cross-entropy (E11, one label per image), margin
            (E10, any number of labels), spread, centripetal, nll or mask; or auto, which is mask for a segmentation
            network, else the one that the model asks for, else the one that its routing asks for, else margin for
            activations in 0..1 (dynamic, em) and for several labels, else cross-entropy (fm, pooling).
        label_smoothing: share of the cross entropy's target that is spread over all classes.
        over_classes: margin loss as a sum over classes (the paper's text) or their mean (its runs).
        decoder: decoder that reconstructs the image from the label's pose: none, deconv (the paper's), dense
            (CapsNet's, which sees whose pose it is) or deepcaps (DeepCaps', for all classes alike).
        decoder_weight: weight of the squared error of a reconstruction, summed over its pixels.
        options: options of the class loss, such as {"margin_start": 0.2} for spread.
    """

    name: str = AUTO
    label_smoothing: float = 0.0
    over_classes: Literal["sum", "mean"] = "sum"
    decoder: Literal["none", "deconv", "dense", "deepcaps"] = "none"
    decoder_weight: float = 0.0005
    options: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name != AUTO and not is_loss(self.name):
            raise unknown_name("name", self.name, [AUTO, *list_losses()])
        if not isinstance(self.options, Mapping):
            raise ValueError(f'options must be a table such as {{"margin_start": 0.2}}, got {self.options!r}')
        for name in ("label_smoothing", "over_classes"):
            if name in self.options:
                raise ValueError(f"options cannot hold {name!r}, which is loss.{name}")
        require_within("label_smoothing", self.label_smoothing, 0, 1)
        require_choice("over_classes", self.over_classes, ("sum", "mean"))
        require_choice("decoder", self.decoder, DECODERS)
        require_within("decoder_weight", self.decoder_weight, 0, 1e6)

    def resolve(self, bounded: bool, labels_per_image: int, has_masks: bool = False, wanted: str | None = None) -> str:
        """The class loss that ``name`` stands for, one of :func:`paircaps.losses.list_losses`.

        Args:
            bounded: whether the network's activations lie in 0..1.
            labels_per_image: number of labels of an image.
            has_masks: whether the network gives a mask for each class.
            wanted: the loss that the model or its routing asks for; ``auto`` takes it, unless it is for one label and
                the images have several.

        Raises:
            ValueError: if a segmentation network is given another loss than that of its masks, or the other way round.
        """
        needs_masks = self.name != AUTO and bool(getattr(loss_factory(self.name), "needs_masks", False))
        if has_masks and self.name != AUTO and not needs_masks:
            raise ValueError(f"name: {self.name} is for networks that classify; one that gives masks has auto or mask")
        if needs_masks and not has_masks:
            raise ValueError(f"name: {self.name} is for networks that give masks, such as caps-segment; use auto")
        if self.name != AUTO:
            return self.name
        if has_masks:
            return "mask"
        if wanted is not None and not (getattr(loss_factory(wanted), "one_label", False) and labels_per_image > 1):
            return wanted
        return "margin" if bounded or labels_per_image > 1 else "cross-entropy"

    def create(self, name: str) -> ClassLoss:
        """The class loss of a name, with the options of these settings.

        Args:
            name: name of the loss, as :meth:`resolve` gives it.

        Raises:
            ValueError: if an option has a value that is not allowed, or is another loss's.
            TypeError: if the loss has no such option.
        """
        options = dict(self.options)
        if takes_option(name, "over_classes"):
            options["over_classes"] = self.over_classes
        if takes_option(name, "label_smoothing"):
            options["label_smoothing"] = self.label_smoothing
        elif self.label_smoothing:
            raise ValueError(f"label_smoothing is cross-entropy's; {name} has none, got {self.label_smoothing}")
        return create_loss(name, options)
