"""Creates a job directory: completely or not at all, and by one process only. The steps, in this order:

    look        if the directory holds a job, or files that no creation writes, it is refused and nothing is changed
    lock        take the job's lock: of several processes that create the job at the same time one goes on, and the
                others get JobLocked
    look again  another process may have created the job between the two first steps
    fill        make the directories and the key; last, when all these are durable, write `job.json`: it makes the job

The kernel releases the lock of a process that is killed before the last step. Such a process leaves no `job.json`; it may
leave a lock file, temporary files, a key and empty directories: the next creation completes this directory. A directory
without `job.json` that contains more than that was a job, and is not changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ckpt.store.disk.fsio import TEMPORARY_PREFIX, FileSystem, close_quietly, commit_file, sync_directory
from ckpt.store.disk.privacy import check_private_directory
from ckpt.store.errors import JobExists, StorageFailed
from ckpt.store.job.lock import acquire_flock

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["make"]

_LOCK: Final = "lock"


def make(
    fs: FileSystem, root: str, *, directories: Sequence[str], key: tuple[str, bytes], job: tuple[str, bytes]
) -> int:
    """Make the job in `root`; return the descriptor that holds its lock (see `lock.take_lock`).

    Args:
        directories: paths relative to `root` of the directories to make, a parent before its children.
        key, job: name and content of each of the two files.

    Raises:
        JobExists, JobLocked, NotPrivate, StorageFailed: see `JobDirectory.create`.
    """
    _make_root(fs, root)
    ours = {key[0], *directories}
    _look(fs, root, ours, key[0], job[0])
    lock_fd = acquire_flock(root, fs)
    try:
        _look(fs, root, ours, key[0], job[0])
        _make_directories(fs, root, directories)
        commit_file(fs, root, *key)
        commit_file(fs, root, *job)
        sync_directory(fs, os.path.dirname(root))
    except BaseException:
        close_quietly(fs, lock_fd)
        raise
    return lock_fd


def _make_root(fs: FileSystem, root: str) -> None:
    try:
        _make_parents(fs, os.path.dirname(root))
        fs.make_directory(root)
        return
    except FileExistsError:
        pass  # its owner and mode are checked below
    except OSError as error:
        raise StorageFailed("mkdir", root, error) from error
    check_private_directory(root)


def _make_parents(fs: FileSystem, path: str) -> None:
    """Like `os.makedirs`, but the new directories have mode 0700 and are durable."""
    if os.path.isdir(path):
        return
    _make_parents(fs, os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another process has made it meanwhile; or it is no directory, and then the next step fails
    fs.sync_directory(os.path.dirname(path))


def _look(fs: FileSystem, root: str, ours: set[str], key_name: str, job_name: str) -> None:
    """Raise JobExists unless the directory is empty, or holds only the files that a killed creation leaves."""
    found = _names(fs, root)
    if job_name in found:
        raise JobExists(
            "there is a job already",
            path=root,
            hint="`ckpt restart` goes on with it; or name another directory.",
        )
    for name in found:
        if name not in ours and name != _LOCK and not name.startswith(TEMPORARY_PREFIX):
            raise JobExists(f"the directory is not empty ({name})", path=root, hint="Name another one.")
    for name in found:
        if name in ours and name != key_name:
            left = _file_below(fs, os.path.join(root, name))
            if left is not None:
                raise JobExists(
                    f"it holds what a job has left ({os.path.relpath(left, root)}), and no job.json",
                    path=root,
                    hint="Restore that file from a backup to go on with the job; or name another directory.",
                )


def _file_below(fs: FileSystem, path: str) -> str | None:
    """Return the first path below `path` that is not a directory; `path` itself if that is no directory; else None."""
    try:
        names = sorted(fs.list_directory(path))
    except (NotADirectoryError, FileNotFoundError):
        return path
    except OSError as error:
        raise StorageFailed("list", path, error) from error
    below = (_file_below(fs, os.path.join(path, name)) for name in names)
    return next((found for found in below if found is not None), None)


def _names(fs: FileSystem, directory: str) -> list[str]:
    try:
        return sorted(fs.list_directory(directory))
    except OSError as error:
        raise StorageFailed("list", directory, error) from error


def _make_directories(fs: FileSystem, root: str, directories: Sequence[str]) -> None:
    for name in directories:
        path = os.path.join(root, name)
        try:
            fs.make_directory(path)
        except FileExistsError:
            check_private_directory(path)
        except OSError as error:
            raise StorageFailed("mkdir", path, error) from error
    parents = sorted({os.path.dirname(name) for name in directories} - {""})
    for parent in parents:
        sync_directory(fs, os.path.join(root, parent))
