"""What a process is about to do with files, told to its undo log.

Python's audit events (PEP 578) say what is about to happen, before it happens. Each becomes an
:class:`~ckpt.undo.recorder.Operation` on canonical names: absolute, through no symbolic link. Some say nothing of the
descriptor that a path is relative to (``os.open(..., dir_fd=)``), and code in C changes files without any event: such
changes are not seen here.

    start(epoch)   the program begins, or goes on after a restart
    cut(epoch)     a checkpoint is taken: an interval ends, the next one begins
    stop()         nothing is told any more

Left alone: what lies in the job directory and in other directories of ours, in /proc, /sys and /dev, in directories
``__pycache__``, and what is no regular file, directory or symbolic link.

Most operations need no record, or the name of a new file only: those are settled by fast_path.c, for paths in directories
that have been met before.

An operation that a signal handler or a finalizer begins while another one is being recorded cannot be recorded: the log says
that it is not covered. A forked process of the program is not watched.

Not here: which before-images an operation needs (:mod:`ckpt.undo.recorder`), how they are kept (:mod:`ckpt.undo.keeping`).
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ckpt.undo import _watch
from ckpt.undo.keeping import Keeper, directory_of
from ckpt.undo.recorder import OpenFile, Operation, Recorder
from ckpt.undo.records import Uncovered

__all__ = ["FileWatch"]

_LEFT_ALONE = ("/proc", "/sys", "/dev")
_CACHE = "__pycache__"
_SQLITE = ("", "-journal", "-wal", "-shm")
_HERE = os.path.dirname(__file__)
_O_TMPFILE = os.O_TMPFILE & ~os.O_DIRECTORY
_PLAIN, _NEW, _LEFT = 0, 1, 2  # standings of a directory in fast_path.c


class FileWatch:
    """The undo log of this process. ``job``: the job directory. ``limit_bytes``: for all copies that the job
    of so many ``ranks`` keeps.

    ``on_uncovered``: called at once with the epoch and with what a restart could not put back. ``covers``: are changes of
    this canonical path recorded? None: of all paths. ``left_alone``: directories in which they are not. ``on_log``: called
    with the descriptor of each log.
    """

    def __init__(
        self,
        job: str,
        key: bytes,
        *,
        rank: int,
        incarnation: int,
        limit_bytes: int,
        ranks: int = 1,
        on_uncovered: Callable[[int, Uncovered], None],
        covers: Callable[[str], bool] | None = None,
        left_alone: Iterable[str] = (),
        on_log: Callable[[int], None] = lambda fd: None,
    ) -> None:
        self._job, self._key = os.path.realpath(job), key
        self._rank, self._incarnation = rank, incarnation
        self._limit_bytes, self._ranks = limit_bytes, ranks
        self._on_uncovered = on_uncovered
        self._covers = covers
        self._on_log = on_log
        self._is_recording = False
        self._cut_later: int | None = None
        self._owed = ""  # what has interrupted the recording of an operation, until the log has it
        self._recorder = Recorder()
        self._fast_path = _watch.FastPath()
        self._keeper: Keeper | None = None
        self._epoch = 0
        self._databases: set[str] = set()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._left_alone = (*_LEFT_ALONE, self._job, *map(os.path.realpath, left_alone))

    def start(self, epoch: int, open_files: Iterable[OpenFile] = ()) -> None:
        """The program begins, or goes on after a restart from this epoch (0: from its start)."""
        self.cut(epoch, open_files)
        _watch.install(self._on_event, self._fast_path)

    def keep(self, patterns: Sequence[str], covers: Callable[[str], bool]) -> None:
        """Changes of the files that match stay. ``patterns``: absolute ones; ``covers``: from now on."""
        with self._lock:
            self._covers = covers
            self._fast_path.forget()
            if self._keeper is not None:
                self._tell(self._keeper.keep(patterns))

    @property
    def records(self) -> int:
        """The number of records in the present interval."""
        return self._keeper.end.records if self._keeper is not None else 0

    def stop(self) -> None:
        """Nothing is told any more."""
        _watch.install(None, None)

    def cut(self, epoch: int, open_files: Iterable[OpenFile]) -> None:
        """A checkpoint of this epoch is taken; the program stands still. ``open_files``: those it has open for writing."""
        files = [file for file in open_files if not self._is_left_alone(file.path)]
        with self._lock:
            if (
                self._is_recording
            ):  # the round has been given up meanwhile, so there is no image of this moment
                self._cut_later = epoch
                return
            self._fast_path.forget()
            if self._keeper is not None:
                self._say_owed()
                self._keeper.close()
            self._epoch = epoch
            directory = directory_of(self._job, epoch, self._incarnation, self._rank)
            self._keeper = Keeper(
                directory,
                self._key,
                self._recorder,
                limit_bytes=self._limit_bytes,
                ranks=self._ranks,
                covers=lambda path: not self._is_left_alone(path),
                on_log=self._on_log,
            )
            self._tell(self._keeper.begin(files))
            self._databases &= {file.path for file in files}
            for path in self._databases:
                self._record(Operation("rewrite", path + each) for each in _SQLITE[1:])
            self._fast_path.begin(self._keeper.end, *self._recorder.tables())

    # ------------------------------------------------------------------ events

    def _on_event(self, event: str, arguments: tuple[Any, ...], is_nested: bool) -> None:
        if os.getpid() != self._pid:
            return
        if is_nested:
            self._on_nested(event, arguments)
            return
        with self._lock:
            self._is_recording = True
            try:
                self._say_owed()
                operations = self._operations(event, arguments)
                if any(map(_is_of_a_directory, operations)):
                    self._fast_path.forget()
                self._record(operations)
                if event == "open":
                    self._note(arguments[0], operations)
            except BaseException as failure:
                self._interrupted(event, failure)
            finally:
                self._is_recording = False
            if self._cut_later is not None:
                epoch, self._cut_later = self._cut_later, None
                self.cut(epoch, ())

    def _record(self, operations: Iterable[Operation]) -> None:
        assert self._keeper is not None
        for operation in operations:
            alone = self._is_left_alone(operation.path)
            if not alone or (operation.target and not self._is_left_alone(operation.target)):
                self._tell(self._keeper.before(operation))

    def _note(self, path: Any, operations: list[Operation]) -> None:
        """The fast path may settle what comes next in the directory of this path."""
        if type(path) is not str or not operations or self._covers is not None:
            return  # with patterns, files of one directory may differ
        directory, name = os.path.split(operations[0].path)
        if name != os.path.basename(path):
            return  # a symbolic link
        if self._is_left_alone(operations[0].path):
            standing = _LEFT if self._is_left_alone(f"{directory}/-") else None
        else:
            standing = {"plain": _PLAIN, "new": _NEW}.get(self._recorder.standing(directory))
        if standing is not None:
            above = os.path.dirname(path)
            has_links = os.path.join(os.getcwd(), above) != directory if above else os.getcwd() != directory
            self._fast_path.note(path, directory, standing, has_links)

    def _on_nested(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The callback's own operations are in the job directory; others cannot be recorded now."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._fast_path.forget()
            for operation in self._operations(event, arguments):
                if not self._is_left_alone(operation.path):
                    self._cannot(
                        operation.path, "changed by a signal handler or finalizer while a change was recorded"
                    )

    def _interrupted(self, event: str, failure: BaseException) -> None:
        """Recording has failed. An exception of the program's own signal handler is the program's."""
        self._owed = f"a change ({event}) could not be recorded: {type(failure).__name__}: {failure}"
        self._say_owed()
        if _is_of_the_program(failure):
            raise failure

    def _say_owed(self) -> None:
        if self._owed:
            self._cannot("", self._owed)
            self._owed = ""

    def _cannot(self, path: str, reason: str) -> None:
        assert self._keeper is not None
        self._tell(self._keeper.uncovered(path, reason))

    def _tell(self, uncovered: list[Uncovered]) -> None:
        for each in uncovered:
            self._on_uncovered(self._epoch, each)

    def _is_left_alone(self, path: str) -> bool:
        directory = os.path.dirname(path)
        return (
            directory.endswith("/" + _CACHE)
            or any(path == each or path.startswith(each + "/") for each in self._left_alone)
            or (self._covers is not None and not self._covers(path))
        )

    # ------------------------------------------------------------------ what an event says

    def _operations(self, event: str, arguments: tuple[Any, ...]) -> list[Operation]:
        match event, arguments:
            case "open", (path, _, flags):
                return _opened(path, flags)
            case "os.rename", (source, target, source_fd, target_fd):
                return _both("rename", _name(source, source_fd), _name(target, target_fd))
            case "os.remove" | "os.rmdir", (path, fd):
                return _one("remove", _name(path, fd))
            case "os.mkdir", (path, _, fd):
                return _one("directory", _name(path, fd))
            case "os.link", (source, target, source_fd, target_fd):
                return _both("link", _name(target, target_fd), _name(source, source_fd))
            case "os.symlink", (_, path, fd):
                return _one("link", _name(path, fd))
            case "os.truncate", (path, _):
                return _one("rewrite", _followed(path))
            case "os.chmod" | "os.chown", (path, *_, fd):
                return _one("attributes", _followed(path, fd))
            case "os.utime", (path, _, _, fd):
                return _one("attributes", _followed(path, fd))
            case "os.setxattr" | "os.removexattr", (path, *_):
                return _one("attributes", _followed(path))
            case "sqlite3.connect", (path, *_):
                return self._connected(path)
        return []

    def _connected(self, database: Any) -> list[Operation]:
        """SQLite opens the database later, and makes files beside it, without any event."""
        path = os.fsdecode(database)
        if path.startswith("file:"):
            path = path[5:].partition("?")[0].removeprefix("//")
        if path in ("", ":memory:"):
            return []
        name = _followed(path)
        if not name:
            return []
        self._databases.add(name)
        return [Operation("rewrite", name + each) for each in _SQLITE]


def _opened(path: Any, flags: int) -> list[Operation]:
    if isinstance(path, int) or flags & _O_TMPFILE == _O_TMPFILE:
        return []
    appends = flags & os.O_APPEND and not flags & os.O_TRUNC
    return _one("append" if appends else "rewrite", _followed(path))


def _is_of_a_directory(operation: Operation) -> bool:
    """Does the name of a directory change?"""
    return operation.kind == "directory" or (
        operation.kind in ("remove", "rename")
        and os.path.isdir(operation.path)
        and not os.path.islink(operation.path)
    )


def _one(kind: Any, path: str) -> list[Operation]:
    return [Operation(kind, path)] if path else []


def _both(kind: Any, path: str, target: str) -> list[Operation]:
    return [Operation(kind, path, target)] if path and target else []


def _name(path: Any, fd: int = -1) -> str:
    """The canonical name that the path refers to, a symbolic link itself; "": there is no such directory."""
    given = os.fsdecode(path)
    if fd >= 0 and not given.startswith("/"):
        given = f"/proc/self/fd/{fd}/{given}"
    while given.endswith("/") and given != "/":
        given = given[:-1]
    directory, base = os.path.split(given)
    if base in ("", ".", ".."):
        return os.path.realpath(given)
    found = _canonical(directory or ".")
    return os.path.join(found, base) if found else ""


def _followed(path: Any, fd: int = -1) -> str:
    """The canonical name of what the path leads to, symbolic links followed."""
    if isinstance(path, int):
        with contextlib.suppress(OSError):
            if (
                stat.S_IFMT(os.fstat(path).st_mode) in (stat.S_IFREG, stat.S_IFDIR)
                and os.fstat(path).st_nlink
            ):
                return os.readlink(f"/proc/self/fd/{path}")
        return ""
    name = _name(path, fd)
    if name and os.path.islink(name):
        return os.path.realpath(name)
    return name


def _canonical(directory: str) -> str:
    """The directory's absolute name without symbolic links; "": it does not exist."""
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _is_of_the_program(failure: BaseException) -> bool:
    """Has a frame outside of this room raised it?"""
    at, last = failure.__traceback__, ""
    while at is not None:
        last, at = at.tb_frame.f_code.co_filename, at.tb_next
    return not last.startswith((_HERE, os.path.dirname(os.__file__))) or not isinstance(failure, Exception)
