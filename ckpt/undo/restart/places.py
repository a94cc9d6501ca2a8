"""Reaches what a restart changes without following a symbolic link in any component of a path.

Since the checkpoint, whoever can write to a directory may have put a symbolic link in the place of what was there, and may
do so while the restart is at work. So a directory is opened from the root down, one component at a time; names are looked at
and changed relative to it; and a file is opened first, then compared, then changed by its descriptor. Paths may be longer
than PATH_MAX.

Not here: what is changed (:mod:`ckpt.undo.restart.putting_back`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator

from ckpt.transport.records import dataclass, field
from ckpt.undo import _status
from ckpt.undo.copying import copy_extents, copy_file, tail_digest_of
from ckpt.undo.errors import NotUndone
from ckpt.undo.recorder import Changes, Kind, Operation
from ckpt.undo.records import Binding, FileId, Status, renamed, status_of

__all__ = ["OpenedFile", "Places", "Recording", "look_at", "named"]

_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_REMEMBERED = 64
_BESIDE = ".ckpt-away-"


@dataclass(slots=True)
class Recording:
    """What is changed may be taken back. ``before``: called before each change, but for those before which ``ahead`` was
    called, with many at once. ``beside``: what was to be moved to another file system, by the path at which it lies
    meanwhile → where it is to go.
    """

    before: Callable[[Operation], None]
    ahead: Callable[[Changes], None]
    beside: dict[str, str] = field(default_factory=dict)


class Places:
    """Names by their absolute paths. Descriptors of some directories are kept; :meth:`close` closes them."""

    def __init__(self, recording: Recording | None = None) -> None:
        self._recording = recording
        self._told: set[str] = set()  # names of files, and free ones, that have been recorded ahead
        self._told_links: set[str] = set()  # names of files that get other names besides
        self._told_contents: set[FileId] = set()
        self._directories: dict[str, int] = {}

    def close(self) -> None:
        for fd in self._directories.values():
            os.close(fd)
        self._directories.clear()

    def look(self, path: str) -> Binding:
        """What the path is bound to; None, too, if it leads through a symbolic link. Raises other OSErrors."""
        try:
            fd, name = self._at(path)
        except OSError as failure:
            if failure.errno in _NOWHERE:
                return None
            raise
        return look_at(fd, name)

    def leads_through_link(self, directory: str) -> bool:
        """Is a component of the directory's path, or the directory itself, a symbolic link?"""
        try:
            self._directory(directory)
        except OSError as failure:
            return failure.errno == errno.ELOOP
        return False

    def make_file(self, path: str) -> OpenedFile:
        """A new, empty file, to be closed by its user (``with``)."""
        self._tell("rewrite", path)
        fd, name = self._at(path)
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=fd))
        return self.opened(path)

    def make_directory(self, path: str) -> None:
        self._tell("directory", path)
        fd, name = self._at(path)
        os.mkdir(name, 0o700, dir_fd=fd)

    def make_pipe(self, path: str) -> None:
        """A named pipe."""
        self._tell("link", path)
        fd, name = self._at(path)
        os.mkfifo(name, 0o600, dir_fd=fd)

    def make_symlink(self, target: str, path: str) -> None:
        self._tell("link", path)
        fd, name = self._at(path)
        os.symlink(target, name, dir_fd=fd)

    def link(self, source: str, path: str) -> None:
        """Another name for the file ``source``."""
        if source not in self._told_links or path not in self._told:
            self._tell("link", path, source)
        (source_fd, old), (fd, new) = self._at(source), self._at(path)
        os.link(old, new, src_dir_fd=source_fd, dst_dir_fd=fd, follow_symlinks=False)

    def rename(self, path: str, target: str) -> None:
        is_told = path in self._told and target in self._told
        if not is_told:
            self._tell("rename", path, target)
        (source_fd, old), (fd, new) = self._at(path), self._at(target)
        os.rename(old, new, src_dir_fd=source_fd, dst_dir_fd=fd)
        if not is_told:  # they may be names of directories
            self._forget(path)
            self._forget(target)
        if self._recording is not None and self._recording.beside:
            beside = self._recording.beside.items()
            self._recording.beside = {renamed(each, path, target): to for each, to in beside}

    def move_out(self, path: str, target: str) -> None:
        """Rename, or copy and remove where ``target``, which does not exist, is on another file system. Special files are
        removed only: they hold nothing. Where changes may be taken back, what cannot be renamed to there stays beside.
        """
        try:
            try:
                self.rename(path, target)
            except PermissionError:
                # For a directory that changes its parent, the right to write to it is needed
                with self.opened(path) as found:
                    if not found.status.is_directory or found.status.mode & stat.S_IRWXU == stat.S_IRWXU:
                        raise
                    found.change_mode(stat.S_IRWXU)
                self.rename(path, target)
        except OSError as failure:
            if failure.errno != errno.EXDEV:
                raise
            if self._recording is not None:  # it may go back, and is not copied twice for that
                beside = os.path.join(os.path.dirname(path), _BESIDE + os.path.basename(target))
                self.rename(path, beside)
                self._recording.beside[beside] = target
                return
            self._forget(path)
            (fd, name), (into, new) = self._at(path), self._at(target)
            _carry(fd, name, f"/proc/self/fd/{into}/{new}")

    def opened(self, path: str) -> OpenedFile:
        """The file or directory itself, to be closed by its user (``with``). Raises OSError."""
        fd, name = self._at(path)
        return _opened(fd, name, lambda kind, start: self._tell(kind, path, start=start), self._told_contents)

    def find(self, path: str) -> OpenedFile | None:
        """As :meth:`opened`; None where :meth:`look` finds nothing. Raises other OSErrors."""
        try:
            return self.opened(path)
        except OSError as failure:
            if failure.errno in _NOWHERE:
                return None
            raise

    @property
    def is_recorded(self) -> bool:
        """May what is changed be taken back?"""
        return self._recording is not None

    def record_ahead(self, changes: Changes) -> None:
        """Record these changes before the first of them. Nothing else changes these names and contents meanwhile."""
        assert self._recording is not None
        self._recording.ahead(changes)
        self._told.update(changes.names)
        self._told_links.update(changes.linked)
        self._told_contents.update(status.file for status in changes.written.values())

    def _tell(self, kind: Kind, path: str, target: str = "", start: int = 0) -> None:
        if self._recording is not None:
            self._recording.before(Operation(kind, path, target, start))

    def _at(self, path: str) -> tuple[int, str]:
        directory, _, name = path.rpartition(os.sep)
        return self._directory(directory or os.sep), name

    def _directory(self, path: str) -> int:
        fd = self._directories.pop(path, -1)
        if fd < 0:
            if len(self._directories) >= _REMEMBERED:
                os.close(self._directories.pop(next(iter(self._directories))))  # the one not used for longest
            fd = _status.open_directory(path)
        self._directories[path] = fd
        return fd

    def _forget(self, path: str) -> None:
        below = path + os.sep
        for each in [each for each in self._directories if each.startswith(below) or each == path]:
            os.close(self._directories.pop(each))


