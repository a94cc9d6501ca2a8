"""Where the reducers of tensors find the memory of a GPU: in copies in the host's memory, made just before the fork.

A forked child cannot use CUDA. So :mod:`ckpt.image.pytorch.cuda` copies, while the program stands still, all memory of GPUs
that tensors may use, and says here which addresses have been copied to where.

In the new process, a tensor goes to the GPU of the number that it was on. Which GPU has which number is CUDA's choice, and
that of ``CUDA_VISIBLE_DEVICES`` of the host where the program goes on.

Not here: the copying. Nothing here calls CUDA before an image has been loaded.
"""

from __future__ import annotations

import importlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.transport.records import NamedTuple

__all__ = ["Copied", "copied_at", "gpu_of", "put_copies"]


class Copied(NamedTuple):
    """``nbytes`` of a GPU's memory from ``address`` on are in the host's memory from ``offset`` of the copies on."""

    address: int
    nbytes: int
    offset: int


class _Copies:
    def __init__(self) -> None:
        self.content: Any = None
        self.ranges: list[Copied] = []
        self.addresses: list[int] = []


_copies = _Copies()


def put_copies(content: Any, ranges: Iterable[Copied]) -> None:
    """From now on these are the copies. ``content``: an array of bytes; None: there are none."""
    _copies.content = content
    _copies.ranges = sorted(ranges)
    _copies.addresses = [each.address for each in _copies.ranges]


def copied_at(address: int, nbytes: int) -> Any:
    """The copy of these bytes, as a part of the array of all copies; ``None``: they have not been copied."""
    number = bisect_right(_copies.addresses, address) - 1
    if number < 0:
        return None
    found = _copies.ranges[number]
    if address + nbytes > found.address + found.nbytes:
        return None
    begin = found.offset + address - found.address
    return _copies.content[begin : begin + nbytes]


# ---------------------------------------------------------------------- called while loading


def gpu_of(index: int) -> Any:
    """The GPU of that number, ready for use. Raises RestoreError: there is none here."""
    torch: Any = importlib.import_module("torch")
    count = torch.cuda.device_count() if torch.backends.cuda.is_built() else 0
    if index >= count:
        have = f"this host has {count} for the program, numbered from 0" if count else _none_here(torch)
        raise RestoreError(
            f"the image has memory of the GPU cuda:{index}; {have}. Restart the job where there is one of that number "
            "(CUDA_VISIBLE_DEVICES says which GPUs a program sees)"
        )
    return torch.device("cuda", index)


def _none_here(torch: Any) -> str:
    if not torch.backends.cuda.is_built():
        return f"torch {torch.__version__} here is built without CUDA"
    return "there is no GPU here that CUDA can use"
