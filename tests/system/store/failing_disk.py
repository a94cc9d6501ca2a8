"""A file system that fails on demand: everything below ROOT, seen through a mount point, with faults (FUSE).

    python failing_disk.py ROOT MOUNTPOINT

Writing a JSON object {"at": N, "error": ERRNO or "short", "forever": bool} to MOUNTPOINT/.faults starts to count calls:
number N (and, for ever, all after it) fails with that errno, or takes half of what is written. Reading the file says
{"calls": …, "hit": name of the call or null}. Until then, and with "at" null, nothing fails; but with "path": TEXT every
read of a file whose path holds TEXT; with "file": PATH every read of the file that is there now, whatever its name is later.

Needs mfusepy and libfuse; tests skip without them.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import Any

import mfusepy

CONTROL = "/.faults"


class FailingDisk(mfusepy.Operations):
    """Every call goes to the same call on ROOT, unless it is its turn to fail."""

    use_ns = True

    def __init__(self, root: str) -> None:
        self.root = root
        self.plan: dict[str, Any] = {"at": None}
        self.calls = 0
        self.hit: str | None = None

    def turn(self, call: str, path: str = "") -> bool:
        """Count; raise if it is to fail; True: take half."""
        if call == "read" and self.is_bad(path):
            self.hit = call
            raise mfusepy.FuseOSError(self.plan["error"])
        at = self.plan["at"]
        number, self.calls = self.calls, self.calls + 1
        if at is None or number < at or (number > at and not self.plan.get("forever")):
            return False
        self.hit = self.hit or call
        if self.plan["error"] == "short":
            return call == "write"
        raise mfusepy.FuseOSError(self.plan["error"])

    def is_bad(self, path: str) -> bool:
        text = self.plan.get("path")
        return bool(text and text in path) or os.lstat(self.real(path)).st_ino == self.plan.get("inode")

    def real(self, path: str) -> str:
        return self.root + path

    # ---- calls that may fail

    def open(self, path: str, flags: int) -> int:
        if path == CONTROL:
            return 0
        self.turn("open")
        return os.open(self.real(path), flags & ~getattr(os, "O_DIRECT", 0))

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        if path == CONTROL:
            return 0
        self.turn("create")
        return os.open(self.real(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        if path == CONTROL:
            return json.dumps({"calls": self.calls, "hit": self.hit}).encode()[offset : offset + size]
        self.turn("read", path)
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if path == CONTROL:
            self.plan, self.calls, self.hit = json.loads(data), 0, None
            if "file" in self.plan:
                self.plan["inode"] = os.stat(self.real(self.plan["file"])).st_ino
            return len(data)
        if self.turn("write"):
            data = data[: len(data) // 2]
        return os.pwrite(fh, data, offset)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self.turn("fsync")
        os.fsync(fh)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self.turn("fsyncdir")
        return 0

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        self.turn("rename")
        os.rename(self.real(old), self.real(new))
        return 0

    def unlink(self, path: str) -> int:
        self.turn("unlink")
        os.unlink(self.real(path))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self.turn("mkdir")
        os.mkdir(self.real(path), mode)
        return 0

    def readdir(self, path: str, fh: int) -> list[str]:
        self.turn("readdir")
        return [".", "..", *os.listdir(self.real(path))]

    def flush(self, path: str, fh: int) -> int:
        if path != CONTROL:
            self.turn("close")
        return 0

    # ---- calls that do not

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_ino", "st_atime_ns", "st_mtime_ns")
        if path == CONTROL:
            return {"st_mode": 0o100600, "st_nlink": 1, "st_uid": os.getuid(), "st_size": 4096}
        try:
            found = os.lstat(self.real(path))
        except OSError as error:
            raise mfusepy.FuseOSError(error.errno or errno.EIO) from None
        return {name.removesuffix("_ns"): getattr(found, name) for name in names}

    def release(self, path: str, fh: int) -> int:
        if path != CONTROL:
            os.close(fh)
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        if path != CONTROL:
            os.truncate(self.real(path), length)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self.real(path), mode)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self.real(path), ns=times)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self.real(path))
        return 0


def serve(disk: mfusepy.Operations, mount: str) -> None:
    """Until it is unmounted. The kernel keeps nothing of it."""
    mfusepy.FUSE(
        disk,
        mount,
        foreground=True,
        nothreads=True,
        direct_io=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
    )


if __name__ == "__main__":
    serve(FailingDisk(sys.argv[1]), sys.argv[2])
