"""Weights as 8-bit whole numbers, each slice of a tensor with a scale of its own: a quarter of the size."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

LEAST_VALUES = 1024
"""Values of a tensor from which on it is rounded; smaller ones, such as biases, stay as they are."""

LARGEST = 127
"""Rounded values lie in -127..127."""


class Rounded(NamedTuple):
    """A tensor in 8 bits.

    Args:
        values: whole numbers, in int8, of the shape of the tensor.
        scale: what they are multiplied by, one number for each index along the axis.
        axis: the axis.
    """

    values: Tensor
    scale: Tensor
    axis: int

    def restored(self) -> Tensor:
        """The tensor, but for rounding."""
        return self.values.float() * self.broadcast_scale

    @property
    def broadcast_scale(self) -> Tensor:
        """The scale with all axes of the tensor."""
        return self.scale.reshape([-1 if axis == self.axis else 1 for axis in range(self.values.dim())])


def is_rounded(weight: Tensor) -> bool:
    """Whether a tensor is one of those that are rounded: matrices and kernels, not biases and scales."""
    return weight.dtype == torch.float32 and weight.dim() >= 2 and weight.numel() >= LEAST_VALUES


def rounded(weight: Tensor) -> Rounded:
    """Round a tensor, by scales along the axis by which the squared error is least.

    Args:
        weight: float32, of two axes or more.
    """
    tries = [_rounded_along(weight, axis) for axis in range(weight.dim()) if weight.shape[axis] <= weight.numel() // 8]
    return min(
        tries or [_rounded_along(weight, 0)], key=lambda found: float((found.restored() - weight).square().sum())
    )


def _rounded_along(weight: Tensor, axis: int) -> Rounded:
    others = [other for other in range(weight.dim()) if other != axis]
    largest = weight.abs().amax(others)
    scale = torch.where(largest > 0, largest / LARGEST, 1.0)
    found = Rounded(torch.zeros_like(weight, dtype=torch.int8), scale, axis)
    return found._replace(values=(weight / found.broadcast_scale).round().to(torch.int8))


# --- ONNX ------------------------------------------------------------------------------------------------------------


def with_rounded_weights(content: bytes) -> bytes:
    """An ONNX file whose weights are 8-bit numbers, widened and scaled by two operators.

    ``DequantizeLinear`` would do as much in one, but ONNX Runtime leaves that for every run and then takes twice as
    long; a cast and a product of constants it computes once, when it loads the file.

    Args:
        content: content of an ``.onnx`` file.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load_from_string(content)
    graph = model.graph
    kept: list[Any] = []
    nodes: list[Any] = []
    for tensor in graph.initializer:
        weight = torch.from_numpy(numpy_helper.to_array(tensor).copy())
        if not is_rounded(weight):
            kept.append(tensor)
            continue
        found = rounded(weight)
        values, scale, widened = (f"{tensor.name}.{part}" for part in ("int8", "scale", "float"))
        kept.append(numpy_helper.from_array(found.values.numpy(), values))
        kept.append(numpy_helper.from_array(found.broadcast_scale.numpy(), scale))
        nodes.append(helper.make_node("Cast", [values], [widened], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [widened, scale], [tensor.name]))
    nodes += graph.node
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)
    return model.SerializeToString(deterministic=True)


# --- PyTorch ---------------------------------------------------------------------------------------------------------


class RoundedModule(nn.Module):
    """A module whose weights are stored in 8 bits, to be traced and run, not trained.

    Args:
        module: the module, which is left as it was.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = [module]  # in a list, so that its own tensors are none of this one's
        self._rounded: list[str] = []
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self._names = list(tensors)
        for number, (name, tensor) in enumerate(tensors.items()):
            if is_rounded(tensor):
                found = rounded(tensor.detach())
                self._rounded.append(name)
                self.register_buffer(f"values_{number}", found.values)
                self.register_buffer(f"scale_{number}", found.broadcast_scale)
            else:
                self.register_buffer(f"values_{number}", tensor.detach())

    def forward(self, images: Tensor) -> Any:
        """Output of the module for images."""
        return functional_call(self._module[0], {name: self._tensor(name) for name in self._names}, (images,))

    def _tensor(self, name: str) -> Tensor:
        number = self._names.index(name)
        values = getattr(self, f"values_{number}")
        return values.float() * getattr(self, f"scale_{number}") if name in self._rounded else values
