"""The system calls of the store, in one class that tests replace. This module does the I/O of the commit sequence.

Every system call of the commit sequence is a method of `FileSystem`, so that a test can put another object
in its place (`simulated.py`) and (a) record the sequence and build every state that a crash could leave behind: any subset
of the operations that no sync has covered yet; (b) let the nth call fail: EIO, ENOSPC, a short write, a failing
fsync.

Rules that this module keeps:

- A file is written under a temporary name in its final directory, synced, renamed, and the directory is synced. Only then
  may another file refer to it.
- After a failed fsync the file is given up: its dirty pages may be lost although the next fsync reports success (Linux
  marks them clean). The file is dropped and the caller gets `StorageFailed`. The caller may write a *new* file; it never
  syncs the same one again.
- Temporary files are locked (flock) while their writer lives, so that `prune` can tell those of dead writers.
- Every OSError becomes `StorageFailed`, which names the call and the file.

What does not belong here: formats, digests, names of epochs.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ckpt.store.disk.privacy import check_private_directory, check_private_file, open_regular
from ckpt.store.errors import NotPrivate, RecordDamaged, StorageFailed

__all__ = [
    "TEMPORARY_PREFIX",
    "FileSystem",
    "PendingFile",
    "close_quietly",
    "commit_file",
    "sync_directory",
    "write_all",
]

TEMPORARY_PREFIX: Final = ".tmp-"

Buffer = bytes | bytearray | memoryview
_NOT_OURS: Final = (
    "Something else stands in its place: restore it from a backup, or go on from another epoch (`ckpt ls`)."
)
_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)
_HIGH_FD: Final = 600


class FileSystem:
    """The real system calls. Each raises OSError as the system does; the callers turn it into `StorageFailed`."""

    def create(self, path: str, *, direct: bool = False) -> int:
        """Create `path` (which must not exist), mode 0600, and open it for reading and writing."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags | (_O_DIRECT if direct else 0), 0o600)

    def set_direct(self, fd: int, direct: bool) -> None:
        """Switch O_DIRECT on or off for an open file; raises OSError where the file system cannot."""
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | _O_DIRECT if direct else flags & ~_O_DIRECT)

    def try_lock(self, fd: int) -> bool:
        """Take the exclusive flock of an open file without waiting; False when another open file has it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def pwrite(self, fd: int, data: Buffer, offset: int) -> int:
        """Write at `offset`; returns the number of bytes taken, which may be short."""
        return os.pwrite(fd, data, offset)

    def open_lock(self, path: str) -> int:
        """Open the job's lock file (see `job/lock.py`), or create it. Raises NotPrivate if other users can reach it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            check_private_file(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def is_same_file(self, fd: int, path: str) -> bool:
        """Does `path` still name the open file `fd`?"""
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            return False
        here = os.fstat(fd)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def sign(self, fd: int, text: bytes) -> None:
        """Write `text`, which names the holder, into a lock file. A refusal of the disk is ignored: only a message needs
        this text."""
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, text, 0)
        except OSError:
            pass

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls that wait for the disk, all at the same time: a file system with a journal needs as long for several
        syncs as for one. All of them are made; the first failure is raised."""
        failures: list[BaseException] = []
        waits: list[_thread.LockType] = []
        for call in calls[1:]:
            wait = _thread.allocate_lock()
            wait.acquire()
            try:
                _thread.start_new_thread(_try, (call, failures, wait))
            except RuntimeError:  # the system has no thread left
                _try(call, failures, wait)
            waits.append(wait)
        _try(calls[0], failures)
        for wait in waits:
            wait.acquire()
        if failures:
            raise failures[0]

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, which must not exist."""
        os.link(source, target, follow_symlinks=False)

    def link_count(self, fd: int) -> int:
        """Return how many names an open file has."""
        return os.fstat(fd).st_nlink

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory durable (creations, renames, removals)."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def touch_directory(self, path: str) -> None:
        """Set the times of a directory to now. Needs no space."""
        os.utime(path)

    def make_directory(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def check_private(self, path: str) -> None:
        """Raise NotPrivate if `path` exists and is not a real directory of this user that no other user may write to."""
        try:
            check_private_directory(path)
        except FileNotFoundError:
            pass  # a caller that needs the directory reports this itself

    # Calls that read. They add no crash states, but they can fail too.

    def open_read(self, path: str) -> int:
        """Open a record or a pack for reading. Raises RecordDamaged if `path` is not a regular file.

        The descriptor gets a high number (from 600 on, if the limit allows), because the restore of a program's open files
        needs the low numbers that the program had.
        """
        try:
            fd = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        except NotPrivate as error:
            raise RecordDamaged(error.what, path=path, hint=_NOT_OURS) from error
        try:
            high_fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
        except OSError:  # the limit of descriptors is below that number
            return fd
        with contextlib.suppress(OSError):  # nothing was written through `fd`, and its duplicate is open
            os.close(fd)
        return high_fd

    def preadv(self, fd: int, buffers: Sequence[memoryview | bytearray], offset: int) -> int:
        try:
            return os.preadv(fd, buffers, offset)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOSYS):
                raise
        # os.preadv calls preadv2(2), which some sandboxes do not know and refuse
        first = memoryview(buffers[0])
        data = os.pread(fd, len(first), offset)
        first[: len(data)] = data
        return len(data)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def list_directory(self, path: str) -> list[str]:
        return os.listdir(path)

    def file_size(self, path: str) -> int:
        """Length in bytes of a regular file, not following a symbolic link."""
        return os.lstat(path).st_size

    def read_file(self, path: str, limit_bytes: int = 1 << 30) -> bytes:
        """Return the content of a file. Raises RecordDamaged above `limit_bytes`: the store writes no longer file."""
        fd = self.open_read(path)
        try:
            length = self.size(fd)
            if length > limit_bytes:
                raise RecordDamaged(
                    f"it has {length} bytes, more than any that was written here", path=path, hint=_NOT_OURS
                )
            parts: list[bytes] = []
            while part := os.read(fd, 1 << 20):
                parts.append(part)
            return b"".join(parts)
        finally:
            self.close(fd)


