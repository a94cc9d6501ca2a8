"""Reads how much memory the control groups (cgroups) of this process leave it: versions 1 and 2, its own group and all
above.

Of all limits, the one that leaves least memory counts, whichever group has it: the limit of a container is often set on a
group above the process's own. The memory in use by a group includes the page cache. The kernel drops pages of the cache
before it kills a process, so most of them count as free, as in the kernel's ``MemAvailable``.

=========  ==================================  ===========================================  ==========================
version    its line in ``/proc/self/cgroup``   limits                                       in use
=========  ==================================  ===========================================  ==========================
2          ``0::/path``                        ``memory.max``, ``memory.high`` (throttled)  ``memory.current``
1          ``4:memory:/path``                  ``memory.limit_in_bytes``                    ``memory.usage_in_bytes``
=========  ==================================  ===========================================  ==========================

``/proc/self/mountinfo`` says where a hierarchy is mounted, and which part of the hierarchy (see cgroups(7) and
cgroup_namespaces(7)). In a cgroup namespace, paths are relative to the root of the namespace: the path of a group outside
begins with ``/..``, and the root of a hierarchy that was mounted outside does too. A group that is not below a mounted part
cannot be read. Every value is read at each call; the mounts are read once.

When memory runs out below a limit, the kernel looks at the groups from the process's own up to the group with the limit. If
one of them has ``memory.oom.group``, the kernel kills all processes of the highest such group.
"""

from __future__ import annotations

import os

from ckpt.image.frames import _frames
from ckpt.transport.records import NamedTuple

__all__ = ["MemoryLeft", "least_memory_left"]

_UNLIMITED_BYTES = 1 << 60
"""A limit from here on means no limit: version 1 then reports a number a little below 2^63."""


class MemoryLeft(NamedTuple):
    """The memory left below one limit.

    ``available_bytes``: until the limit is reached. ``kills_group``: at the limit, the kernel kills all processes of this
    process's group together (``memory.oom.group``).
    """

    available_bytes: int
    kills_group: bool


class _Mount(NamedTuple):
    root: str
    point: str
    version: int


_mounts: dict[str, list[_Mount]] = {}


def least_memory_left(proc: str = "/proc/self") -> MemoryLeft | None:
    """The least memory that is left below a limit; ``None``: there is no limit, or the kernel does not say.

    ``proc``: the process's directory in /proc.
    """
    found = [
        left for directory, top, version in _groups(proc) for left in _all_limits(directory, top, version)
    ]
    return min(found, default=None)


def _groups(proc: str) -> list[tuple[str, str, int]]:
    """For every hierarchy that limits memory: directory of this process's group, highest visible directory, version."""
    try:
        if proc not in _mounts:
            rows = _frames.read_file(f"{proc}/mountinfo").splitlines()
            _mounts[proc] = [mount for row in rows if (mount := _mount_of(row)) is not None]
        text = _frames.read_file(f"{proc}/cgroup").decode(errors="surrogateescape")
        lines = [line.split(":", 2) for line in text.splitlines()]
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
    """The mount of a memory hierarchy that one line of mountinfo describes (proc_pid_mountinfo(5)); ``None``: another mount.

    The fourth and fifth field are root and mount point; after " - " follow file system type, source and options.
    """
    before, _, after = line.decode(errors="surrogateescape").partition(" - ")
    fs_type, _, options = [*after.split(), "", "", ""][:3]
    if fs_type == "cgroup2":
        version = 2
    elif fs_type == "cgroup" and "memory" in options.split(","):
        version = 1
    else:
        return None
    root, point = (field.replace("\\040", " ") for field in before.split()[3:5])
    return _Mount(root, point, version)


def _within(mount: _Mount, path: str) -> str | None:
    """The directory of the group ``path``; the mount point, if that directory is missing. ``None``: the group is outside."""
    root = mount.root.rstrip("/")
    inside = path[len(root) :] if path == root or path.startswith(root + "/") else ""
    if inside == "/.." or inside.startswith("/../"):
        return None
    directory = os.path.normpath(mount.point + "/" + inside)
    return directory if os.path.isdir(directory) else mount.point


def _all_limits(directory: str, top: str, version: int) -> list[MemoryLeft]:
    """The memory left below each limit, from the group itself up to ``top``."""
    found = []
    kills_group = False
    while True:
        kills_group = kills_group or bool(_number(f"{directory}/memory.oom.group"))
        left = _memory_left(directory, version)
        if left is not None:
            found.append(MemoryLeft(left, kills_group))
        if directory == top or len(directory) <= len(top):
            return found
        directory = os.path.dirname(directory)


def _memory_left(directory: str, version: int) -> int | None:
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
    """Bytes of the page cache that the kernel can take back: all inactive pages, and half of the active pages."""
    found = {}
    try:
        for line in _frames.read_file(path).splitlines():
            name, _, value = line.partition(b" ")
            found[name.decode()] = int(value)
    except (OSError, ValueError):
        return 0
    return found.get(f"{prefix}inactive_file", 0) + found.get(f"{prefix}active_file", 0) // 2


def _number(path: str) -> int | None:
    """The number in the file ``path``; ``None``: there is no such file, or it contains "max"."""
    try:
        return int(_frames.read_file(path))
    except (OSError, ValueError):
        return None
