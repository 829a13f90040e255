"""Building networks from descriptions that nobody has checked: what is too large is noticed while it is built."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode


class TooLargeError(Exception):
    """A network that is being built has more parts, or takes more memory, than it may."""


@contextmanager
def bounded_build(most_parts: int, most_bytes: int) -> Iterator[None]:
    """Context in which this thread builds networks of bounded size.

    Parameters, buffers and modules are counted as modules take them, which is before most of them get their first
    values: memory that was not written to does not count for the operating system. Tensors on the device ``meta`` take
    no memory.

    Args:
        most_parts: most parameters, buffers and modules together.
        most_bytes: most bytes of parameters and buffers together.

    Raises:
        TooLargeError: as soon as a bound is passed.
    """
    thread, parts, size = threading.get_ident(), 0, 0

    def count(module: Any, name: str, part: Any) -> None:
        nonlocal parts, size
        if threading.get_ident() != thread:
            return
        parts += 1
        if isinstance(part, Tensor) and not part.is_meta:
            size += part.numel() * part.element_size()
        if parts > most_parts:
            raise TooLargeError(f"more than {most_parts:,} layers and tensors")
        if size > most_bytes:
            raise TooLargeError(f"more than {most_bytes:,} bytes of tensors")

    with ExitStack() as stack:
        stack.enter_context(hooks.register_module_module_registration_hook(count))
        stack.enter_context(hooks.register_module_parameter_registration_hook(count))
        stack.enter_context(hooks.register_module_buffer_registration_hook(count))
        yield


class _WithoutValues(TorchFunctionMode):
    """Mode in which tensors on the device ``meta`` are not given their first, random values.

    Nothing would come of it, and PyTorch computes the shapes of random tensors in Python: that takes a millisecond for
    each, and half a second for the imports of the first one.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.randn, torch.rand) and kwargs.get("device") is None:
            return torch.empty(*args, **{name: value for name, value in kwargs.items() if name != "generator"})
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            tensor = args[0] if args else kwargs.get("tensor")
            if isinstance(tensor, Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Context in which networks are built on the device ``meta``: shapes without memory, no random number drawn."""
    with torch.device("meta"), _WithoutValues():
        yield
