"""Maps page-aligned memory for large blocks, on huge pages where the system has them.

Three reasons, each measured as worth the effort:

- O_DIRECT requires page-aligned memory. For huge pages the device transfers a block with one or two DMA descriptors, at
  its full speed and with almost no work of the processor; for small pages the same request has a thousand
  pieces and takes three times as long.
- New memory costs one page fault per page. A huge page is one fault instead of 512.
- A fork copies page tables. Those of huge pages are 512 times shorter, so the pause of a *restored* program for its next
  image is as short as that of a program that allocated its arrays itself (numpy advises huge pages for arrays of 4 MiB and
  more).

The mapping is private, not shared (shared is the default of Python's mmap): the program will be forked for its next image,
and the child must not see what the program writes after the fork.
"""

from __future__ import annotations

import mmap
from typing import Final

from ckpt.store.disk.fsio import Buffer

__all__ = ["ALIGN", "HUGE_PAGE", "Staging", "map_pages", "round_up"]

ALIGN: Final = 4096
"""Offsets, lengths and addresses for O_DIRECT are multiples of this, in bytes."""

HUGE_PAGE: Final = 2 << 20
"""The smallest huge page of x86-64 and (with pages of 4 KiB) of ARM. On other machines a wrong size costs speed only."""

HUGE_ADVICE: Final = mmap.MADV_HUGEPAGE


def round_up(length: int) -> int:
    """Return `length`, rounded up to a multiple of `ALIGN`."""
    return (length + ALIGN - 1) // ALIGN * ALIGN


def map_pages(length: int) -> memoryview:
    """Map `length` writable zero bytes on pages of their own; huge pages are advised for the full huge pages.

    The mapping itself is a multiple of a huge page, since recent kernels align such a mapping to a huge page. Mapped
    pages that are not touched cost nothing. Huge pages are not advised for the last, partial one, so it takes no more
    memory than its content. Raises OSError when the system refuses.
    """
    whole = length // HUGE_PAGE * HUGE_PAGE
    mapped = length if not whole else whole + HUGE_PAGE * (length > whole)
    memory = mmap.mmap(-1, max(mapped, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if whole:
        try:
            memory.madvise(HUGE_ADVICE, 0, whole)
        except OSError:
            pass  # a kernel without huge pages: only slower
    return memoryview(memory)[:length]


class Staging:
    """Page-aligned memory of one thread, used again for every block; it grows to the size of the largest block."""

    def __init__(self, capacity: int = 0) -> None:
        self._memory = map_pages(round_up(capacity)) if capacity else memoryview(b"")

    def take(self, length: int) -> memoryview:
        """Return `length` bytes of arbitrary content, valid until the next `take` or `fill`."""
        if length > len(self._memory):
            self._memory = map_pages(round_up(max(length, 2 * len(self._memory))))
        return self._memory[:length]

    def fill(self, data: Buffer) -> memoryview:
        """Copy `data` into the memory, pad it with zeros to a multiple of `ALIGN`, and return data and padding."""
        length = len(data)
        padded = self.take(round_up(length))
        padded[:length] = data
        padded[length:] = bytes(len(padded) - length)
        return padded
