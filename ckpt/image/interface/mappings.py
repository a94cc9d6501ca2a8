"""What is mapped into this process, read from ``/proc/self/maps``: there are no other means for what a library has mapped.

The interpreter's lock stays held, so that no other thread of the program maps anything meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from ckpt.image.frames import _frames
from ckpt.transport.records import NamedTuple

SHARED = b"rw-s"
"""The mode of what is mapped for shared writing."""


class Mapping(NamedTuple):
    """Addresses from ``start`` to ``end``. ``offset``: in the file. ``path``: or a name of the kernel's; or empty."""

    start: int
    end: int
    mode: bytes
    offset: int
    inode: int
    path: str


def mappings(mode: bytes = b"") -> Iterator[Mapping]:
    """All, or those of this mode. Raises OSError: there is no /proc."""
    wanted = b" %s " % mode if mode else b""
    for line in _frames.read_file("/proc/self/maps").splitlines():
        if wanted in line[:48]:  # an image asks each time: what is not wanted costs little
            bounds, found, offset, _, inode, *path = line.split(None, 5)
            start, _, end = bounds.partition(b"-")
            name = os.fsdecode(path[0].strip()) if path else ""
            yield Mapping(int(start, 16), int(end, 16), found, int(offset, 16), int(inode), name)


def segment_at(address: int, nbytes: int) -> Any | None:
    """See :func:`ckpt.shared_memory.segment.segment_at`; None also where no memory is shared between ranks."""
    module = sys.modules.get("ckpt.shared_memory.segment")
    return None if module is None else module.segment_at(address, nbytes)
