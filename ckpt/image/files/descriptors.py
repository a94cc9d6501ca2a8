"""Descriptors by their numbers: which descriptors belong to the program, and which of them no file object owns.

Which descriptors belong to the program
    Every descriptor that is open when an image is taken, except those that were open before the program began
    (:func:`note_baseline`) and those of the port between ranks. The port's descriptors are the eventfds and epoll
    descriptors that it lists (:mod:`ckpt.transport.wires.owned`), and the Unix sockets with a name in its directory.

    ======================  ================================================================================
    regular files,          opened again under their number, when no file object owns them. A
    directories, devices
    without state           :class:`Descriptors` is pickled near the end, when the file objects of the
                            image are known; the process is searched for other file objects (those
                            that are not in the image) before a descriptor counts as owned by none
    files that a library    not counted: the reducer of the library has put them into ``pickler.owned``
    opens again itself
    files open for writing  refused by name: a library in C has opened such a file (its descriptor is
    that no object owns,    inheritable, those that Python opens are not), and would have no open file
    inheritable             after a restart
    pipes, sockets, …       :mod:`ckpt.image.ipc` makes some of them again; the numbers of the others are closed after a
                            restart (:mod:`ckpt.image.files.numbers`)
    0, 1, 2                 the rank's own; or what ``os.dup2`` has put there (:func:`redirected`)
    ======================  ================================================================================

A number that is already in use at load is a :class:`RestoreError`: the program would write into a file that is not its own.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import socket
import stat
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import RestoreError, Unpicklable
from ckpt.image.files import numbers, reopen
from ckpt.image.files.file_notes import FileNote, completed
from ckpt.image.frames import _frames
from ckpt.transport.records import NamedTuple
from ckpt.transport.wires import owned

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "Descriptors",
    "Survey",
    "baseline",
    "is_in_our_directories",
    "known",
    "is_opened_again",
    "note_baseline",
    "note_our_directory",
    "note_ours",
    "others",
    "our_files",
    "ours",
    "own_lengths",
    "reduce_descriptors",
    "redirected",
    "restore_descriptors",
    "stream_of",
    "survey",
    "unowned",
]

_IN_MEMORY = "/memfd:"
_WATCHES = "anon_inode:inotify"
_ALIKE = (os.devnull, "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that have no state: one that is opened again is the same."""
_TERMINALS = ("/dev/ptmx", "/dev/pts/ptmx")
_STREAMS = (0, 1, 2)
_MOST_LOST = 256  # bounds the placeholders: a library may open a new pipe after each restart
_NAMES = {0: "standard input", 1: "standard output", 2: "standard error"}
_FILES = ("file", "deleted")

_baseline: dict[int, tuple[int, int]] = {}  # descriptor -> device and inode of its file
_readable: list[int] = []
_outputs: dict[int, str] = {}  # paths of standard output and error
_our_directories: set[str] = set()


def note_baseline() -> None:
    """Record the descriptors that are open before the program begins or goes on: they do not belong to the program."""
    _baseline.clear()
    _readable.clear()
    _outputs.clear()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            fd = int(name)
            status = os.fstat(fd)
            _baseline[fd] = status.st_dev, status.st_ino
            is_file = stat.S_ISREG(status.st_mode)
            if is_file and fd in _STREAMS:
                _outputs[fd] = os.readlink(f"/proc/self/fd/{fd}")
            elif is_file or stat.S_ISDIR(status.st_mode):
                _readable.append(fd)
    _frames.keep_descriptors(_baseline, owned.live_numbers(), ours, others)


def note_ours(fd: int) -> None:
    """Record a regular file that ckpt itself has opened since :func:`note_baseline`."""
    _baseline[fd] = _identity(fd)
    _readable[:] = [*dict.fromkeys((*_readable, fd))]


def note_our_directory(directory: str) -> None:
    """Record a directory in which all files are ckpt's own."""
    _our_directories.add(directory.rstrip("/") + "/")


def is_in_our_directories(path: str) -> bool:
    return path.startswith(tuple(_our_directories))


def baseline() -> Collection[int]:
    """Descriptors that do not belong to the program. A number that has been closed and used for another file since
    :func:`note_baseline` is not among them.
    """
    return [fd for fd in _baseline if _is_ours(fd)]


