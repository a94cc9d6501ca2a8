"""Open files: recorded in the parent, saved in the child, opened again at load.

In the parent, before the fork (:mod:`ckpt.image.process.moment`)
    For every descriptor of this process: the file that it refers to, its offset, flags and length.

In the child, when the pickler meets a file object (:class:`FileSaver`)
    The offset of the kernel is not enough: buffers hold bytes that are not written yet, or are read ahead. The file objects
    are asked for the program's position (:mod:`ckpt.image.files.file_positions`).

    ==================  ======================================================================================
    object              saved
    ==================  ======================================================================================
    FileIO              path, flags, offset; for writers the length; for small files the content
                        (:mod:`ckpt.image.files.saved_files`)
    buffered objects    their raw file, the logical position, the bytes that are not written yet; and which piece of the file
                        they have read, with its bytes where the file has something else there by now
    TextIOWrapper       its buffer and settings, and what it has read and not given out yet (:mod:`.text_files`)
    standard streams    references; their lengths are in `ckpt.image.process.resources`. File objects of the program over
                        them: with the bytes that are not written yet
    deleted files       with their content (temporary files)
    NamedTemporaryFile  with its content; made again if it is gone
    descriptors that    :mod:`ckpt.image.files.descriptors`
    no object owns
    pipes, sockets      with both ends in this process: by number (:mod:`ckpt.image.ipc`); else not saved: the image fails,
                        and the reason names them
    ==================  ======================================================================================

At load (:mod:`ckpt.image.files.reopen`)
    A writable file is cut to its saved length, the bytes that had not been flushed are in its buffer again, and the program
    goes on at its offset. A small file that is missing is made again. A larger file that is missing, or is too short, is a
    :class:`~ckpt.image.errors.RestoreError` that names the path; the loader adds the name of the variable.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ckpt.compat.stdlib import is_deleted_when_closed, temporary_file_types
from ckpt.image.files.buffered_data import (
    buffer_nbytes,
    make_buffer_ahead,
    make_buffer_pair,
    make_closed_pair,
    make_filled,
    make_random_access,
)
from ckpt.image.files.descriptors import Descriptors, reduce_descriptors, unowned
from ckpt.image.files.file_notes import FileNote, completed
from ckpt.image.files.file_positions import STD_FDS, Opened, Positions
from ckpt.image.files.reopen import (
    OpenedFile,
    SavedFile,
    compressed_readers,
    make_buffered,
    make_closed,
    make_closed_memory,
    make_raw_file,
    make_raw_over,
    make_std_raw,
)
from ckpt.image.files.saved_files import SavedFiles
from ckpt.image.files.text_files import TextSaver
from ckpt.image.reducers.buffers import derived_buffers, fill_buffer
from ckpt.image.reducers.raw_instances import attributes_of, reduce_raw, slots_of

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["FileSaver"]


class FileSaver:
    """The reducers of file objects, for one image.

    ``notes``: descriptor -> note (:mod:`ckpt.image.process.moment`). ``is_disposable``: this process is a forked child.
    ``channels``: descriptors of pipes and sockets that come back (:mod:`ckpt.image.ipc`).
    """

    def __init__(
        self,
        notes: dict[int, FileNote],
        *,
        is_disposable: bool,
        saved_files: SavedFiles,
        channels: Collection[int] = (),
    ) -> None:
        self._saved_files = saved_files
        self._notes = notes
        self._positions = Positions(notes, is_disposable=is_disposable, channels=channels)
        self._text = TextSaver(self._positions)
        self._temporary: set[int] = set()  # descriptors of files that are deleted when the program ends

    def reducers(self) -> dict[type, Callable[[Saver, Any], Any]]:
        return {
            io.FileIO: self.reduce_raw_file,
            io.BufferedReader: self.reduce_buffered,
            io.BufferedWriter: self.reduce_buffered,
            io.BufferedRandom: self.reduce_buffered,
            **dict.fromkeys(derived_buffers(), self.reduce_derived),
            io.BufferedRWPair: self.reduce_pair,
            io.TextIOWrapper: self._text.reduce,
            **dict.fromkeys(temporary_file_types(), self.reduce_temporary),
            Descriptors: reduce_descriptors,
            Opened: self.reduce_opened,
            io.BytesIO: self.reduce_memory,
            io.StringIO: self.reduce_memory,
            **compressed_readers(),
        }

    def reduce_temporary(self, pickler: Saver, obj: Any) -> Any:
        """``NamedTemporaryFile``: its file is deleted when the program ends, so the image holds its content."""
        raw: Any = obj.file
        raw = getattr(raw, "buffer", raw)
        raw = getattr(raw, "raw", raw)
        if isinstance(raw, io.FileIO) and not raw.closed and is_deleted_when_closed(obj):
            self._temporary.add(raw.fileno())
        return reduce_raw(pickler, obj)

    def raw_descriptors(self, owned: Collection[object]) -> list[SavedFile]:
        """The files of descriptors that no file object owns. ``owned``: see
        :func:`ckpt.image.files.descriptors.unowned`, also for errors.
        """
        return [
            self._saved(fd, completed(fd, self._notes[fd]))
            for fd in unowned(self._notes, self._positions.opened, owned)
        ]

    def _saved(self, fd: int, note: FileNote) -> SavedFile:
        original = self._positions.opened[fd].original if fd in self._positions.opened else fd
        return self._saved_files.saved(fd, note, original, is_temporary=fd in self._temporary)

    def reduce_raw_file(self, pickler: Saver, obj: io.FileIO) -> Any:
        if obj.closed:
            return make_closed, ("raw", obj.name, obj.mode)
        fd = obj.fileno()
        if fd in STD_FDS:
            return make_std_raw, (fd, obj.mode, obj.name)
        if fd in self._positions.channels:
            return make_raw_over, (fd, obj.mode, obj.name, obj.closefd)
        opened = self._positions.open(fd)
        return make_raw_file, (opened, obj.mode, obj.name, obj.closefd)

    def reduce_opened(self, pickler: Saver, opened: Opened) -> Any:
        """One :class:`OpenedFile` for all file objects of a descriptor: the pickler's memo makes them share it."""
        return OpenedFile, (self._saved(opened.fd, opened.note),)

    def reduce_derived(self, pickler: Saver, obj: Any) -> Any:
        """A buffer of a class derived from those of :mod:`io` (members of tar files): with its attributes."""
        make, args = self.reduce_buffered(pickler, obj)
        state = attributes_of(obj), slots_of(pickler, obj)
        return make, args, state, None, None, fill_buffer

    def reduce_pair(self, pickler: Saver, obj: Any) -> Any:
        """``socket.makefile("rwb")``: a buffer that reads and one that writes, which no attribute shows."""
        if obj.closed:
            return make_closed_pair, ()
        return make_buffer_pair, self._positions.of_pair(obj)

    def reduce_memory(self, pickler: Saver, obj: Any) -> Any:
        return (make_closed_memory, (type(obj),)) if obj.closed else NotImplemented

    def reduce_buffered(self, pickler: Saver, obj: Any) -> Any:
        if obj.closed:
            return make_closed, (
                "buffered",
                getattr(obj.raw, "name", None),
                getattr(obj.raw, "mode", "rb"),
            )
        position = self._positions.buffered(obj)
        nbytes = buffer_nbytes(obj)
        if window := self._positions.windows.get(id(obj)):
            return make_filled, (type(obj), obj.raw, nbytes, *window)
        if id(obj) in self._positions.ahead:
            ahead = self._positions.ahead[id(obj)]
            return make_buffer_ahead, (type(obj), obj.raw, ahead, max(nbytes, len(ahead)))
        if places := self._positions.places.get(id(obj)):
            return make_random_access, (type(obj), obj.raw, position, places, nbytes)
        pending = self._positions.pending.get(id(obj), b"")
        return make_buffered, (type(obj), obj.raw, position, pending, nbytes)
