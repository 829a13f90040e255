"""A network as a function of plain tensors, which every exported file holds: images to answers, poses to pictures."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from paircaps.errors import PaircapsError
from paircaps.models.decoder import Decoder
from paircaps.network import Network

OUTPUTS = ("activation", "probability", "pose")
"""Names of the outputs of a network's graph; a segmentation network has ``MASK`` after them."""

MASK = "mask"
DECODER_OUTPUTS = ("image",)
BATCH = "batch"
"""Name of the one axis that is not fixed in a graph."""

_EXAMPLES = 2
"""Images that a graph is traced with; one would be taken for a constant."""


class Answers(nn.Module):
    """A network whose output is a tuple of tensors: images as they come to activation, probability, pose and mask.

    Args:
        network: the network.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = copy.copy(network)
        self.network._modules = {**network._modules, "decoder": None}  # its weights are not those of the answers

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Answers of the network.

        Args:
            images: (B, C, H, W) in 0..1, of the size before the centre crop.

        Returns:
            Activations (B, J), probabilities (B, J) and poses (B, J, K) of the classes; of a segmentation network also
            the logits of its masks, (B, J, h, w).
        """
        capsules, masks = self.network.capsules_and_masks(images)
        answers = (capsules.activation, self.network.certainty(capsules.activation), capsules.pose)
        return answers if masks is None else (*answers, masks)


class Drawings(nn.Module):
    """A decoder as a function of plain tensors: poses and a class to an image.

    Args:
        decoder: the decoder.
    """

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, pose: Tensor, label: Tensor) -> tuple[Tensor]:
        """Draw images.

        Args:
            pose: poses of all classes, (B, J, K).
            label: index of the class whose pose is drawn, (B,) in int64.

        Returns:
            the images, (B, C, h, w) in 0..1, alone in a tuple.
        """
        return (self.decoder.draw(pose, label),)


def output_names(network: Network) -> tuple[str, ...]:
    """Names of the outputs of a network's graph, in their order."""
    return (*OUTPUTS, MASK) if network.has_masks else OUTPUTS


def network_program(
    network: Network, wrap: Callable[[nn.Module], nn.Module] = lambda module: module
) -> ExportedProgram:
    """The graph of a network, for any number of images.

    Args:
        network: the network, which is traced as it predicts, in eval mode, and left as it was.
        wrap: what else is done to the module that is traced.
    """
    wanted = network.spec.preparation
    images = torch.rand(_EXAMPLES, wanted.channels, *wanted.size, device=_device(network))
    with network.evaluating():
        return traced(wrap(Answers(network)), {"images": images})


def decoder_program(network: Network) -> ExportedProgram:
    """The graph of a network's decoder, for any number of poses.

    Args:
        network: a network with a decoder, which is left as it was.

    Raises:
        PaircapsError: if the network has no decoder.
    """
    decoder, device = require_decoder(network), _device(network)
    pose = torch.rand(_EXAMPLES, network.model.num_classes, network.model.pose_dim, device=device)
    label = torch.zeros(_EXAMPLES, dtype=torch.long, device=device)
    with network.evaluating():
        return traced(Drawings(decoder), {"pose": pose, "label": label})


def require_decoder(network: Network) -> Decoder:
    """The decoder of a network; a PaircapsError if it has none."""
    if network.decoder is None:
        raise PaircapsError(
            "this network was trained without a decoder, so none can be exported; recipes with loss.decoder have one"
        )
    return network.decoder


def _device(network: Network) -> torch.device:
    """Device of a network; a ValueError if it is not in float32, as the inputs of a graph are."""
    for name, parameter in network.named_parameters():
        if parameter.dtype != torch.float32:
            raise ValueError(f"only networks in float32 are exported, got {name} in {parameter.dtype}: network.float()")
    return next(network.parameters()).device


def traced(module: nn.Module, inputs: dict[str, Tensor]) -> ExportedProgram:
    """Trace a module whose inputs all have the batch as their first axis."""
    batch = Dim(BATCH, min=1)
    shapes = {name: {0: batch} for name in inputs}
    with quiet_exporter(), torch.no_grad(), refused("torch.export cannot translate this network"):
        return torch.export.export(module.eval(), tuple(inputs.values()), dynamic_shapes=shapes)


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Context without deprecation warnings of PyTorch, which its exporters cause and a user cannot help."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Turn any failure of PyTorch or ONNX Runtime into a sentence: a plug-in may do what cannot be translated.

    Args:
        what: beginning of the sentence, to which the reason is added.
    """
    try:
        yield
    except PaircapsError:
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # the outer ones say where PyTorch takes reports
            cause = cause.__cause__
        lines = str(cause).strip().splitlines()
        reason = f"{type(cause).__name__}: {lines[0]}" if lines else type(cause).__name__
        raise PaircapsError(f"{what}: {reason}") from error