class OpenedFile:
    """A file or directory, whatever becomes of its name (O_PATH). ``told``: files whose contents have been recorded ahead.
    ``status``: when it was opened."""

    def __init__(self, fd: int, tell: Callable[[Kind, int], None], told: Collection[FileId]) -> None:
        self._fd, self._tell = fd, tell
        self._is_kept = False  # its contents, and with them its attributes
        status = look_at(fd)
        assert status is not None
        self.status: Status = status
        self._is_told = status.file in told

    def __enter__(self) -> OpenedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def overwrite(self, source: str, nbytes: int, start: int = 0) -> None:
        """Give the file the first bytes of another one. What is before the offset ``start`` stays."""
        if not self._is_told:
            self._tell("rewrite", 0)
        self._is_kept = True
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writing = self._open(os.O_WRONLY)
            try:
                copy_extents(reading, writing, nbytes, start)
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def truncate(self, nbytes: int) -> None:
        self._tell("cut", nbytes)
        self._is_kept = True
        with self.open(os.O_WRONLY) as fd:
            os.ftruncate(fd, nbytes)

    def tail_digest(self, nbytes: int) -> str:
        """See :func:`ckpt.undo.copying.tail_digest`; "": the file may not be read. Raises OSError."""
        with contextlib.suppress(PermissionError), self.open(os.O_RDONLY) as fd:
            return tail_digest_of(fd, nbytes)
        return ""

    def set_attributes(self, status: Status) -> list[str]:
        """Owner, mode and, of a file, the time of its contents. Returns those that this user may not change, as with a file
        of another user. Raises OSError."""
        if not self._is_kept:
            self._tell("attributes", 0)
        now = look_at(self._fd)
        assert now is not None
        refused = []
        if (now.user, now.group) != (status.user, status.group):
            try:
                os.chown(self._path, status.user, status.group)
            except PermissionError:
                refused.append("owner")
        if now.mode != status.mode:
            try:
                os.chmod(self._path, stat.S_IMODE(status.mode))
            except PermissionError:
                refused.append("mode")
        if now.is_file and now.mtime_ns != status.mtime_ns:
            try:
                os.utime(self._path, ns=(os.fstat(self._fd).st_atime_ns, status.mtime_ns))
            except PermissionError:
                refused.append("time")
        return refused

    def change_mode(self, mode: int) -> None:
        self._tell("attributes", 0)
        os.chmod(self._path, mode)

    @property
    def _path(self) -> str:
        return f"/proc/self/fd/{self._fd}"

    @contextlib.contextmanager
    def open(self, access: int) -> Iterator[int]:
        """A descriptor for reading or writing, within the block. Raises OSError."""
        fd = self._open(access)
        try:
            yield fd
        finally:
            os.close(fd)

    def _open(self, access: int) -> int:
        flags = access | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(self._path, flags)
        except PermissionError:  # the mode is put back with the other attributes
            self._tell("attributes", 0)
            os.chmod(self._path, 0o600)
            return os.open(self._path, flags)


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """An OSError becomes a NotUndone with the path."""
    try:
        yield
    except OSError as failure:
        raise NotUndone(failure.strerror or str(failure), path=path) from failure


