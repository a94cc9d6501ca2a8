"""A piece of memory that ranks share, in one of them: mapped, and as it is in this rank's image.

Arrays and views that the program makes refer to the segment, so an image finds it from each of them. The image has the
content of this rank's own part only; each other part is in the image of its rank. A restart maps the same bytes of the
host's memory (which is new and empty), and each rank fills in its own part.

Not here: when the content is copied (:mod:`ckpt.shared_memory.host`).
"""

from __future__ import annotations

import weakref
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from ckpt.compat.memory import address_of
from ckpt.shared_memory._mapping import Mapping

if TYPE_CHECKING:
    from ckpt.shared_memory.host import HostMemory

__all__ = ["Segment", "map_again", "segment_at"]

_segments: weakref.WeakSet[Segment] = weakref.WeakSet()


class Segment(Mapping):
    """``offset``: in the host's memory; ``part``: first byte and size of what belongs to this rank, in the segment;
    ``group``: the processes that have it."""

    host: HostMemory
    offset: int
    part: tuple[int, int]
    group: tuple[int, ...]
    is_open = False
    """This rank is a member: it may store to the memory, and so may others."""
    is_complete = False
    """All of the group are members: the window is made, and not freed."""

    def __init__(self, fd: int, offset: int, nbytes: int) -> None:
        """Raises OSError in ``__new__``: the memory cannot be mapped."""
        self.address = address_of(self)
        _segments.add(self)

    def own_part(self) -> memoryview:
        return self.view(*self.part)

    def view(self, start: int, nbytes: int) -> memoryview:
        return memoryview(self)[start : start + nbytes]

    def __reduce__(self) -> Any:
        content = PickleBuffer(self.host.content_of(self))
        state = (self.offset, self.nbytes, self.part, self.group, self.is_open, self.is_complete)
        return map_again, (self.host, *state, content, self.host.token)


def segment_at(address: int, nbytes: int) -> Segment | None:
    """The segment that has these bytes of the process's memory: a program may know them by their address only, as that of
    the whole of a window whose parts follow each other."""
    for segment in list(_segments):
        if segment.address <= address and address + nbytes <= segment.address + segment.nbytes:
            return segment
    return None


def map_again(
    host: HostMemory,
    offset: int,
    nbytes: int,
    part: tuple[int, int],
    group: tuple[int, ...],
    is_open: bool,
    is_complete: bool,
    content: Any,
    token: int,
) -> Segment:
    """Called while an image is loaded. Raises RestoreError."""
    segment = host.map_again(offset, nbytes, part, group)
    segment.own_part()[:] = memoryview(content)
    segment.is_complete = is_complete
    host.token = token
    if is_open:
        host.join(segment)
    return segment
