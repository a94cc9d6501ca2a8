"""Tells the undo log of a process what the process is about to do with files.

Python's audit events (PEP 578) say what is about to happen, before it happens; of what compiled libraries are about to do,
``_watch`` tells in the same words (interpose.c). Each event becomes an :class:`~ckpt.undo.recorder.Operation` on canonical
names: absolute, through no symbolic link. What child processes do is not seen here.

    start(epoch)   the program begins, or goes on after a restart
    make_ready()   a checkpoint is near: what the next interval needs is made
    cut(epoch)     a checkpoint is taken: an interval ends, the next one begins
    close_former() the program has gone on: the log of the interval that has ended is closed
    stop()         nothing is told any more

Left alone: what lies in the job directory and in other directories of ckpt, in /proc, /sys and /dev, in directories
``__pycache__``, and what is no regular file, directory or symbolic link.

Most operations need no record, or the name of a new file only: those are settled by fast_path.c, for paths in directories
that have been met before.

After a change of the root directory nothing is recorded: the log says that.

An operation that a signal handler or a finalizer begins while another one is being recorded cannot be recorded: the log says
that it is not covered. A forked process of the program is not watched.

Not here: which before-images an operation needs (:mod:`ckpt.undo.recorder`), how they are kept (:mod:`ckpt.undo.keeping`).

This module is long because an interval may begin, end or go on while any event is handled, so both are in one place.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ckpt.transport.records import NamedTuple
from ckpt.undo import _watch
from ckpt.undo.keeping import Keeper, directory_of, look
from ckpt.undo.operations import (
    SQLITE,
    canonical_name,
    is_of_a_directory,
    is_shared_mapping,
    operations_of,
    place_of,
)
from ckpt.undo.recorder import OpenFile, Operation, Recorder
from ckpt.undo.records import MARGIN_NS, FileId, LastChange, Uncovered
from ckpt.undo.sealing import Told, last_changes, seal
from ckpt.undo.shared import LOCAL, Shared

__all__ = ["FileWatch"]

_CACHE = "__pycache__"
_ELSEWHERE = "the program has changed its root directory (chroot)"
_PROCESSES = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.forkpty")
_EXTENDED = ("os.setxattr", "os.removexattr")
_MOST_DIRECTORIES = 1001  # the controller watches one less, and says so
_MOST_PROCESSES = 100
_COMMAND_CHARS = 80
_LOOKED_AT_CUT = 16
_HERE = os.path.dirname(__file__)
_PLAIN, _NEW, _LEFT = 0, 1, 2  # standings of a directory in fast_path.c


class _Ready(NamedTuple):
    """The next interval, made before it begins, perhaps of this epoch."""

    keeper: Keeper
    recorder: Recorder
    epoch: int


class _Interval(NamedTuple):
    """An interval, the present one or the one that has ended with the last cut, which goes on if that was in vain."""

    keeper: Keeper
    recorder: Recorder
    epoch: int
    databases: set[str]
    ends: list[tuple[int, int, int]]  # of files that were open at their end: device, inode, length


class FileWatch:
    """The undo log of this process. ``job``: the job directory. ``limit_bytes``: for all copies that the job
    of so many ``ranks`` keeps.

    ``on_uncovered``: called at once with the epoch and with what a restart could not put back. ``covers``: are changes of
    this canonical path recorded? None: of all paths. ``divides``: may some names in this directory be covered,
    and some not? ``left_alone``: directories in which they are not. ``on_log``: called with the descriptor of each log.
    ``on_directory``: called once for each directory in which this process is about to change something, or to start a
    process. ``on_process``: once for each place (``file:line function``) where the program starts a process, with the name
    of what is started.
    ``shared``: where ranks are on several hosts, the file systems that all of them share. What is changed on others is
    named, the first time in an interval for each. None: ranks are on one host. ``lock``: a change that needs more than the
    fast path is recorded under it before it begins.
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
        divides: Callable[[str], bool] = lambda directory: True,
        left_alone: Iterable[str] = (),
        on_log: Callable[[int], None] = lambda fd: None,
        on_directory: Callable[[str], None] = lambda directory: None,
        on_process: Callable[[str, str], None] = lambda command, where: None,
        on_mapped: Callable[[int], None] = lambda fd: None,
        shared: Shared | None = None,
    ) -> None:
        self._shared = shared
        self._named: set[str] = set()  # file systems of this host alone: named in this interval
        self._on_directory, self._on_process, self._on_mapped = on_directory, on_process, on_mapped
        self._directories: set[str] = set()
        self._processes: set[str] = set()
        self._job, self._key = os.path.realpath(job), key
        self._rank, self._incarnation = rank, incarnation
        self._limit_bytes, self._ranks = limit_bytes, ranks
        self._on_uncovered = on_uncovered
        self._covers, self._divides = covers, divides
        self._on_log = on_log
        self._is_recording = False
        self._cut_later: int | None = None
        self._owed = ""  # what has interrupted the recording of an operation, until the log has it
        self._cutting = 0  # the thread that takes a checkpoint
        self._nested: list[Uncovered] = []  # told already; not yet in the log, which is just being written
        self._recorder = self._new_recorder()
        self._ready: _Ready | None = None
        self._interval_before: _Interval | None = None
        self._told = Told()
        self._cut_ns = 0  # when the last image was taken
        self._last_changes: list[LastChange] = []  # before that
        self._fast_path = _watch.FastPath()
        self._keeper: Keeper | None = None
        self._epoch = 0
        self._committed_ns = time.time_ns()  # when the newest committed line was known to be so
        self._databases: set[str] = set()
        self._ends: list[tuple[int, int, int]] = []  # see _Interval
        self._extended: set[FileId] = set()  # whose extended attributes have been named in this interval
        self.lock = threading.RLock()
        self._pid = os.getpid()
        self._root, self._has_left_root = _root(), False
        self._left_alone = (*_watch.LEFT_ALONE, self._job, *map(os.path.realpath, left_alone))
        self.left_alone = tuple(map(os.fsencode, self._left_alone))
        """The directories of which no file goes back."""

    def start(self, epoch: int, open_files: Iterable[OpenFile | Uncovered] = ()) -> None:
        """The program begins, or goes on after a restart from this epoch (0: from its start)."""
        self.cut(epoch, open_files)
        _watch.install(self._on_event, self._fast_path)

    def keep(self, patterns: Sequence[str], covers: Callable[[str], bool]) -> None:
        """Changes of the files that match stay. ``patterns``: absolute ones; ``covers``: from now on."""
        with self.lock:
            self._covers = covers
            self._fast_path.forget()
            if self._keeper is not None:
                self._tell(self._keeper.keep(patterns))

    @property
    def has_log(self) -> bool:
        """Is the log of the present interval open?"""
        return self._keeper is not None and self._keeper.end.fd >= 0

    @property
    def records(self) -> int:
        """The number of records in the present interval."""
        return self._keeper.end.records if self._keeper is not None else 0

    def look_at_changes(self) -> None:
        """An image of the last :meth:`cut` is about to be written, perhaps by a child: look at what was changed before, but
        for the last few paths, which :meth:`cut` has looked at. Other ranks go on to change the same files."""
        before = self._interval_before
        if before is not None and self._ranks > 1:
            self._last_changes += last_changes(before.recorder.changes, self._cut_ns, _LOOKED_AT_CUT)

    def seal(self) -> dict[str, Any] | None:
        """An image of the last :meth:`cut` is written, perhaps by a child: see :mod:`ckpt.undo.sealing`. None: there was no
        cut."""
        before, changes, self._last_changes = self._interval_before, self._last_changes, []
        return None if before is None else seal(before.keeper, self._told, changes)

    def stop(self) -> None:
        """Nothing is told any more."""
        _watch.install(None, None)
        _watch.set_ends([])

    def cut(self, epoch: int, open_files: Iterable[OpenFile | Uncovered]) -> None:
        """A checkpoint of this epoch is taken; the program stands still. ``open_files``: those it has open for writing, or
        those of them that cannot be recorded."""
        files = [file for file in open_files if not self.is_unwanted(file.path)]
        with self.lock:
            if self._is_recording:
                # The round has been given up meanwhile, so there is no image of this moment.
                self._cut_later = epoch
                return
            if self._keeper is not None and epoch == self._epoch:
                return  # the round was aborted while the image was written here
            self._cutting = threading.get_ident()
            self._fast_path.forget()
            try:
                self._cut(epoch, files)
                self._log_nested()
            finally:
                self._cutting = 0

    @property
    def has_former(self) -> bool:
        """Is the log still open of the interval that has ended with the last :meth:`cut`?"""
        return self._interval_before is not None and self._interval_before.keeper.end.fd >= 0

    def close_former(self) -> None:
        """Close it: while the program stood still, there was no time for that. Nothing happens while another thread records
        a change, so that nobody waits for the program here."""
        before = self._interval_before
        if before is None or not self.has_former or not self.lock.acquire(blocking=False):
            return
        cutting, self._cutting = self._cutting, threading.get_ident()
        try:
            self._tell(before.keeper.close(), before.epoch)
        finally:
            self._cutting = cutting
            self.lock.release()

    def uncut(self, epoch: int) -> None:
        """No image was taken at the last :meth:`cut`, and the program still stands still: the interval before goes on."""
        with self.lock:
            if self._cut_later == epoch:
                self._cut_later = None
            if epoch != self._epoch:
                self.close_former()
            before, self._interval_before = self._interval_before, None
            if before is None or epoch != self._epoch:
                return
            self._cutting = threading.get_ident()
            self._fast_path.forget()
            try:
                self._uncut(before)
                self._log_nested()
            finally:
                self._cutting = 0

    def committed(self, epoch: int) -> None:
        """The line of this epoch is committed: all ranks have their images of it. Called like :meth:`aborted`."""
        self._committed_ns = time.time_ns()
        if epoch == self._epoch:
            self._settle()

    def aborted(self, epoch: int) -> None:
        """There will be no line of this epoch: the one before counts, which has long been whole. Called while no :meth:`cut`
        is under way; an event may be: this takes no lock, so that nobody waits for the program here."""
        if epoch == self._epoch:
            self._settle()

    def _settle(self) -> None:
        self._fast_path.settle(self._recorder.settle(self._committed_ns))

    def _uncut(self, before: _Interval) -> None:
        given_up = self._keeper
        assert given_up is not None
        changed = given_up.changed()  # by harmless threads
        self._tell(given_up.discard())
        self._go_on_with(before)
        for path in changed:
            self._cannot(path, "changed by a thread while a checkpoint was tried in vain")

    def _present(self) -> _Interval:
        assert self._keeper is not None
        return _Interval(self._keeper, self._recorder, self._epoch, self._databases, self._ends)

    def _go_on_with(self, interval: _Interval) -> None:
        """It has not ended: it is the present one again."""
        self._keeper, self._recorder, self._epoch, self._databases, self._ends = interval
        interval.keeper.has_ended = False
        _watch.set_ends(interval.ends)
        self._fast_path.begin(interval.keeper.end, *interval.recorder.tables())

    def _cut(self, epoch: int, files: list[OpenFile | Uncovered]) -> None:
        # All ranks begin at one line, which is whole.
        is_line_whole = self._keeper is None or self._ranks == 1
        if not is_line_whole:  # other ranks go on to append to these
            self._cut_ns = time.time_ns()
            self._last_changes = last_changes(self._recorder.changes, self._cut_ns, 0, _LOOKED_AT_CUT)
        if self._keeper is not None:
            self._say_owed()
            self.close_former()
            self._tell(self._keeper.write_last_records())
            self._interval_before = self._present()
        ready, self._ready = self._ready or self._interval(epoch), None
        self._epoch, self._keeper, self._recorder = epoch, ready.keeper, ready.recorder
        if ready.epoch != epoch:
            self._keeper.place(self._directory_of(epoch))
        if self._is_elsewhere():
            self._tell(self._keeper.lose(_ELSEWHERE))
        self._named.clear()
        self._extended.clear()
        self._ends = [
            (*file.inode, file.status.nbytes) for file in files if isinstance(file, OpenFile) and file.inode
        ]
        _watch.set_ends(self._ends)
        if files:
            self._begin_with(files, is_line_whole=is_line_whole)
        else:
            self._keeper.begin(is_line_whole=is_line_whole)
            self._databases = set()
        self._fast_path.begin(self._keeper.end, *self._recorder.tables())

    def _begin_with(self, files: list[OpenFile | Uncovered], *, is_line_whole: bool) -> None:
        """The program has these files open for writing."""
        assert self._keeper is not None
        shared = [file for file in files if not self._local_to(file.path)]
        recorded = [file for file in shared if isinstance(file, OpenFile)]
        self._tell(self._keeper.begin(recorded, is_line_whole=is_line_whole))
        for each in files:
            self._name_local(each.path)
        for each in shared:
            if isinstance(each, Uncovered):
                self._cannot(each.path, each.reason)
        self._databases = self._databases & {file.path for file in recorded}
        for path in self._databases:
            self._record(Operation("rewrite", path + each) for each in SQLITE[1:])

    def make_ready(self) -> None:
        """A checkpoint is near, perhaps of the next epoch."""
        if self._ready is None:
            self._ready = self._interval(self._epoch + 1)

    def rehearse(self) -> None:
        """Begin an interval, and take that back at once, where nothing has to be written for it."""
        self.make_ready()
        with self.lock:
            if self._keeper is None or self._is_recording or self._shared is not None:
                return
            if self._keeper.has_last_records or self._owed or self._nested or self._is_elsewhere():
                return
            self.close_former()
            self._cutting = threading.get_ident()
            self._fast_path.forget()
            present, former, ready = self._present(), self._interval_before, self._ready
            try:
                self._ready = self._interval(self._epoch)
                self._cut(self._epoch, [])
            finally:
                self._go_on_with(present)
                self._interval_before, self._ready = former, ready
                self._cutting = 0

    def _interval(self, epoch: int) -> _Ready:
        recorder = self._new_recorder()
        keeper = Keeper(
            self._directory_of(epoch),
            self._key,
            recorder,
            limit_bytes=self._limit_bytes,
            ranks=self._ranks,
            covers=lambda path: not self.is_left_alone(path),
            on_log=self._on_log,
            host="" if self._shared is None else self._shared.host,
        )
        return _Ready(keeper, recorder, epoch)

    def _directory_of(self, epoch: int) -> str:
        return directory_of(self._job, epoch, self._incarnation, self._rank)

    def _new_recorder(self) -> Recorder:
        return Recorder() if self._shared is None else Recorder(MARGIN_NS)

    def _local_to(self, path: str) -> str:
        return "" if self._shared is None else self._shared.local_to(path)

    def _name_local(self, path: str) -> None:
        """Say that a change of this path cannot be undone, if it is on a file system of this host alone."""
        at = self._local_to(path)
        if at and at not in self._named:
            assert self._shared is not None
            self._named.add(at)
            host = self._shared.host
            reason = f"{LOCAL} {host}, like all below {at}: nothing that is changed there is put back"
            self._cannot(path, reason)

    # ------------------------------------------------------------------ events

    def _on_event(self, event: str, arguments: tuple[Any, ...], is_nested: bool) -> None:
        if os.getpid() != self._pid:
            return
        if event == "missed":
            self._on_missed(*arguments)
            return
        if event in _PROCESSES:
            self._on_start(arguments)
            return
        if event == "mmap.__new__" and is_shared_mapping(*arguments[:3]):
            self._on_mapped(arguments[0])
        if is_nested or self._cutting == threading.get_ident():
            self._on_nested(event, arguments)
            return
        with self.lock:
            self._is_recording = True
            try:
                self._say_owed()
                if self._is_elsewhere():
                    return
                operations = operations_of(event, arguments)
                if any(map(is_of_a_directory, operations)):
                    self._fast_path.forget()
                if event == "sqlite3.connect":
                    self._databases.update(operation.path for operation in operations[:1])
                self._record(operations)
                if event in _EXTENDED:
                    self._name_extended(arguments[1], operations)
                self._log_nested()
                if event == "open":
                    self._note(arguments[0], operations)
                elif event == "os.remove" and arguments[1] != -1:  # shutil.rmtree
                    self._note(operations[0].path if operations else None, operations)
            except BaseException as failure:
                self._interrupted(event, failure)
            finally:
                self._is_recording = False
            if self._cut_later is not None:
                epoch, self._cut_later = self._cut_later, None
                self.cut(epoch, ())

    def _is_elsewhere(self) -> bool:
        """Has the program changed its root directory? Then paths are other ones, that of the job directory, too."""
        if not self._has_left_root and _root() != self._root:
            self._has_left_root = True
            self._fast_path.forget()
            assert self._keeper is not None
            self._tell(self._keeper.lose(_ELSEWHERE))
        return self._has_left_root

    def _record(self, operations: Iterable[Operation]) -> None:
        assert self._keeper is not None
        for operation in operations:
            for path in filter(None, (operation.path, operation.target)):
                if not self.is_unwanted(path):
                    self._name_local(path)
            alone = self.is_left_alone(operation.path)
            if not alone or (operation.target and not self.is_left_alone(operation.target)):
                self._tell(self._keeper.before(operation))
                self._tell_directory(os.path.dirname(operation.target or operation.path))

    def _tell_directory(self, directory: str) -> None:
        if directory in self._directories or len(self._directories) >= _MOST_DIRECTORIES:
            return
        if self._recorder.standing(directory) != "new":  # else what is in it goes with it
            self._directories.add(directory)
            self._on_directory(directory)

    def _name_extended(self, attribute: Any, operations: list[Operation]) -> None:
        """Extended attributes are not recorded. Those of the system come with copies of files (`shutil.copystat`)."""
        for path in [each.path for each in operations if not self.is_left_alone(each.path)]:
            status = look(path)
            is_ours = not os.fsdecode(attribute).startswith("security.")
            if status is None or not is_ours or self._recorder.is_new(path, status):
                continue
            if status.file not in self._extended:
                self._extended.add(status.file)
                self._cannot(path, "its extended attributes have been changed")

    def _on_start(self, arguments: tuple[Any, ...]) -> None:
        package, where = place_of(sys._getframe(2))
        if package == "ckpt":
            return
        self._tell_where_it_works(arguments)
        if where and where not in self._processes and len(self._processes) < _MOST_PROCESSES:
            self._processes.add(where)
            self._on_process(_command(arguments), where)

    def _tell_where_it_works(self, arguments: tuple[Any, ...]) -> None:
        """A process that is started changes files where it works, perhaps, and this rank does not."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            directory = os.path.realpath(os.fsdecode(_directory_given(arguments) or os.getcwd()))
            is_known = directory in self._directories or len(self._directories) >= _MOST_DIRECTORIES
            if not is_known and not self.is_left_alone(os.path.join(directory, "-")):
                self._directories.add(directory)
                self._on_directory(directory)

    def _note(self, path: Any, operations: list[Operation]) -> None:
        """The fast path may settle what comes next in the directory of this path."""
        if type(path) is not str or not operations or self._shared is not None:
            return  # on a file system of several hosts a path may lead elsewhere at any time
        directory, name = os.path.split(operations[0].path)
        if name != os.path.basename(path):
            return  # a symbolic link
        if self._covers is not None and self._divides(directory):
            return
        if self.is_left_alone(operations[0].path):
            standing = _LEFT if self.is_left_alone(f"{directory}/-") else None
        else:
            standing = {"plain": _PLAIN, "new": _NEW}.get(self._recorder.standing(directory))
        if standing is not None:
            above = os.path.dirname(path)
            # The directory before an inner ".." may become a link; the working directory has none in its name.
            has_links = (
                "/.." in above.lstrip("./") or os.path.normpath(os.path.join(os.getcwd(), above)) != directory
            )
            is_unsteady = has_links or (standing == _NEW and self._ranks > 1)
            self._fast_path.note(path, directory, standing, is_unsteady)

    def _on_nested(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The callback's own operations are in the job directory; others cannot be recorded now."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._fast_path.forget()
            for operation in operations_of(event, arguments):
                if not self.is_left_alone(operation.path):
                    reason = "changed by a signal handler or finalizer while a change was recorded"
                    self._nested.append(Uncovered(operation.path, reason, 0))
                    self._tell(self._nested[-1:])

    def _log_nested(self) -> None:
        assert self._keeper is not None
        while self._nested:
            each = self._nested.pop()
            self._keeper.uncovered(each.path, each.reason)

    def _on_missed(self, path: bytes, library: str) -> None:
        """A thread without the GIL has changed something, and did not get it in time, so nothing could be kept before."""
        name = canonical_name(path)
        if name and not self.is_left_alone(name):
            with self.lock:
                self._cannot(name, f"changed by a thread of a compiled library ({library})")

    def _interrupted(self, event: str, failure: BaseException) -> None:
        """Recording has failed. An exception of the program's own signal handler is the program's."""
        self._owed = f"a change ({event}) could not be recorded: {type(failure).__name__}: {failure}"
        self._say_owed()
        if _is_of_the_program(failure):
            raise failure

    def _say_owed(self) -> None:
        self._log_nested()
        if self._owed:
            self._cannot("", self._owed)
            self._owed = ""

    def _cannot(self, path: str, reason: str) -> None:
        assert self._keeper is not None
        self._tell(self._keeper.uncovered(path, reason))

    def _tell(self, uncovered: list[Uncovered], epoch: int | None = None) -> None:
        """``epoch``: of the interval, if it is not the present one."""
        for each in uncovered:
            of_epoch = self._epoch if epoch is None else epoch
            self._told.add(of_epoch, each)
            self._on_uncovered(of_epoch, each)

    def is_left_alone(self, path: str) -> bool:
        """Is the path none of the files that go back?"""
        return self.is_unwanted(path) or bool(self._local_to(path))

    def is_unwanted(self, path: str) -> bool:
        """Is the path none of the files that are to go back?"""
        directory = os.path.dirname(path)
        return (
            directory.endswith("/" + _CACHE)
            or any(path == each or path.startswith(each + "/") for each in self._left_alone)
            or (self._covers is not None and not self._covers(path))
        )


def _directory_given(arguments: tuple[Any, ...]) -> Any:
    """The directory in which a process is started; None: in this one's. Only `subprocess.Popen` has four arguments."""
    return arguments[2] if len(arguments) == 4 else None


def _command(arguments: tuple[Any, ...]) -> str:
    """The program that is started; "": a copy of this process."""
    given = arguments[0] if arguments else ""
    with contextlib.suppress(TypeError):
        return os.path.basename(os.fsdecode(given))[:_COMMAND_CHARS]
    return ""


def _root() -> tuple[int, int]:
    found = os.stat("/")
    return found.st_dev, found.st_ino


def _is_of_the_program(failure: BaseException) -> bool:
    """Has a frame outside of this room raised it?"""
    at, last = failure.__traceback__, ""
    while at is not None:
        last, at = at.tb_frame.f_code.co_filename, at.tb_next
    return not last.startswith((_HERE, os.path.dirname(os.__file__))) or not isinstance(failure, Exception)
