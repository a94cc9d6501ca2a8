"""The host's memory for copies of what GPUs hold: shared between the program and the child that writes the image.

Shared, so that neither copies it when the other writes; registered with CUDA where that is possible, so that GPUs write to
it directly (50 GB/s instead of 10 on an H100). It is kept from image to image: making it takes as long as forty copies.
While a child still writes the last image out of it, the next one gets new memory.

States: none → kept (of so many bytes) → kept, larger, when more is needed → none, when nothing is to be copied.

Not here: what is copied.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from typing import Any

from ckpt.image.errors import Unpicklable

__all__ = ["HostMemory"]

_UNIT_BYTES = 2 << 20
_SPARE = 8
"""New memory is larger than what is needed by one part in so many: tensors come and go."""


class HostMemory:
    """``content``: all of it as a tensor of bytes, or None."""

    def __init__(self) -> None:
        self.content: Any = None
        self._is_registered = False

    @property
    def nbytes(self) -> int:
        return 0 if self.content is None else int(self.content.numel())

    @property
    def address(self) -> int:
        return 0 if self.content is None else int(self.content.data_ptr())

    def reserve(self, nbytes: int, *, is_in_use: bool, available: Callable[[], int | None]) -> None:
        """Have memory of so many bytes or more. ``is_in_use``: a child may still read what is here. ``available()``: bytes
        of the host's memory that this process can still get; None: nobody knows. Raises Unpicklable: too few."""
        if nbytes <= self.nbytes and not is_in_use:
            return
        self.release()
        left = available()
        if left is not None and nbytes > left:
            raise Unpicklable(
                "the memory of GPUs",
                f"an image needs {_gb(nbytes)} of the host's memory for a copy of what tensors have on GPUs (and of pinned "
                f"memory), and {_gb(left)} are left for this rank; free tensors, or give the host more memory",
            )
        wished = nbytes + nbytes // _SPARE
        whole = wished if left is None or wished <= left // 2 else nbytes
        self._map(-(-whole // _UNIT_BYTES) * _UNIT_BYTES)

    def _map(self, nbytes: int) -> None:
        torch: Any = sys.modules["torch"]
        try:
            mapped = mmap.mmap(-1, nbytes)
        except (OSError, ValueError) as failure:
            raise Unpicklable(
                "the memory of GPUs", f"the host has no {_gb(nbytes)} for a copy of it: {failure}"
            ) from None
        self.content = torch.frombuffer(mapped, dtype=torch.uint8)
        done = torch.cuda.cudart().cudaHostRegister(self.address, nbytes, 0)
        self._is_registered = int(done) == 0

    def release(self) -> None:
        """Give the memory back; a child that uses it keeps it until it ends."""
        if self._is_registered:
            torch: Any = sys.modules["torch"]
            torch.cuda.cudart().cudaHostUnregister(self.address)
        self.content, self._is_registered = None, False


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB"
