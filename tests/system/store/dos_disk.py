"""A file system with the rules of FAT: everything below ROOT, seen through a mount point (FUSE).

    python dos_disk.py ROOT MOUNTPOINT

There are no hard links and no symbolic ones, no owners, and one mode for all files, one for all directories; changing them
is refused. Times are even numbers of seconds. So Linux mounts it (vfat), but a kernel need not have that.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import mfusepy
from failing_disk import FailingDisk, serve  # type: ignore[import-not-found]  # beside this program

_NS = 2_000_000_000


class DosDisk(FailingDisk):  # type: ignore[misc]
    """Refuses what FAT cannot hold."""

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found: dict[str, Any] = super().getattr(path, fh)
        is_directory = found["st_mode"] & 0o170000 == 0o040000
        times = {name: found[name] // _NS * _NS for name in ("st_atime", "st_mtime") if name in found}
        mode = 0o040755 if is_directory else 0o100755
        return {**found, **times, "st_mode": mode, "st_uid": os.getuid(), "st_gid": os.getgid()}

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        made: int = super().create(path, 0o700, fi)
        return made

    def mkdir(self, path: str, mode: int) -> int:
        return int(super().mkdir(path, 0o700))

    def chmod(self, path: str, mode: int) -> int:
        if mode != self.getattr(path)["st_mode"]:
            raise mfusepy.FuseOSError(errno.EPERM)
        return 0

    def chown(self, path: str, user: int, group: int) -> int:
        raise mfusepy.FuseOSError(errno.EPERM)

    def link(self, target: str, source: str) -> int:
        raise mfusepy.FuseOSError(errno.EPERM)

    def symlink(self, target: str, source: str) -> int:
        raise mfusepy.FuseOSError(errno.EPERM)


if __name__ == "__main__":
    serve(DosDisk(sys.argv[1]), sys.argv[2])
