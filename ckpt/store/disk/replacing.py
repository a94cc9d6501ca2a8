"""Writes a small file as a whole or not at all: reports and settings, which nothing else refers to.

Whoever opens the path finds the old content or the new one, never a part of it. The new one is written under a temporary
name in the same directory, and takes the place of the old one by rename(2).

Not here: files of a checkpoint, whose order on the disk counts (`fsio.commit_file`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from ckpt.store.disk.privacy import open_regular

__all__ = ["replace_file"]


def replace_file(
    path: str,
    data: bytes,
    *,
    mode: int = 0o600,
    sync: bool = False,
    previous_path: str | None = None,
    write: Callable[[int, bytes], int] = os.write,
) -> None:
    """Make `data` the content of the file `path`.

    `sync`: it is on the disk before it gets its name, so a crash leaves one of the two, too. `previous_path`: where the
    old file, which has to exist, is kept. `write`: the system call; a test passes one that fails.

    Raises:
        OSError: as the system does; `path` has what it had, and nothing else is left.
    """
    mark = f".tmp-{os.path.basename(path)}.{os.urandom(4).hex()}"
    new, kept = (os.path.join(os.path.dirname(path), mark + end) for end in ("", ".1"))
    try:
        fd = open_regular(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            if write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # what a short write of a file means
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        if previous_path is not None:
            os.link(path, kept, follow_symlinks=False)
            os.replace(kept, previous_path)
        os.replace(new, path)
    except BaseException:
        for each in (new, kept):
            with contextlib.suppress(OSError):
                os.unlink(each)
        raise
