"""mmap: files and anonymous memory that the program has mapped.

A mapped file is opened and mapped again, at the same offset and with the same access. What the program could write to gets
the content that it had at the checkpoint. (:mod:`ckpt.image.libraries.numpy` saves ``numpy.memmap`` in the same way.)

A program and its forked child use the same memory for a *shared* mapping, so a child would save what the program writes
meanwhile.
Therefore this memory is copied before the fork (:mod:`ckpt.image.handles.file_maps`; for the memory of ``multiprocessing``
:mod:`ckpt.image.handles.shared_copies`), and where it is too large for that, images are written without a fork
(:mod:`ckpt.capture.choice`). A child that meets such a mapping all the same refuses it.

A file in ``/dev/shm`` that is gone at a restart is made again: it is a block of shared memory.
"""

from __future__ import annotations

import mmap
import os
from pickle import PickleBuffer, PicklingError
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.files import numbers
from ckpt.image.interface.mappings import mappings
from ckpt.transport.records import dataclass
from ckpt.transport.wires.crossmemory import address_of

__all__ = [
    "Span",
    "fill",
    "is_copied",
    "note_copied",
    "note_copied_file",
    "place_of",
    "put_under",
    "reduce_map",
]

_IN_MEMORY = "/dev/shm/"
_PIECE = 1 << 16
_NOT_COPIED = object()

_Place = tuple[str, bool, bool, int]


@dataclass(frozen=True, slots=True)
class Span:
    """Addresses at which a file is mapped, from ``offset`` in it on. Mappings that follow each other may be one span."""

    start: int
    end: int
    path: str
    offset: int


_copied: dict[int, _Place | None] = {}
"""In a forked child: address of a mapping of which a copy is in place → what it is a copy of; None: a file that has no
name."""
_copied_files: list[Span] = []
"""In a forked child: what it had mapped of files for shared writing, where copies are in place now."""
_unnamed: dict[int, int] = {}
"""While an image is loaded: ``id`` of a mapping → the descriptor of its file, which has no name."""


def place_of(mapped: mmap.mmap) -> _Place:
    """In the program, when its memory is copied: the file that is mapped. Raises PicklingError: it has been removed."""
    place = _mapping(address_of(mapped))
    _require_file(place[0])
    return place


def note_copied(address: int, place: _Place | None) -> None:
    """In a forked child: a copy has taken the place of the memory at this address. ``place``: of :func:`place_of`; None: its
    file has no name."""
    _copied[address] = place


def note_copied_file(span: Span) -> None:
    """The same, for what is mapped of a file."""
    _copied_files.append(span)


def is_copied(mapped: mmap.mmap) -> bool:
    return _place_copied(address_of(mapped)) is not _NOT_COPIED


def _place_copied(address: int) -> Any:
    if address in _copied:
        return _copied[address]
    for span in _copied_files:
        if span.start <= address < span.end:
            return span.path, True, True, span.offset + address - span.start
    return _NOT_COPIED


def reduce_map(pickler: Any, mapped: mmap.mmap) -> Any:
    if mapped.closed:
        return make_closed_map, ()
    address, nbytes = address_of(mapped), len(mapped)
    found = _place_copied(address)
    has_copy = found is not _NOT_COPIED
    if not has_copy:
        found = _mapping(address)
    if found is None:
        return make_unnamed_map, (nbytes, PickleBuffer(memoryview(mapped).toreadonly()), mapped.tell())
    place, shared, writable, offset = found
    if not has_copy:
        _require_file(place)
    if shared and writable and pickler.is_disposable and not has_copy:
        raise PicklingError(
            f"{place or 'shared memory'} has just been mapped for shared writing; the next image is written without a fork"
        )
    access = _access(place, shared, writable)
    content = PickleBuffer(memoryview(mapped).toreadonly()) if writable else None
    return make_map, (place, nbytes, offset, access, content, mapped.tell())


def _require_file(place: str) -> None:
    if place and not os.path.exists(place):
        raise PicklingError(f"the mapped file {place!r} has been removed")


def _access(place: str, shared: bool, writable: bool) -> int:
    if not writable:
        return mmap.ACCESS_READ
    return mmap.ACCESS_COPY if place and not shared else mmap.ACCESS_WRITE


def _mapping(address: int) -> _Place:
    """``(path or "", is shared, is writable, offset in the file)`` of the memory at an address."""
    for each in mappings():
        if each.start <= address < each.end:
            place = each.path if each.inode else ""
            if place.startswith("/dev/zero"):  # anonymous shared memory
                place = ""
            is_shared = each.mode[3:4] == b"s" and bool(place)
            return place, is_shared, each.mode[1:2] == b"w", each.offset + address - each.start
    raise PicklingError("a mapping that the kernel does not list")


# ---------------------------------------------------------------------- called while loading


def make_map(place: str, nbytes: int, offset: int, access: int, content: Any, position: int) -> mmap.mmap:
    if place:
        if place.startswith(_IN_MEMORY) and content is not None and not os.path.lexists(place):
            _make_file(place, offset + nbytes)
        try:
            fd = os.open(place, os.O_RDWR if access == mmap.ACCESS_WRITE else os.O_RDONLY)
        except OSError as failure:
            raise RestoreError(
                f"the mapped file {place!r} cannot be opened again: {failure.strerror}"
            ) from failure
        try:
            if os.fstat(fd).st_size < offset + nbytes:
                raise RestoreError(f"the mapped file {place!r} has become shorter than its mapping")
            made = mmap.mmap(fd, nbytes, access=access, offset=offset)
        finally:
            os.close(fd)
    else:
        made = mmap.mmap(-1, nbytes)
    if content is not None:
        fill(memoryview(made), content)
    made.seek(position)
    return made


def fill(memory: memoryview, content: Any) -> None:
    """Write what is not there already. A restart has usually put the file back, so nothing is written: its time stays, and
    what others notice of files (:mod:`ckpt.undo.unrecorded`) does not change."""
    source = memoryview(content).cast("B")
    for at in range(0, len(source), _PIECE):
        piece = bytes(source[at : at + _PIECE])
        if bytes(memory[at : at + len(piece)]) != piece:
            memory[at : at + len(piece)] = piece


def make_unnamed_map(nbytes: int, content: Any, position: int) -> mmap.mmap:
    """Memory that child processes will share, as that of ``multiprocessing.heap``: a file that has no name."""
    fd = os.memfd_create("ckpt-shared", os.MFD_CLOEXEC)
    os.ftruncate(fd, nbytes)
    made = mmap.mmap(fd, nbytes)
    made[:] = memoryview(content)
    made.seek(position)
    _unnamed[id(made)] = fd
    return made


def put_under(made: mmap.mmap, number: int) -> int:
    """Give the file of :func:`make_unnamed_map` the number that it had. Returns its number."""
    return numbers.place(_unnamed.pop(id(made)), number)


def _make_file(place: str, nbytes: int) -> None:
    """Make a block of shared memory again, which nobody else has any more. Its content follows."""
    try:
        fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, nbytes)
        finally:
            os.close(fd)
    except FileExistsError:
        pass  # another rank has made it
    except OSError as failure:
        raise RestoreError(
            f"the shared memory {place!r} cannot be made again: {failure.strerror}"
        ) from failure


def make_closed_map() -> mmap.mmap:
    made = mmap.mmap(-1, 1)
    made.close()
    return made
