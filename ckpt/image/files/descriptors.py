"""Descriptors by their numbers: which are the program's, and those that it keeps as mere numbers.

Which they are
    Every descriptor that is open when an image is taken, but for those that were open before the program began
    (:func:`note_baseline`) and those of the port between ranks: eventfds and event polls of which it says so
    (:mod:`ckpt.transport.wires.owned`), Unix sockets with a name (the program's own of these cannot be told from them).

    ======================  ================================================================================
    regular files,          opened again under their number, when no file object owns them: a
    directories, /dev/null  :class:`Descriptors` is pickled with the last, when all file objects of the
                            image are known; for what is left, the process is searched for others
    what a library opens    none of the program's: its reducer says so (``pickler.owned``)
    again
    written by nobody that  refused by name: a library in C has opened it (Python's own descriptors are not
    is known                inherited by other programs, these are), and would write nowhere
    pipes, sockets, …       lost: their numbers are closed after a restart (:mod:`ckpt.image.files.numbers`)
    0, 1, 2                 the rank's own; or what ``os.dup2`` has put there (:func:`redirected`)
    ======================  ================================================================================

At load a number that is in use by then is a :class:`RestoreError`: the program would write into what is not its own.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import socket
import stat
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ckpt.image.errors import RestoreError, Unpicklable
from ckpt.image.files import numbers, reopen
from ckpt.image.files.file_notes import FileNote, completed
from ckpt.transport.wires import owned

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "Descriptors",
    "Survey",
    "baseline",
    "note_baseline",
    "our_files",
    "own_lengths",
    "reduce_descriptors",
    "redirected",
    "restore_descriptors",
    "stream_of",
    "survey",
    "unexplained",
]

_IN_MEMORY = "/memfd:"
_NULL = os.devnull
_STREAMS = (0, 1, 2)
_MOST_LOST = 256  # a library that makes a pipe for itself after each restart must not use up all numbers
_NAMES = {0: "standard input", 1: "standard output", 2: "standard error"}
_FILES = ("file", "deleted")

_baseline: dict[int, tuple[int, int]] = {}  # and what is behind each: device, inode
_regular: list[int] = []
_outputs: dict[int, str] = {}  # paths of standard output and error


def note_baseline() -> None:
    """What is open now does not belong to the program that is about to begin, or to go on."""
    _baseline.clear()
    _regular.clear()
    _outputs.clear()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            fd = int(name)
            status = os.fstat(fd)
            _baseline[fd] = status.st_dev, status.st_ino
            if not stat.S_ISREG(status.st_mode):
                continue
            if fd in _STREAMS:
                _outputs[fd] = os.readlink(f"/proc/self/fd/{fd}")
            else:
                _regular.append(fd)


def baseline() -> Collection[int]:
    """Descriptors that do not belong to the program, but for those whose number has been given away again since."""
    return [fd for fd in _baseline if _is_ours(fd)]


def our_files() -> tuple[int, ...]:
    """Those of them that are regular files, standard streams apart."""
    return tuple(fd for fd in _regular if _is_ours(fd))


def _is_ours(fd: int) -> bool:
    try:
        return _behind(fd) == _baseline[fd]
    except OSError:
        return False


def _behind(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


# ---------------------------------------------------------------------- standard streams


def redirected(notes: Mapping[int, FileNote]) -> list[int]:
    """Standard streams under whose numbers the program has put something else."""
    return [
        fd for fd in _STREAMS if fd in notes and fd in _baseline and notes[fd].identity[:2] != _baseline[fd]
    ]


def own_lengths() -> dict[int, int]:
    """In the parent: lengths of the rank's own output and error where those are not under their numbers."""
    found: dict[int, int] = {}
    for fd in (1, 2):
        if fd in _outputs and not _is_ours(fd):
            with contextlib.suppress(OSError):
                found[fd] = os.stat(_outputs[fd]).st_size
    return found


def stream_of(fd: int, note: FileNote) -> int | None:
    """1 or 2 for a descriptor through which the program writes to the rank's own output or error."""
    if note.kind != "file" or not note.flags & os.O_APPEND:
        return None
    return next((own for own in (1, 2) if own in _outputs and note.identity[:2] == _baseline[own]), None)


# ---------------------------------------------------------------------- in the child


class Survey(NamedTuple):
    """``numbers``: all that belong to the program; ``lost``: those of what cannot be saved."""

    numbers: list[int]
    lost: list[int]