def look_at(fd: int, name: str = "") -> Binding:
    """What the name is bound to in an open directory; "": what is open. Raises OSError."""
    found = _status.look_at(fd, name)
    if found is None:
        return None
    target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(found[3]) else ""
    return status_of(found, target)


def _opened(
    fd: int, name: str, tell: Callable[[Kind, int], None], told: Collection[FileId] = ()
) -> OpenedFile:
    return OpenedFile(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd), tell, told)


def _tell_nobody(_: Kind, __: int) -> None:
    """Where files are carried to another file system, nobody has asked to be told (:meth:`Places.move_out`)."""


def _carry(fd: int, name: str, target: str) -> None:
    """Copy what has the name in the directory, and remove it."""
    status = look_at(fd, name)
    if status is None:
        return
    if status.is_directory:
        _carry_directory(fd, name, status, target)
        return
    if status.is_symlink:
        os.symlink(status.target, target)
    elif status.is_file:
        with _opened(fd, name, _tell_nobody) as file, file.open(os.O_RDONLY) as reading:
            copy_file(target, target, reading)
    os.unlink(name, dir_fd=fd)


def _carry_directory(fd: int, name: str, status: Status, target: str) -> None:
    if status.mode & stat.S_IRWXU != stat.S_IRWXU:
        with _opened(fd, name, _tell_nobody) as directory:
            directory.change_mode(stat.S_IRWXU)
    os.mkdir(target, 0o700)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    below, into = os.open(name, flags, dir_fd=fd), os.open(target, flags)
    try:
        for each in os.listdir(below):
            _carry(below, each, f"/proc/self/fd/{into}/{each}")
    finally:
        os.close(below)
        os.close(into)
    os.rmdir(name, dir_fd=fd)
