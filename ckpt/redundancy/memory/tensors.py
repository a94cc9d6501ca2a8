"""Tensors of torch in the memory of a program, for the search (search.py). (driver)

A tensor on the CPU is the memory of its storage, which others may share. Modules, optimizers and schedulers are looked
through. Left out: tensors on GPUs, without strided memory and quantized ones; classes of the program that are tensors, since
they may answer in their own ways.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

__all__ = ["Tensors"]

_PARTS = ("Tensor", "nn.Module", "optim.Optimizer", "optim.lr_scheduler.LRScheduler")


class _Memory(NamedTuple):
    """`storage`: keeps the memory alive; `gradient`: None, there is none."""

    form: str
    view: memoryview
    row_bytes: int
    storage: Any
    gradient: Any


class Tensors:
    """The tensors of a process that has loaded torch."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        parts = (_attribute(torch, path) for path in _PARTS)
        self._kinds = tuple(part for part in parts if isinstance(part, type))

    @classmethod
    def of_process(cls) -> Tensors | None:
        """None: torch is not loaded, or not yet."""
        torch: Any = sys.modules.get("torch")
        return None if getattr(torch, "Tensor", None) is None else cls(torch)

    def has(self, kind: type) -> bool:
        """Is this a type of tensors, or of objects that hold some?"""
        return issubclass(kind, self._kinds)

    def is_tensor(self, value: Any) -> bool:
        return issubclass(type(value), self._torch.Tensor)

    def memory(self, value: Any) -> _Memory | None:
        """The memory of a tensor; None: it is left out."""
        kind, torch = type(value), self._torch
        if kind is not torch.Tensor and kind.__module__.partition(".")[0] != "torch":
            return None
        held = value.detach()
        if held.device.type != "cpu" or held.layout is not torch.strided or held.is_quantized:
            return None
        storage = held.untyped_storage()
        nbytes, address = storage.nbytes(), storage.data_ptr()
        if not nbytes or not address:
            return None
        view = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
        row_bytes = held.element_size() * held.stride(0) if held.dim() and held.is_contiguous() else nbytes
        gradient = value.grad if value.is_leaf else None
        return _Memory(f"{held.dtype} {tuple(held.shape)}", view, row_bytes, storage, gradient)


def _attribute(obj: Any, path: str) -> Any:
    for name in path.split("."):
        obj = getattr(obj, name, None)
    return obj