def _try(
    call: Callable[[], None], failures: list[BaseException], done: _thread.LockType | None = None
) -> None:
    try:
        call()
    except BaseException as failure:  # raised by who waits for all calls
        failures.append(failure)
    if done is not None:
        done.release()


def write_all(fs: FileSystem, fd: int, data: Buffer, offset: int) -> None:
    """Write all of `data` at `offset`, going on after short writes. Raises OSError; ENOSPC when nothing is taken."""
    view = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
    while len(view):
        taken = fs.pwrite(fd, view, offset)
        if taken <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[taken:]
        offset += taken


class PendingFile:
    """A new file that is not committed yet. Any failure removes it; an OSError is raised as `StorageFailed`.

    States: open (temporary name) → sealed (synced) → published (renamed, closed) or linked; or dropped from any of them. The
    flock that shows that the writer lives is held until the file has its final name.

    Args:
        name: the final name; the temporary one is `.tmp-` + name + a random suffix, so that a file that a dead writer
            left behind never has the same name.
        replaces: an older file may have that name, and one of the two must remain: once renamed, the new file is not
            removed, whatever fails afterwards.
    """

    def __init__(self, fs: FileSystem, directory: str, name: str, *, replaces: bool = False) -> None:
        self._fs = fs
        self._replaces = replaces
        self.path = os.path.join(directory, name)
        self.fd = -1
        self._current_path = os.path.join(directory, f"{TEMPORARY_PREFIX}{name}.{os.urandom(4).hex()}")
        with self._or_drop("create"):
            self.fd = fs.create(self._current_path)
            fs.try_lock(self.fd)

    def write(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at byte `offset`."""
        with self._or_drop("write"):
            write_all(self._fs, self.fd, data, offset)

    def seal(self) -> None:
        """Sync the content. After this the content is durable; the file's name is not."""
        with self._or_drop("fsync"):
            self._fs.fsync(self.fd)

    def publish(self) -> None:
        """Rename the file to its final name. The caller still has to sync the directory (once for several files)."""
        with self._or_drop("rename"):
            self._fs.replace(self._current_path, self.path)
        self._current_path = self.path
        with self._or_drop("close"):
            fd, self.fd = self.fd, -1
            self._fs.close(fd)

    def link(self) -> bool:
        """Give the file its final name if that is free. Returns False if it is taken; the temporary name is gone then, too.

        The caller still has to sync the directory. Whatever the system answers, the number of names decides: over a network
        the answer to a successful call may be lost, and the call repeated.
        """
        with self._or_drop("link"):
            try:
                self._fs.link(self._current_path, self.path)
            except OSError as error:
                is_linked = self._fs.link_count(self.fd) > 1
                if not is_linked and not isinstance(error, FileExistsError):
                    raise
            else:
                is_linked = True
        self.drop()
        return is_linked

    @contextlib.contextmanager
    def _or_drop(self, operation: str) -> Iterator[None]:
        """Remove the file on any exception, MemoryError included."""
        try:
            yield
        except OSError as error:
            self.drop()
            raise StorageFailed(operation, self.path, error) from error
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Remove the file, published or not (but see `replaces`). Raises nothing: if the system refuses, `prune` will
        remove it."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            close_quietly(self._fs, fd)
        if not self._current_path or (self._replaces and self._current_path == self.path):
            return
        try:
            self._fs.unlink(self._current_path)
        except (OSError, MemoryError):
            pass  # the file was never created, or the disk refuses everything: prune will remove it
        self._current_path = ""


def close_quietly(fs: FileSystem, fd: int) -> None:
    """Close a descriptor and ignore errors: the kernel frees it in any case."""
    try:
        fs.close(fd)
    except (OSError, MemoryError):
        pass


def sync_directory(fs: FileSystem, path: str) -> None:
    """Make the entries of the directory `path` durable. Raises StorageFailed."""
    try:
        fs.sync_directory(path)
    except OSError as error:
        raise StorageFailed("fsync of directory", path, error) from error


def commit_file(fs: FileSystem, directory: str, name: str, data: Buffer, *, replaces: bool = False) -> None:
    """Do the commit sequence for a small file: temporary name, write, fsync, rename, fsync of the directory.

    When the last step fails, the file is removed: it might or might not outlive a crash, so nothing may rely on it. With
    `replaces` it is not removed, since the older file is gone already. Raises StorageFailed.
    """
    file = PendingFile(fs, directory, name, replaces=replaces)
    file.write(data, 0)
    file.seal()
    file.publish()
    try:
        sync_directory(fs, directory)
    except BaseException:
        file.drop()
        raise
