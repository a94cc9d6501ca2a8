"""How much memory this process has, and how much more it can get: what the kernel says, read without a lock.

The limit is the smallest of what the machine has available and what the control groups of this process leave it.
"""

from __future__ import annotations

import os
import resource

__all__ = ["available_bytes", "peak_bytes", "resident_bytes", "shared_files"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GROUPS = "/sys/fs/cgroup"


def resident_bytes() -> int:
    """Memory of this process that is in use now, shared pages included; 0 where the kernel does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def peak_bytes() -> int:
    """The most that :func:`resident_bytes` has been in this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shared_files() -> list[str]:
    """Files that this process has mapped for shared writing. Some 0.2 ms, more the more is mapped."""
    found = []
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                if b" rw-s " in line[:48]:
                    path = line.split(None, 5)[5:]
                    if path and _is_a_file(path[0]):
                        found.append(os.fsdecode(path[0].strip()))
    except OSError:
        pass  # no such file system: no fork of ours either
    return list(dict.fromkeys(found))


def _is_a_file(path: bytes) -> bool:
    """Semaphores of ``multiprocessing`` are none: images know their value otherwise (:mod:`ckpt.image.processes`)."""
    return path.startswith(b"/") and not path.startswith(
        (b"/dev/zero", b"/memfd:", b"/SYSV", b"/dev/nvidia", b"/dev/shm/sem.")
    )


def available_bytes(meminfo: str = "/proc/meminfo", groups: str = _GROUPS) -> int | None:
    """What a process can still get before something is killed or swapped; ``None``: the kernel does not say."""
    found = [value for value in (_of_machine(meminfo), _of_group(groups)) if value is not None]
    return min(found) if found else None


def _of_machine(meminfo: str) -> int | None:
    try:
        with open(meminfo, "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # not a Linux that says it
    return None


def _of_group(groups: str) -> int | None:
    """Of the second version of control groups, this process's own group."""
    try:
        with open("/proc/self/cgroup", "rb") as file:
            lines = file.read().decode().splitlines()
        own = next(line.partition("::")[2] for line in lines if line.startswith("0::"))
        limit = _number(f"{groups}{own}/memory.max")
        used = _number(f"{groups}{own}/memory.current")
    except (OSError, ValueError, StopIteration):
        return None  # no limit, or another version
    return max(0, limit - used)


def _number(path: str) -> int:
    with open(path, "rb") as file:  # as text this would import a codec, in the pause of a program
        return int(file.read())
