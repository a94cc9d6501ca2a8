"""The files of a rank go back with the program: connects the rank with its undo log (:mod:`ckpt.undo`).

    start      the program is about to begin, or to go on: from here on its changes of files are recorded
    make_ready an image is near: what the next interval needs is made before the program stands still
    cut        an image is taken, the program stands still: what it has open for writing is recorded at once, because writing
               to an open file is not seen
    tick       the program has gone on: the log of the interval that has ended is closed
    uncut      the image could not be taken: the interval that had ended goes on
    label      this rank takes a checkpoint's number without an image: an interval of its undo log begins, so that the
               intervals of all ranks stay in step
    committed  the line is committed, or given up (aborted): what other ranks make from now on is in no line

Not here: what is recorded (:mod:`ckpt.undo.watching`), how a restart puts files back (:mod:`ckpt.undo.restart`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ckpt.capture.context import RankContext
from ckpt.image.files.descriptors import note_our_directory, note_ours
from ckpt.image.files.file_notes import FileNote
from ckpt.image.interface.mappings import SHARED, mappings
from ckpt.image.interface.moved import moved
from ckpt.image.process import moment
from ckpt.undo import _watch
from ckpt.undo.keeping import look
from ckpt.undo.recorder import OpenFile
from ckpt.undo.records import Uncovered
from ckpt.undo.selection.covering import Covering, covering
from ckpt.undo.selection.kept import are_kept, divide, is_kept, patterns
from ckpt.undo.selection.patterns import OFF, is_recorded
from ckpt.undo.shared import Shared
from ckpt.undo.watching import FileWatch

__all__ = ["Files", "NoFiles", "files_of", "is_put_back"]

_LIMIT_BYTES = 1 << 30
_COPIED_AT_MOST_BYTES = 1 << 18
"""A longer file that the program writes at its end is not copied at each checkpoint: its length is recorded, and it is
copied when the program is about to write it elsewhere (``ckpt/undo/watch/positions.c``)."""


class NoFiles:
    """A restart does not put files back: ``ckpt run --files off``."""

    def start(self) -> None:
        return

    def make_ready(self) -> None:
        return

    def rehearse(self) -> None:
        moment.note()

    def cut(self, epoch: int) -> bytes | None:
        return None

    def uncut(self, epoch: int) -> None:
        return

    @property
    def is_tick_due(self) -> bool:
        return False

    def tick(self) -> None:
        return

    def label(self, epoch: int) -> None:
        return

    def committed(self, epoch: int) -> None:
        return

    def aborted(self, epoch: int) -> None:
        return

    def keep(self, patterns: Sequence[str]) -> None:
        return

    def status(self) -> dict[str, int] | None:
        return None

    def look_at_changes(self) -> None:
        pass

    def seal(self) -> dict[str, Any] | None:
        return None


class Files:
    """The undo log of one rank. ``key``: of the job. ``covers``: is a path one of the files that go back? None: all are.
    ``shared``: see :class:`ckpt.undo.watching.FileWatch`."""

    def __init__(
        self,
        runtime: RankContext,
        key: bytes,
        limit_bytes: int,
        covers: Covering | None,
        shared: Shared | None,
    ) -> None:
        self._runtime = runtime
        self._covers = covers
        note_our_directory(os.path.realpath(runtime.spec["job_dir"]))
        self._watch = FileWatch(
            runtime.spec["job_dir"],
            key,
            rank=runtime.rank,
            incarnation=runtime.incarnation,
            limit_bytes=limit_bytes,
            ranks=runtime.spec["size"],
            on_uncovered=self._on_uncovered,
            covers=self._is_covered if covers is not None or are_kept() else None,
            divides=self._divides,
            left_alone=(runtime.spec["runtime_dir"],),
            on_log=note_ours,
            on_directory=self._on_directory,
            on_process=self._on_process,
            on_mapped=runtime.on_mapped,
            shared=shared,
        )

    def start(self) -> None:
        """Record changes from now on."""
        self._watch.start(self._runtime.spec["epoch"], self._open_files(moment.note()))
        if are_kept():  # of an image
            self._tell_kept(patterns())

    def make_ready(self) -> None:
        """An image is near."""
        self._watch.make_ready()

    def rehearse(self) -> None:
        """What has no effect of :meth:`cut`."""
        moment.has_written_files(moment.note(), self._watch.left_alone)
        self._watch.rehearse()

    def cut(self, epoch: int) -> bytes | None:
        """An image of this epoch is taken; the program stands still. Returns the record of this moment: of one before the
        cut, and no change of a file begins between them. Else a file that a thread has opened that does not stand still (a
        harmless one) would be open in the image, and not be there after a restart."""
        self.tick()
        with self._watch.lock:
            noted = moment.note()
            is_written = moment.has_written_files(noted, self._watch.left_alone)
            self._watch.cut(epoch, self._open_files(noted) if is_written else ())
        return noted

    def uncut(self, epoch: int) -> None:
        """There was no image after all; the program still stands still."""
        self._watch.uncut(epoch)

    @property
    def is_tick_due(self) -> bool:
        """Is there anything to do for :meth:`tick`?"""
        return self._watch.has_former

    def tick(self) -> None:
        """Under the lock, at some time after a cut."""
        self._watch.close_former()

    def _open_files(self, noted: bytes) -> Iterator[OpenFile | Uncovered]:
        return open_for_writing(noted, self._watch.is_unwanted, self._watch.left_alone)

    def label(self, epoch: int) -> None:
        """No image of this epoch is taken."""
        self._watch.cut(epoch, ())
        self._watch.aborted(epoch)

    def committed(self, epoch: int) -> None:
        """The line of this epoch is committed."""
        self._watch.committed(epoch)

    def aborted(self, epoch: int) -> None:
        """There will be no line of this epoch."""
        self._watch.aborted(epoch)

    def keep(self, patterns: Sequence[str]) -> None:
        """The program wants changes of these files to stay."""
        self._watch.keep(patterns, self._is_covered)
        self._tell_kept(patterns)

    def _tell_kept(self, patterns: Sequence[str]) -> None:
        self._runtime.control.send({"m": "event", "event": "files-kept", "patterns": list(patterns)})

    def _is_covered(self, path: str) -> bool:
        return (self._covers is None or self._covers(path)) and not is_kept(path)

    def _divides(self, directory: str) -> bool:
        return (self._covers is not None and self._covers.divides(directory)) or divide(directory)

    def status(self) -> dict[str, int]:
        """For `ckpt status`: the number of ``records`` since the last checkpoint."""
        return {"records": self._watch.records}

    def look_at_changes(self) -> None:
        """The image of the last cut is about to be written: see :meth:`ckpt.undo.watching.FileWatch.look_at_changes`."""
        self._watch.look_at_changes()

    def seal(self) -> dict[str, Any] | None:
        """For the manifest of the image of the last cut."""
        return self._watch.seal()

    def _on_uncovered(self, epoch: int, each: Uncovered) -> None:
        self._runtime.control.send(
            {
                "m": "event",
                "event": "files-not-covered",
                "epoch": epoch,
                "path": each.path,
                "reason": each.reason,
            }
        )

    def _on_directory(self, directory: str) -> None:
        self._runtime.control.send({"m": "changes", "directory": directory})

    def _on_process(self, command: str, where: str) -> None:
        self._runtime.control.send(
            {"m": "event", "event": "process-started", "command": command, "where": where}
        )


def files_of(runtime: RankContext, key: bytes, options: dict[str, Any]) -> Files | NoFiles:
    """The undo log of this rank. ``key``: of the job."""
    choice = options.get("files") or OFF
    if not is_recorded(choice):
        return NoFiles()
    covers = covering(choice, options["files_directory"])
    shared = shared_file_systems(runtime.spec)
    if shared is not None:
        shared.use()
    return Files(runtime, key, int(options.get("files_limit") or _LIMIT_BYTES), covers, shared)


def shared_file_systems(spec: dict[str, Any]) -> Shared | None:
    """Those that all hosts of the job share; None: the ranks are on one host. ``spec``: of the rank."""
    numbers = spec["options"].get("files_shared")
    return None if numbers is None else Shared(numbers, spec["host"])


def is_put_back(spec: dict[str, Any]) -> Callable[[str], bool]:
    """The function that says of a path whether the restart has put that file back. ``spec``: of the rank."""
    options, shared = spec["options"], shared_file_systems(spec)
    problems = frozenset(options.get("files_problems", ()))
    covers = [covering(words, moved(directory)) for words, directory in options["files_recorded"]]

    def judge(path: str) -> bool:
        is_here = shared is None or not shared.local_to(os.path.realpath(path))
        return path not in problems and is_here and all(each is None or each(path) for each in covers)

    return judge


def open_for_writing(
    noted: bytes, is_left_alone: Callable[[str], bool], left_out: tuple[bytes, ...] = ()
) -> Iterator[OpenFile | Uncovered]:
    """The regular files that this process has open for writing, or why one cannot be recorded. ``noted``: the record of this
    moment. ``is_left_alone``: is a path none of the files that go back? ``left_out``: directories of which that is known."""
    for fd, note in moment.written_files(noted, left_out):
        if note.kind == "file" and not is_left_alone(note.path):
            try:
                file = _open_file(fd, note)
            except OSError as failure:
                file = Uncovered(note.path, failure.strerror or "", 0)
            if file is not None:
                yield file


def _open_file(fd: int, note: FileNote) -> OpenFile | Uncovered | None:
    try:
        status = look(note.path)
    except OSError:  # a directory of the path may no longer be searched
        from ckpt.undo.restart.places import look_at

        status = look_at(fd)
    if status is None or (status.file.inode, status.file.born_ns) != note.identity[1:]:
        return None  # it has lost this name just now: no name leads to it
    access = note.flags & os.O_ACCMODE
    appends = bool(note.flags & os.O_APPEND) and not (access == os.O_RDWR and _is_mapped(fd))
    is_large = note.length > _COPIED_AT_MOST_BYTES
    is_at_end = (
        access == os.O_WRONLY and note.offset >= note.length and is_large and not appends and _watch.LEADS
    )
    inode = None
    if is_at_end:
        found = os.fstat(fd)
        inode = found.st_dev, found.st_ino
    return OpenFile(
        note.path,
        status,
        appends=bool(appends or is_at_end),
        written=min(note.offset, note.length) if appends or is_at_end else 0,
        fd=fd if access == os.O_RDWR else -1,
        is_locked="POSIX" in note.locks,
        inode=inode,
    )


def _is_mapped(fd: int) -> bool:
    """Is the file mapped so that what is written to memory gets into it? It may then be changed anywhere."""
    inode = os.fstat(fd).st_ino  # the number of the device is another one there on Btrfs
    return any(each.inode == inode for each in mappings(SHARED))
