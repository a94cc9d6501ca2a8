"""How much memory the control groups of this process leave it: both versions, and all groups above its own.

The nearest limit counts, wherever it stands: a container's is often on a group above the process's own. What a group has in
use includes pages of files, which go before anything is killed, so most of these count as free; as in the kernel's own
``MemAvailable``.

=========  ==================================  ===========================================  ==========================
version    its line in ``/proc/self/cgroup``   limits                                       in use
=========  ==================================  ===========================================  ==========================
2          ``0::/path``                        ``memory.max``, ``memory.high`` (throttled)  ``memory.current``
1          ``4:memory:/path``                  ``memory.limit_in_bytes``                    ``memory.usage_in_bytes``
=========  ==================================  ===========================================  ==========================

Where a hierarchy is mounted, and which part of it, says ``/proc/self/mountinfo``; in a namespace of its own a process sees
paths that begin elsewhere: those of groups outside begin with ``/..``, and a hierarchy that was mounted outside has such a
root. A group that is not below what is mounted cannot be looked at. Every value is read anew, the mounts once.

When memory runs out below a limit, all of the highest group with ``memory.oom.group`` is killed that is not above the limit.
"""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["Room", "room"]

_UNLIMITED_BYTES = 1 << 60
"""What the first version says where there is no limit is a little less than 2^63."""


class Room(NamedTuple):
    """``available_bytes``: until a limit is reached. ``one_fate``: whoever shares this process's group is killed with the
    others then (``memory.oom.group``).
    """

    available_bytes: int
    one_fate: bool


class _Mount(NamedTuple):
    root: str
    point: str
    version: int


_mounts: dict[str, list[_Mount]] = {}


def room(proc: str = "/proc/self") -> Room | None:
    """What is left below the nearest limit; ``None``: there is none, or the kernel does not say."""
    found = [left for directory, top, version in _groups(proc) for left in _of_all(directory, top, version)]
    return min(found, default=None)


def _groups(proc: str) -> list[tuple[str, str, int]]:
    """Directory of this process's group, and the highest that can be seen, in every hierarchy that limits memory."""
    try:
        if proc not in _mounts:
            with open(f"{proc}/mountinfo", "rb") as file:
                _mounts[proc] = [mount for line in file if (mount := _mount_of(line)) is not None]
        with open(f"{proc}/cgroup", "rb") as file:
            lines = [line.decode(errors="surrogateescape").rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    found = []
    for number, controllers, path in lines:
        version = 2 if (number, controllers) == ("0", "") else 1
        if version == 2 or "memory" in controllers.split(","):
            found += [
                (directory, mount.point, version)
                for mount in _mounts[proc]
                if mount.version == version and (directory := _within(mount, path)) is not None
            ]
    return found


def _mount_of(line: bytes) -> _Mount | None:
    """One line of mountinfo: the fields up to " - ", of which the fourth and the fifth are wanted; kind, source, options."""
    before, _, after = line.decode(errors="surrogateescape").partition(" - ")
    kind, _, options = [*after.split(), "", "", ""][:3]
    if kind == "cgroup2":
        version = 2
    elif kind == "cgroup" and "memory" in options.split(","):
        version = 1
    else:
        return None
    root, point = (field.replace("\\040", " ") for field in before.split()[3:5])
    return _Mount(root, point, version)


def _within(mount: _Mount, path: str) -> str | None:
    """Where the group is seen; if it cannot be found below what is mounted, as far up as can be. None: it is outside."""
    root = mount.root.rstrip("/")
    inside = path[len(root) :] if path == root or path.startswith(root + "/") else ""
    if inside == "/.." or inside.startswith("/../"):
        return None
    directory = os.path.normpath(mount.point + "/" + inside)
    return directory if os.path.isdir(directory) else mount.point


def _of_all(directory: str, top: str, version: int) -> list[Room]:
    """From the group itself to the top."""
    found = []
    one_fate = False
    while True:
        one_fate = one_fate or bool(_number(f"{directory}/memory.oom.group"))
        left = _of_one(directory, version)
        if left is not None:
            found.append(Room(left, one_fate))
        if directory == top or len(directory) <= len(top):
            return found
        directory = os.path.dirname(directory)


def _of_one(directory: str, version: int) -> int | None:
    names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
    limits = [limit for name in names if (limit := _number(f"{directory}/{name}")) is not None]
    if not limits or min(limits) >= _UNLIMITED_BYTES:
        return None
    used = _number(f"{directory}/memory.{'current' if version == 2 else 'usage_in_bytes'}")
    if used is None:
        return None
    in_use = used - _reclaimable(f"{directory}/memory.stat", "" if version == 2 else "total_")
    return max(0, min(limits) - in_use)


def _reclaimable(path: str, prefix: str) -> int:
    """Pages of files that nobody has used lately, and half of those that somebody has."""
    found = {}
    try:
        with open(path, "rb") as file:
            for line in file:
                name, _, value = line.partition(b" ")
                found[name.decode()] = int(value)
    except (OSError, ValueError):
        return 0
    return found.get(f"{prefix}inactive_file", 0) + found.get(f"{prefix}active_file", 0) // 2


def _number(path: str) -> int | None:
    """``None``: there is no such file, or it says "max"."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a file object takes three times as long
    except OSError:
        return None
    try:
        return int(os.read(fd, 64))
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)