def survey(notes: Mapping[int, FileNote]) -> Survey:
    """Before the child's descriptors are set apart."""
    ours = set(baseline())
    found: list[int] = []
    lost: list[int] = []
    lost_before: list[int] = []
    for fd, incomplete in notes.items():
        if fd in ours or fd in _STREAMS:
            continue
        try:
            note = completed(fd, incomplete)
            if numbers.is_placeholder(note.path, note.flags):
                lost_before.append(fd)
            elif note.path.startswith(_IN_MEMORY) or _is_lost(fd, note):
                lost.append(fd)
            elif note.kind in (*_FILES, "directory") or note.path == _NULL:
                found.append(fd)
        except OSError:
            continue  # closed since
    lost += lost_before[: max(0, _MOST_LOST - len(lost))]
    return Survey(sorted({*found, *lost}), lost)


def _is_lost(fd: int, note: FileNote) -> bool:
    """Is it the program's, and nothing that can be opened again?"""
    if note.kind in (*_FILES, "directory"):
        return False
    if note.kind == "socket":
        return not _has_a_name(fd)
    if note.path in ("anon_inode:[eventpoll]", "anon_inode:[eventfd]"):
        return fd not in owned.numbers()
    return note.kind in ("pipe", "special file")


def _has_a_name(fd: int) -> bool:
    """A Unix socket with a place in the file system, on either side: as all of the port's."""
    with socket.socket(fileno=os.dup(fd)) as each:
        if each.family != socket.AF_UNIX:
            return False
        for ask in (each.getsockname, each.getpeername):
            with contextlib.suppress(OSError):
                if ask():
                    return True
    return False


def unexplained(
    notes: Mapping[int, FileNote], known: Collection[int], owned: Collection[object]
) -> list[int]:
    """Descriptors that belong to no file object; ``known``: those of file objects already met; ``owned``: of libraries,
    by number or by device and inode. Raises Unpicklable for one that only a library in C can have opened.
    """
    ours = set(baseline())
    found = [
        fd
        for fd, note in notes.items()
        if fd not in ours
        and fd not in _STREAMS
        and fd not in known
        and fd not in owned
        and note.identity[:2] not in owned
        and _can_be_opened(fd, note)
    ]
    if not found:
        return []
    others = {obj.fileno() for obj in gc.get_objects() if type(obj) is io.FileIO and not obj.closed}
    found = [fd for fd in found if fd not in others]
    for fd in found:
        _refuse_foreign(fd, notes)
    return found


def _can_be_opened(fd: int, note: FileNote) -> bool:
    if note.kind == "device":
        note = completed(fd, note)
        return note.path == _NULL and not note.flags & os.O_PATH
    return note.kind in (*_FILES, "directory") and not note.path.startswith(_IN_MEMORY)


def _refuse_foreign(fd: int, notes: Mapping[int, FileNote]) -> None:
    note = notes[fd]
    is_written = note.kind in _FILES and note.flags & os.O_ACCMODE != os.O_RDONLY
    if not is_written or note.flags & os.O_CLOEXEC or note.first != fd or stream_of(fd, note):
        return
    if any(other.first == fd and number != fd for number, other in notes.items()):
        return  # os.dup2 makes such ones
    raise Unpicklable(
        f"descriptor {fd}",
        f"the file {note.path!r} is open for writing, and no object of the program that can be saved has "
        "opened it: a library in C has, which would not have it after a restart. Close it before the checkpoint, in an "
        "on_checkpoint hook if need be, and open it again in on_restart; or, if the program has opened it itself, leave it "
        "non-inheritable (os.set_inheritable(fd, False))",
    )


class Descriptors:
    """Stands for the descriptors that no file object pickled before it owns. ``saver``: a FileSaver."""

    def __init__(self, saver: Any) -> None:
        self.saver = saver


def reduce_descriptors(pickler: Saver, obj: Descriptors) -> Any:
    return list, (obj.saver.raw_descriptors(pickler.owned),)


def name_of(fd: int) -> str:
    return _NAMES[fd]


# ---------------------------------------------------------------------- called while loading


def restore_descriptors(saved: list[reopen.SavedFile]) -> None:
    for file in saved:
        fd = reopen.put(file)
        if fd != file.fd:
            os.close(fd)
            raise RestoreError(
                f"descriptor {file.fd} of the open file {file.path!r} is in use in this process; "
                "use file objects (open(), os.fdopen()), which need no number of their own"
            )
