"""Making a job directory: all of it, or none, and by one process only (★).

    look        a job, or anything that is not ours, is refused before anything is touched
    hold        the job's lock: of several that make one at the same time one goes on, the others are told (JobLocked)
    look again  another one may have been through in between
    fill        directories, key; last, with everything else durable, `job.json`: from then on there is a job

The kernel drops the lock of who is killed on the way. What is left then has no `job.json`, and nothing in it but
a lock, maybe a key, and empty directories: the next one to come makes the job there. A directory without
`job.json` that holds more than that was a job, and is not touched.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ckpt.store.disk.fsio import TEMPORARY_PREFIX, FileSystem, close_quietly, commit_file, sync_directory
from ckpt.store.disk.privacy import check_private_directory
from ckpt.store.errors import JobExists, StorageFailed
from ckpt.store.job.lock import hold

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["make"]

_LOCK: Final = "lock"


def make(
    fs: FileSystem, root: str, *, directories: Sequence[str], key: tuple[str, bytes], job: tuple[str, bytes]
) -> int:
    """Make the job; returns the descriptor that holds its lock (see `lock.take_lock`).

    Args:
        directories: to be made in it, a parent before what is in it.
        key, job: name and content of the two files.

    Raises:
        JobExists, JobLocked, NotPrivate, StorageFailed: see `JobDirectory.create`.
    """
    _make_root(fs, root)
    ours = {key[0], *directories}
    _look(fs, root, ours, key[0], job[0])
    held = hold(root, fs)
    try:
        _look(fs, root, ours, key[0], job[0])
        _make_directories(fs, root, directories)
        commit_file(fs, root, *key)
        commit_file(fs, root, *job)
        sync_directory(fs, os.path.dirname(root))
    except BaseException:
        close_quietly(fs, held)
        raise
    return held


def _make_root(fs: FileSystem, root: str) -> None:
    try:
        _make_parents(fs, os.path.dirname(root))
        fs.make_directory(root)
        return
    except FileExistsError:
        pass  # judged below
    except OSError as error:
        raise StorageFailed("mkdir", root, error) from error
    check_private_directory(root)


def _make_parents(fs: FileSystem, path: str) -> None:
    """Like `os.makedirs`, but what is made is the user's alone, whatever the umask, and durable."""
    if os.path.isdir(path):
        return
    _make_parents(fs, os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # somebody else has made it meanwhile; or it is no directory, and the next step says so
    fs.sync_directory(os.path.dirname(path))


def _look(fs: FileSystem, root: str, ours: set[str], key_name: str, job_name: str) -> None:
    """Raise JobExists unless this is empty, or what a killed creation has left."""
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
    """The first thing below `path` that is no directory; `path` itself, if it is none."""
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