def known() -> dict[int, tuple[int, int]]:
    """Device and inode of what descriptors referred to when they were recorded as none of the program's."""
    return _baseline


def our_files() -> tuple[int, ...]:
    """The descriptors of :func:`baseline` that are regular files or directories, without the standard streams."""
    return tuple(fd for fd in _readable if _is_ours(fd))


def ours(first: int, end: int) -> list[int]:
    """The descriptors of ckpt from `first` up to `end` (not included), without the standard streams."""
    numbers = [first] if end == first + 1 else _open(first, end)
    events = owned.live_numbers()
    return [fd for fd in numbers if fd not in _STREAMS and (fd in events or _is_kept(fd))]


def others(first: int, end: int) -> list[int]:
    """The open descriptors in this range that are not ckpt's."""
    own = set(ours(first, end))
    return [fd for fd in _open(first, end) if fd not in own]


def _open(first: int, end: int) -> Collection[int]:
    try:
        return [fd for fd in map(int, os.listdir("/proc/self/fd")) if first <= fd < end]
    except OSError:  # no descriptor is free
        return range(max(0, first), min(end, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def _is_kept(fd: int) -> bool:
    if fd in _baseline:
        return _is_ours(fd)
    try:
        found = socket.socket(fileno=fd)
    except OSError:  # it is no socket, or closed by now
        return False
    try:
        return _has_our_address(found)
    finally:
        found.detach()


def _has_our_address(found: socket.socket) -> bool:
    """Has one of the two sides an address of the port?"""
    for address_of in (found.getsockname, found.getpeername):
        with contextlib.suppress(OSError):
            address = address_of()
            if owned.has_name(address) if found.family == socket.AF_UNIX else owned.has_port(address):
                return True
    return False


def _is_ours(fd: int) -> bool:
    try:
        return _identity(fd) == _baseline[fd]
    except OSError:
        return False


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


# ---------------------------------------------------------------------- standard streams


def redirected(notes: Mapping[int, FileNote]) -> list[int]:
    """Those of the numbers 0, 1 and 2 under which the program has put another file (``os.dup2``); 0, too, if standard input
    has lost its name, or another file has got that: it cannot be opened again."""
    return [
        fd
        for fd in _STREAMS
        if fd in notes
        and fd in _baseline
        and (notes[fd].identity[:2] != _baseline[fd] or (fd == 0 and notes[fd].kind == "deleted"))
    ]


def own_lengths() -> dict[int, int]:
    """In the parent: lengths in bytes of the rank's own output and error files, by number (1, 2), where the program has put
    another file under that number.
    """
    found: dict[int, int] = {}
    for fd in (1, 2):
        if fd in _outputs and not _is_ours(fd):
            with contextlib.suppress(OSError):
                found[fd] = os.stat(_outputs[fd]).st_size
    return found


def stream_of(fd: int, note: FileNote) -> int | None:
    """1 or 2 for a descriptor through which the program appends to the file of the rank's own output or error; else None."""
    if note.kind != "file" or not note.flags & os.O_APPEND:
        return None
    return next((own for own in (1, 2) if own in _outputs and note.identity[:2] == _baseline[own]), None)


# ---------------------------------------------------------------------- in the child


class Survey(NamedTuple):
    """``numbers``: all descriptors of the program. ``lost``: those that refer to a pipe, a socket or the like: not saved."""

    numbers: list[int]
    lost: list[int]


def survey(notes: Mapping[int, FileNote]) -> Survey:
    """The program's descriptors. Must run before the forked child gives the parent's pipes and sockets up
    (:func:`ckpt.image.files.file_notes.give_up_descriptors`). Raises Unpicklable: a pseudo-terminal or inotify is
    among them.
    """
    own = set(baseline())
    found: list[int] = []
    lost: list[int] = []
    lost_before: list[int] = []
    for fd, incomplete in notes.items():
        if fd in own or fd in _STREAMS:
            continue
        try:
            note = completed(fd, incomplete)
            if numbers.is_placeholder(note.path, note.flags):
                lost_before.append(fd)
            elif note.path.startswith(_IN_MEMORY) or _cannot_be_reopened(fd, note):
                lost.append(fd)
            elif note.kind in (*_FILES, "directory") or note.path in _ALIKE:
                found.append(fd)
        except OSError:
            continue  # the descriptor has been closed
    lost += lost_before[: max(0, _MOST_LOST - len(lost))]
    return Survey(sorted({*found, *lost}), lost)


def _cannot_be_reopened(fd: int, note: FileNote) -> bool:
    """Does the descriptor belong to the program, and cannot be opened again?"""
    if note.kind in (*_FILES, "directory"):
        return False
    if note.kind == "device":
        if note.path in _TERMINALS:
            raise Unpicklable(
                f"descriptor {fd}",
                "a pseudo-terminal (os.openpty, pty) is open: a restart cannot make it again; close it before a checkpoint",
            )
        return note.path not in _ALIKE
    if note.kind == "socket":
        return not _is_of_port(fd)
    if note.path == _WATCHES:
        raise Unpicklable(
            f"descriptor {fd}",
            "files are watched by inotify: a restart cannot make the watches again, and who waits for changes would hear of "
            "none; end that before a checkpoint, or look at the files every now and then (a PollingObserver, say)",
        )
    if note.path in ("anon_inode:[eventpoll]", "anon_inode:[eventfd]"):
        return fd not in owned.numbers()
    return note.kind in ("pipe", "special file")


def _is_of_port(fd: int) -> bool:
    """Is the descriptor one of the Unix sockets of the port? One side of each has a name in the port's directory."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        return connection.family == socket.AF_UNIX and _has_our_address(connection)


def unowned(notes: Mapping[int, FileNote], known: Collection[int], owned: Collection[object]) -> list[int]:
    """Descriptors that no file object owns. ``known``: descriptors of the file objects in the image. ``owned``: files of
    libraries, each by descriptor or by (device, inode). Raises Unpicklable for a descriptor that only a library in C can
    have opened.
    """
    own = set(baseline())
    found = [
        fd
        for fd, note in notes.items()
        if fd not in own
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
        try:
            note = completed(fd, note)
        except OSError:  # an object that nobody needs any more has closed it meanwhile
            return False
    return is_opened_again(note.kind, note.path, note.flags)


def is_opened_again(kind: str, path: str, flags: int) -> bool:
    """Is a descriptor that no object holds there again after a restart? ``kind``: of a :class:`FileNote`."""
    if kind == "device":
        return path in _ALIKE and not flags & os.O_PATH
    return kind in (*_FILES, "directory") and not path.startswith(_IN_MEMORY)


def _refuse_foreign(fd: int, notes: Mapping[int, FileNote]) -> None:
    note = notes[fd]
    is_written = note.kind in _FILES and note.flags & os.O_ACCMODE != os.O_RDONLY
    if not is_written or note.flags & os.O_CLOEXEC or note.first != fd or stream_of(fd, note):
        return
    if any(other.first == fd and number != fd for number, other in notes.items()):
        return  # os.dup2 makes inheritable descriptors too
    raise Unpicklable(
        f"descriptor {fd}",
        f"the file {note.path!r} is open for writing, and no object of the program that can be saved has "
        "opened it: a library in C has, which would not have it after a restart. Close it before the checkpoint, in an "
        "on_checkpoint hook if need be, and open it again in on_restart; or, if the program has opened it itself, leave it "
        "non-inheritable (os.set_inheritable(fd, False))",
    )


class Descriptors:
    """A placeholder in the pickle stream: its reducer saves the descriptors that no file object owns.

    ``saver``: a :class:`ckpt.image.files.open_files.FileSaver`.
    """

    def __init__(self, saver: Any) -> None:
        self.saver = saver


def reduce_descriptors(pickler: Saver, obj: Descriptors) -> Any:
    return list, (obj.saver.raw_descriptors(pickler.owned),)


def name_of(fd: int) -> str:
    return _NAMES[fd]


# ---------------------------------------------------------------------- called while loading


def restore_descriptors(saved: list[reopen.SavedFile]) -> None:
    """Open the files again under their numbers. Raises RestoreError: a number is in use."""
    for file in saved:
        fd = reopen.put(file)
        if fd != file.fd:
            os.close(fd)
            raise RestoreError(
                f"descriptor {file.fd} of the open file {file.path!r} is in use in this process; "
                "use file objects (open(), os.fdopen()), which need no number of their own"
            )
