"""Before-images on disk: looks at files, keeps them, and writes the undo log of one rank and interval.

    JOB/undo/epoch-00000007-00002/rank-00003/     one interval: epoch of the checkpoint before it, incarnation, rank
        log                                       one line a record: MAC, space, JSON
        1, 2, 3, …                                hard links and copies; their numbers stand in the records

The directory is made with the first record: an interval without changes has none. A line is in the log before the change
that it is about begins, in one write(2): a process that is killed leaves whole lines. The MAC of a line covers the line
before, too, so no line can be left out or changed unseen; that of the first line covers which interval and rank it is, so a
log cannot stand in the place of another one.

A disk that is full never stops the program. Space for one more line is reserved in the log beforehand; if the log cannot
grow, this line says that nothing is covered from here on. Where not even that can be written (a quota on btrfs), the mode of
the log says it.

Not here: what needs to be kept (:mod:`ckpt.undo.recorder`), how contents are copied (:mod:`ckpt.undo.copying`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ckpt.undo import DIRECTORY, _status
from ckpt.undo._watch import LogEnd, mac
from ckpt.undo.allowance import Allowance
from ckpt.undo.copying import copy_file, tail_digest, write_all
from ckpt.undo.errors import LogDamaged
from ckpt.undo.logs import LOG, boot_id, line_key, mark_unmade, mark_unwritable, name_of, read_records
from ckpt.undo.recorder import Changes, Keep, OpenFile, Operation, Recorder
from ckpt.undo.records import (
    CLOCK_LIMIT_NS,
    Began,
    Binding,
    Content,
    Kept,
    Name,
    Record,
    Status,
    Uncovered,
    status_of,
    to_json,
)

__all__ = ["Keeper", "directory_of", "look"]

_RESERVED_BYTES = 4096
_RESERVED_AT_ONCE_BYTES = 1 << 16
_HIGH = 1000


def look(path: str) -> Binding:
    """What the path is bound to; a symbolic link is not followed. Raises OSError, but not for a path that does not exist."""
    found = _status.look(path)
    if found is None:
        return None
    target = os.readlink(path) if stat.S_ISLNK(found[3]) else ""
    return status_of(found, target)


def directory_of(job: str, epoch: int, incarnation: int, rank: int) -> str:
    """Where a rank keeps what belongs to an interval. ``job``: the job directory."""
    return os.path.join(job, DIRECTORY, f"epoch-{epoch:08d}-{incarnation:05d}", f"rank-{rank:05d}")


class Keeper:
    """The undo log of one interval on disk; the recorder's interval begins with it (:meth:`begin`).

    ``directory`` is made when there is something to keep. ``key``: of the job. ``limit_bytes``: for all copies that the job
    of so many ``ranks`` keeps; a change that would need more is recorded as uncovered. ``covers``: is there to be a record
    of this path? ``on_log``: called with the descriptor of the log when it is opened. ``looks``: says what :func:`look`
    says; None: that function. ``host``: of this rank, where ranks are on several; then the clock of the log's file system
    is compared with this host's. ``end``: where the log ends; the fast path writes lines, too. ``is_made``: there is a
    directory. ``has_ended``: what there is now is of the next interval.
    """

    def __init__(
        self,
        directory: str,
        key: bytes,
        recorder: Recorder,
        *,
        limit_bytes: int,
        ranks: int = 1,
        covers: Callable[[str], bool] = lambda path: True,
        on_log: Callable[[int], None] = lambda fd: None,
        host: str = "",
        looks: Callable[[str], Binding] | None = None,
    ) -> None:
        self._host, self._look, self._recorder = host, looks, recorder
        self.key_of_lines = line_key(key)
        self.end = LogEnd(self.key_of_lines, _RESERVED_BYTES)
        self._allowance = Allowance(os.path.dirname(directory), limit_bytes, ranks)
        self.place(directory)
        self._covers, self._on_log = covers, on_log
        self._is_leaving = False  # a name that is not covered is given to a file
        self._is_lost = False  # the log cannot be written any more
        self._off_ns = 0  # the clock of the log's file system
        self.is_made = self.has_ended = False
        self._begun = 0

    def place(self, directory: str) -> None:
        """Before the interval begins: it is kept in this directory."""
        self.directory = directory
        self.end.mac = name_of(directory)
        self._allowance.interval = os.path.dirname(directory)

    def begin(self, open_files: Sequence[OpenFile] = (), *, is_line_whole: bool = True) -> list[Uncovered]:
        """The interval begins. ``open_files``: what the program has open for writing. ``is_line_whole``: see
        :meth:`ckpt.undo.recorder.Recorder.begin`. Returns what cannot be undone."""
        uncovered = self._write(self._recorder.begin(time.time_ns(), open_files, is_line_whole=is_line_whole))
        self._begun = self.end.records
        return uncovered

    def changed(self) -> list[str]:
        """The paths that have changed since the interval began; "": some that are not known."""
        if self.end.records <= self._begun:
            return []
        try:
            records = list(read_records(self.directory, self.key_of_lines))[self._begun :]
        except (LogDamaged, OSError):
            return [""]
        return sorted({str(getattr(record, "path", "")) for record in records})

    @property
    def has_last_records(self) -> bool:
        """Is something to be written when the interval ends?"""
        return self.end.fd >= 0 and not self.has_ended and bool(self._recorder.paths())

    def write_last_records(self) -> list[Uncovered]:
        """The interval ends; its log is still open. Called again, it does nothing. Returns what cannot be undone."""
        has_last_records, self.has_ended = self.has_last_records, True
        if not has_last_records:
            return []
        try:
            seen = {path: look(path) for path in self._recorder.paths()}
        except OSError:  # the log does not say whether its last operation has happened
            return []
        return self._write(self._recorder.end(seen, time.time_ns()))

    def close(self) -> list[Uncovered]:
        """The interval ends, if it has not. Called again, it does nothing; a later record opens the log again. Returns what
        cannot be undone."""
        if self.end.fd < 0:
            return []
        uncovered = self.write_last_records()
        with contextlib.suppress(OSError):  # then the bytes count until the interval goes
            self._allowance.end()
        fd, self.end.fd = self.end.fd, -1
        try:
            os.close(fd)
        except OSError as failure:  # a network file system has failed to write what it had accepted
            uncovered += [Uncovered("", f"the undo log may not be whole: {failure.strerror}", time.time_ns())]
        return uncovered

    @property
    def changed_paths(self) -> set[str]:
        """See :meth:`ckpt.undo.recorder.Recorder.changed_paths`."""
        return self._recorder.changed_paths()

    def discard(self) -> list[Uncovered]:
        """There is no checkpoint at which this interval begins: remove what was kept. Returns what cannot be undone."""
        self.close()
        if not self.is_made:
            return []
        try:
            from shutil import rmtree  # imports the modules of three archive formats

            rmtree(self.directory)
        except OSError as failure:
            # The log must not be taken for that of a later checkpoint of this number.
            self._is_lost = False
            return self.lose(f"an undo log that is not wanted cannot be removed: {failure.strerror}")
        return []

    def uncovered(self, path: str, reason: str) -> list[Uncovered]:
        """A change that cannot be undone, and why."""
        return self._write([Keep(Uncovered(path, reason, time.time_ns()), path)])

    def lose(self, reason: str) -> list[Uncovered]:
        """Nothing can be recorded from here on."""
        lost = Uncovered("", reason, time.time_ns())
        if self.is_made:
            self._write([Keep(lost)])
        self._is_lost = True
        return [lost]

    def keep(self, patterns: Sequence[str]) -> list[Uncovered]:
        """Changes of the files that match stay: those that are recorded in this interval, too."""
        kept = [Keep(Kept(pattern, time.time_ns())) for pattern in patterns]
        return self._write(kept) if self.end.fd >= 0 else []

    def before(self, operation: Operation) -> list[Uncovered]:
        """The operation is about to begin: keep what it needs. Returns what cannot be undone."""
        try:
            seen = {path: (self._look or look)(path) for path in self._recorder.paths(operation)}
        except OSError as failure:
            return self._write(_unseen(filter(None, (operation.path, operation.target)), failure))
        keeps = self._recorder.before(operation, seen, time.time_ns(), threading.get_ident())
        return self._write_covered(operation, seen, keeps) if operation.target else self._write(keeps)

    def ahead(self, changes: Changes) -> list[Uncovered]:
        """See :meth:`ckpt.undo.recorder.Recorder.ahead`. Returns what cannot be undone."""
        paths = self._recorder.paths()
        try:
            seen = {path: (self._look or look)(path) for path in paths}
        except OSError as failure:
            return self._write(_unseen(paths, failure))
        return self._write(self._recorder.ahead(changes, seen, time.time_ns()))

    def _write_covered(
        self, operation: Operation, seen: Mapping[str, Binding], keeps: list[Keep]
    ) -> list[Uncovered]:
        """Of two names one may not be covered."""
        if not keeps and operation.kind != "rename":
            return []
        keeps = [keep for keep in keeps if not keep.path or self._covers(keep.path)]
        source, target = operation.path, operation.target
        self._is_leaving = not self._covers(target)
        if operation.kind == "rename" and self._is_leaving == self._covers(source):
            moving = seen[source]
            if moving is not None and moving.is_directory:
                reason = f"a directory is renamed from {source} to {target}, and one of both is not covered"
                path = source if self._is_leaving else target
                keeps.append(Keep(Uncovered(path, reason, time.time_ns()), path))
        try:
            return self._write(keeps)
        finally:
            self._is_leaving = False

    def _write(self, keeps: list[Keep]) -> list[Uncovered]:
        if not keeps or self._is_lost:
            return []
        uncovered: list[Uncovered] = []
        due = deque(keeps)
        try:
            self._open()
        except OSError as failure:
            self._is_lost = True
            with contextlib.suppress(OSError):  # then only the caller is told
                mark_unmade(self.directory)
            return [Uncovered("", f"the undo log cannot be made: {failure.strerror}", time.time_ns())]
        lines, last = bytearray(), self.end.mac
        if self._off_ns > CLOCK_LIMIT_NS:
            reason = f"the clock of host {self._host} and that of the file system differ by {self._off_ns / 1e9:.1f} s"
            due.append(Keep(Uncovered("", reason, time.time_ns())))
            self._off_ns = 0
        while due:
            keep = due.popleft()
            try:
                record = self._keep(keep)
            except _Unlinkable as failure:
                due.extendleft(reversed(self._recorder.unlinkable(keep, failure.status)))
                continue
            except _Rebound as failure:
                due.appendleft(self._recorder.rebound(keep, failure.binding, time.time_ns()))
                continue
            except OSError as failure:
                record = Uncovered(keep.path, failure.strerror or str(failure), time.time_ns())
            if isinstance(record, Uncovered):
                uncovered.append(record)
            last, line = self._line(last, record)
            lines += line
        return uncovered + self._append(lines, last)

    def _open(self) -> None:
        if self.end.fd >= 0:
            return
        flags = os.O_WRONLY | os.O_CLOEXEC
        if not self.is_made:
            os.makedirs(self.directory, mode=0o700)
            flags |= os.O_CREAT | os.O_EXCL
        self.is_made = True
        self.end.fd = _out_of_the_way(os.open(os.path.join(self.directory, LOG), flags, 0o600))
        self._on_log(self.end.fd)
        self._reserve(_RESERVED_BYTES)
        if not self.end.nbytes:
            first, line = self._line(self.end.mac, Began(boot_id(), time.time_ns(), self._host))
            write_all(self.end.fd, line, 0)
            self.end.mac, self.end.nbytes = first, len(line)
            if self._host:
                self._off_ns = abs(time.time_ns() - os.fstat(self.end.fd).st_mtime_ns)

    def _append(self, lines: bytes | bytearray, last: str) -> list[Uncovered]:
        """Write whole lines, or, where the disk is full, the one that says so. ``last``: the MAC of the last line."""
        try:
            self._cut()
            self._reserve(len(lines) + _RESERVED_BYTES)
            end = self.end
            end.is_torn = True
            write_all(end.fd, lines, end.nbytes)
            end.mac, end.nbytes = last, end.nbytes + len(lines)
            end.records += lines.count(b"\n")
            end.is_torn = False
            return []
        except OSError as failure:
            lost = Uncovered("", f"the undo log cannot be written: {failure.strerror}", time.time_ns())
        self._is_lost = True
        self.end.is_torn = True  # nobody else writes
        try:
            os.ftruncate(self.end.fd, self.end.nbytes)
            write_all(self.end.fd, self._line(self.end.mac, lost)[1], self.end.nbytes)
        except OSError:  # not even the space that had been reserved can be written
            with contextlib.suppress(OSError):  # then only the caller is told
                mark_unwritable(self.end.fd)
        return [lost]

    def _cut(self) -> None:
        """Remove lines of an operation that has not begun, since a signal handler of the program has raised."""
        if self.end.is_torn:
            os.ftruncate(self.end.fd, self.end.nbytes)
            self.end.reserved_bytes = 0
            self.end.is_torn = False

    def _reserve(self, nbytes: int) -> None:
        """Have space for so many more bytes. Raises OSError: the disk is full."""
        if self.end.nbytes + nbytes > self.end.reserved_bytes:
            size = self.end.nbytes + max(nbytes, _RESERVED_AT_ONCE_BYTES)
            _status.reserve(self.end.fd, size)
            self.end.reserved_bytes = size

    def _keep(self, keep: Keep) -> Record:
        record = keep.record
        if isinstance(record, Name) and record.kept:
            if self._is_leaving and record.binding is not None:
                raise _Unlinkable(record.binding)  # a link would be changed with the file that has left
            self._link(keep.path, record)
        if isinstance(record, Content):
            if record.copy:
                # Not otherwise: another process or thread may write by the same descriptor, whose offset is moved.
                fd = keep.open.fd if keep.open is not None and keep.open.is_locked else -1
                copied = copy_file(keep.path, self._path(record.copy), fd, self._allowance, record.start)
                if copied is None:
                    return Uncovered(keep.path, "the limit for copies of files is reached", record.time_ns)
                record = record._replace(digest=copied.digest, clone=copied.clone, copied_ns=time.time_ns())
            elif keep.open is None or not keep.open.is_locked:
                record = record._replace(tail=tail_digest(keep.path, record.status.nbytes))
        return record

    def _link(self, path: str, record: Name) -> None:
        """Make the hard link of the record. Raises _Rebound: another process has just bound the name to something else;
        _Unlinkable."""
        then, link = record.binding, self._path(record.kept)
        assert then is not None
        try:
            os.link(path, link, follow_symlinks=False)
        except OSError as failure:
            status = look(path)
            if status is None or status.file != then.file:
                raise _Rebound(status) from failure
            raise _Unlinkable(status) from failure
        try:
            status = look(link)
        except OSError as failure:  # to which file it is cannot be known
            raise _Unlinkable(then) from failure
        if status is None or status.file != then.file:
            with contextlib.suppress(OSError):  # no record has its number
                os.unlink(link)
            raise _Rebound(status)

    def _path(self, number: int) -> str:
        return f"{self.directory}{os.sep}{number}"

    def _line(self, before: str, record: Record | Began) -> tuple[str, bytes]:
        """MAC and line. ``before``: the MAC of the line before."""
        text = to_json(record)
        made = mac(self.key_of_lines, before, text)
        return made, b"%b %b\n" % (made.encode("ascii"), text)


class _Rebound(Exception):
    def __init__(self, binding: Binding) -> None:
        super().__init__()
        self.binding = binding


class _Unlinkable(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__()
        self.status = status


def _out_of_the_way(fd: int) -> int:
    """Give the open file a high number: a program may expect the lowest numbers for its own files, as without ckpt."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # the limit of the process is lower
        return fd
    os.close(fd)
    return high


def _unseen(paths: Iterable[str], failure: OSError) -> list[Keep]:
    return [Keep(Uncovered(each, failure.strerror or "", time.time_ns()), each) for each in paths]
