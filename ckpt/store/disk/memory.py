"""Memory for large blocks (★ asks the system for it): whole pages, and huge ones where the system has them.

Three things need it, each measured to be worth several times its trouble:

- O_DIRECT wants page-aligned memory. Into huge pages the device moves a block with one or two descriptors, at
  its full speed and with next to no work of the processor; into small pages the same request has a thousand
  pieces and takes three times as long.
- New memory costs a fault a page. A huge page is one fault for 512.
- A fork copies page tables: those of huge pages are 512 times shorter, so a *restored* program stands still for
  its next image as shortly as one that allocated its arrays itself (numpy advises huge pages for arrays from
  4 MiB on by itself).

Private, not shared (which is mmap's default): the program will be forked for its next image, and what it writes
meanwhile must not show in the child.
"""

from __future__ import annotations

import mmap
from typing import Final

from ckpt.store.disk.fsio import Buffer

__all__ = ["ALIGN", "HUGE_PAGE", "Staging", "map_pages", "round_up"]

ALIGN: Final = 4096
"""What O_DIRECT wants offsets, lengths and addresses to be multiples of."""

HUGE_PAGE: Final = 2 << 20
"""The smallest huge page of x86-64 and (with pages of 4 KiB) of ARM. A wrong guess costs speed only."""

HUGE_ADVICE: Final = mmap.MADV_HUGEPAGE


def round_up(length: int) -> int:
    """The next multiple of `ALIGN`."""
    return (length + ALIGN - 1) // ALIGN * ALIGN


def map_pages(length: int) -> memoryview:
    """`length` writable zeros on pages of their own; huge pages as far as they are full.

    A mapping of whole huge pages is what recent kernels place on a huge page's boundary; what is mapped and not
    touched costs nothing, and the last, partial huge page is not advised, so it costs no more than it holds.
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
    """Page-aligned memory of one thread that every block uses again; grows with the largest."""

    def __init__(self, capacity: int = 0) -> None:
        self._memory = map_pages(round_up(capacity)) if capacity else memoryview(b"")

    def take(self, length: int) -> memoryview:
        """`length` bytes of any content, valid until the next `take` or `fill`."""
        if length > len(self._memory):
            self._memory = map_pages(round_up(max(length, 2 * len(self._memory))))
        return self._memory[:length]

    def fill(self, data: Buffer) -> memoryview:
        """Copy `data` in, padded with zeros to a multiple of `ALIGN`."""
        length = len(data)
        padded = self.take(round_up(length))
        padded[:length] = data
        padded[length:] = bytes(len(padded) - length)
        return padded
