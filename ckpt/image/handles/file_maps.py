"""Files that are mapped for shared writing: ``mmap``, ``numpy.memmap``, and what compiled libraries map.

A forked copy would see what the program writes to them meanwhile. So what is mapped is copied while the program stands
still, and the copies take its place in the forked copy (:mod:`ckpt.image.handles.shared_copies`). Where this is too much
memory, the image is written without a fork, and so is one of a program that has mapped anything else for shared writing: a
file that has been removed, or has become shorter than what is mapped of it, or a device.

Each rank imports this module at its start, and what it needs once a file is mapped, only then.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import Unpicklable
from ckpt.image.interface.library import Library, Reducer, by_name, later
from ckpt.image.interface.mappings import SHARED, Mapping, mappings

if TYPE_CHECKING:
    from ckpt.image.stdlib.mapped import Span

__all__ = ["FileMaps"]


class FileMaps(Library):
    """mmap: mapped files and anonymous memory, with content."""

    moment_limit_s = 60.0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._copies: list[tuple[Span, mmap.mmap]] = []
        self._most_bytes: int | None = None
        """Once there was no room for more than that: from then on such images are written without a fork."""
        self._is_wanted = False
        """Has it been asked which files are copied? Not for explicit images."""

    def reducers(self) -> dict[type, Reducer]:
        return by_name("mmap", {"mmap": later("ckpt.image.stdlib.mapped", "reduce_map")})

    def reason_now(self, values: Iterable[Any]) -> str | None:
        """Tasks that are done again after a restart would change the file a second time."""
        if not (spans := _spans()):
            return None
        from ckpt.image.handles.shared_copies import are_children_at_work

        if not are_children_at_work():
            return None
        return (
            "child processes are at work (tasks of a pool, workers of a DataLoader), and may change "
            f"{spans[0].path}, which is mapped for shared writing: after a restart they would change it once more"
        )

    def copied_maps(self) -> Collection[int]:
        self._is_wanted = True
        return {span.start for span in self._copied()}

    def _copied(self) -> list[Span]:
        """What is to be copied."""
        if not (spans := _spans()):
            return []
        from ckpt.image.handles.shared_copies import MOST_BYTES

        most_bytes = MOST_BYTES if self._most_bytes is None else self._most_bytes
        return spans if _bytes_of(spans) <= most_bytes else []

    def copy_out(self, *, is_writing: bool, available: Callable[[], int | None]) -> None:
        if not self._is_wanted or not (spans := self._copied()):
            return
        from ckpt.image.handles.shared_copies import copy_of, there_is_room

        if reason := self.reason_now(()):
            raise Unpicklable("a mapped file", reason)
        if not there_is_room(_bytes_of(spans), available()):
            self._most_bytes = _bytes_of(spans) - 1
            return
        for span in spans:
            memory = (ctypes.c_char * (span.end - span.start)).from_address(span.start)
            self._copies.append((span, copy_of(memory)))

    def before_saving(self, *, is_disposable: bool) -> None:
        if is_disposable and self._copies:
            from ckpt.image.handles.shared_copies import put_in_place
            from ckpt.image.stdlib import mapped

            put_in_place((span.start, copy) for span, copy in self._copies)
            for span, _ in self._copies:
                mapped.note_copied_file(span)

    def let_copies_go(self) -> None:
        if self._copies:
            from ckpt.image.handles.shared_copies import note_image_over

            note_image_over()
        self._copies = []


def _bytes_of(spans: Iterable[Span]) -> int:
    return sum(span.end - span.start for span in spans)


def _spans() -> list[Span]:
    """Regular files that are mapped for shared writing, and can be read there. The interpreter's lock stays held."""
    try:
        return [span for each in mappings(SHARED) if (span := _span(each)) is not None]
    except OSError:
        return []  # there is no /proc


def _span(found: Mapping) -> Span | None:
    if not found.path.startswith("/") or found.path.startswith("/dev/"):
        return None
    from ckpt.image.stdlib.mapped import Span

    span = Span(found.start, found.end, found.path, found.offset)
    try:
        file = os.stat(span.path)
    except OSError:
        return None  # it has been removed
    needed = span.offset + span.end - span.start - mmap.PAGESIZE  # behind the file's last page is no memory
    return span if stat.S_ISREG(file.st_mode) and file.st_size > needed else None
