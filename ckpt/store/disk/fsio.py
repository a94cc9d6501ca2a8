"""The one seam between the store and the operating system (★: this module, and only it, does the I/O).

Every system call of the commit sequence is a method of `FileSystem`, so that a test can put another object
in its place and (a) record the sequence and build every state a crash could leave behind: any subset of the
operations that no sync has covered yet; (b) let the nth call fail: EIO, ENOSPC, a short write, a failing
fsync.

Rules that live here:

- A file is written under a temporary name in the directory where it will stand, synced, renamed, and the
  directory is synced. Only then may anything refer to it.
- A failed fsync condemns the file: its dirty pages may be gone while the next fsync reports success. The
  file is dropped and the caller gets `StorageFailed`; it may write a *new* file, it never syncs the same one
  again.
- Temporary files are locked (flock) while their writer lives, so that `prune` can tell those of dead writers.
- Every OSError becomes `StorageFailed`, which names the call and the file.

What does not belong here: formats, digests, names of epochs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
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
_FAR: Final = 600


class FileSystem:
    """The real system calls. Each raises OSError as the system does; `StorageFailed` is made one level up."""

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
        """Open the file that is locked (see `lock.py`), making it if need be; NotPrivate where others can reach it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            check_private_file(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def is_same_file(self, fd: int, path: str) -> bool:
        """Whether an open file is still the one of that name."""
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            return False
        here = os.fstat(fd)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def sign(self, fd: int, text: bytes) -> None:
        """Make `text` the content of a lock file; if the disk refuses, only the next one's message is poorer for it."""
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, text, 0)
        except OSError:
            pass

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory durable (creations, renames, removals)."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def check_private(self, path: str) -> None:
        """Raise NotPrivate unless a directory that is there is really one, ours, and writable by us alone."""
        try:
            check_private_directory(path)
        except FileNotFoundError:
            pass  # whoever needs it says so

    # Reading. No crash state depends on it, but reads fail as well.

    def open_read(self, path: str) -> int:
        """All reads of records and images begin here. Raises RecordDamaged where something else than a file stands.

        Under a number far from those that programs have: theirs are free while their image is loaded.
        """
        try:
            fd = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        except NotPrivate as error:
            raise RecordDamaged(error.what, path=path, hint=_NOT_OURS) from error
        try:
            far = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FAR)
        except OSError:  # beyond the limit
            return fd
        with contextlib.suppress(OSError):  # nothing was written through it, and the other one is open
            os.close(fd)
        return far

    def preadv(self, fd: int, buffers: Sequence[memoryview | bytearray], offset: int) -> int:
        try:
            return os.preadv(fd, buffers, offset)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOSYS):
                raise
        # preadv2(2), which that calls, is newer than some sandboxes
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
        """Whole content of a file. Raises RecordDamaged when it has more than `limit_bytes`: nothing of ours does."""
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


def write_all(fs: FileSystem, fd: int, data: Buffer, offset: int) -> None:
    """Write the whole of `data` at `offset`, going on after short writes; OSError as the system raises it."""
    view = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
    while len(view):
        taken = fs.pwrite(fd, view, offset)
        if taken <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[taken:]
        offset += taken


class PendingFile:
    """A file on its way: temporary → synced → published. Any failure drops it and raises `StorageFailed`.

    States: open → sealed (synced) → published (renamed, closed); or dropped from any of them. The lock that
    says "my writer lives" is held until the file has its final name.

    Args:
        name: the final name; the temporary one is `.tmp-` + name + a random suffix, so that what a dead
        writer
            left behind never stands in the way.
        replaces: an older file may have that name, and what it says must not be lost: once renamed, this
            one stays, whatever fails afterwards.
    """

    def __init__(self, fs: FileSystem, directory: str, name: str, *, replaces: bool = False) -> None:
        self._fs = fs
        self._replaces = replaces
        self.path = os.path.join(directory, name)
        self.fd = -1
        self._now_at = os.path.join(directory, f"{TEMPORARY_PREFIX}{name}.{os.urandom(4).hex()}")
        with self._or_drop("create"):
            self.fd = fs.create(self._now_at)
            fs.try_lock(self.fd)

    def write(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at byte `offset`."""
        with self._or_drop("write"):
            write_all(self._fs, self.fd, data, offset)

    def seal(self) -> None:
        """Sync. After this the content is durable, the name is not."""
        with self._or_drop("fsync"):
            self._fs.fsync(self.fd)

    def publish(self) -> None:
        """Give it its final name. The directory still has to be synced (once for several files)."""
        with self._or_drop("rename"):
            self._fs.replace(self._now_at, self.path)
        self._now_at = self.path
        with self._or_drop("close"):
            fd, self.fd = self.fd, -1
            self._fs.close(fd)

    @contextlib.contextmanager
    def _or_drop(self, operation: str) -> Iterator[None]:
        """Whatever goes wrong, want of memory included, the file does not stay behind."""
        try:
            yield
        except OSError as error:
            self.drop()
            raise StorageFailed(operation, self.path, error) from error
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Remove it, published or not (but see `replaces`), as far as we can; `prune` clears what stays."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            close_quietly(self._fs, fd)
        if not self._now_at or (self._replaces and self._now_at == self.path):
            return
        try:
            self._fs.unlink(self._now_at)
        except (OSError, MemoryError):
            pass  # never created, or a disk that refuses everything: prune clears it
        self._now_at = ""


def close_quietly(fs: FileSystem, fd: int) -> None:
    """Close a descriptor of which nothing more is wanted: it is gone either way, whatever the system says."""
    try:
        fs.close(fd)
    except (OSError, MemoryError):
        pass


def sync_directory(fs: FileSystem, path: str) -> None:
    """Make the entries of `path` durable; `StorageFailed` when the system refuses."""
    try:
        fs.sync_directory(path)
    except OSError as error:
        raise StorageFailed("fsync of directory", path, error) from error


def commit_file(fs: FileSystem, directory: str, name: str, data: Buffer, *, replaces: bool = False) -> None:
    """The whole sequence for a small file: temporary, write, fsync, rename, fsync of the directory.

    When the last step fails the file is taken back: it may or may not outlive a crash, and must not be
    relied on. (But where it `replaces` an older one it stays: neither of them would be left.)
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
