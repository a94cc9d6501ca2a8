"""How much memory this process has, and how much more it can get: what the kernel says, read without a lock.

The limit is the smallest of what the machine has available and what the control groups of this process leave it
(:mod:`ckpt.capture.memory_groups`).
"""

from __future__ import annotations

import os
import resource

from ckpt.capture.memory_groups import Room, room

__all__ = ["available", "die_first", "peak_bytes", "resident_bytes", "shared_files"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


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
    """Semaphores of ``multiprocessing`` are none: images know their value otherwise (:mod:`ckpt.image.stdlib.processes`)."""
    return path.startswith(b"/") and not path.startswith(
        (b"/dev/zero", b"/memfd:", b"/SYSV", b"/dev/nvidia", b"/dev/shm/sem.")
    )


def available(meminfo: str = "/proc/meminfo", proc: str = "/proc/self") -> Room | None:
    """What can still be had before something is killed or swapped, by all processes under the same limit together;
    ``None``: the kernel does not say."""
    machine = _of_machine(meminfo)
    found = [] if machine is None else [Room(machine, False)]
    group = room(proc)
    return min([*found, *([group] if group is not None else [])], default=None)


def die_first() -> None:
    """Where memory runs out, this process is killed, and not another of the same group."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"1000")
    except OSError:
        pass  # a kernel that has no such file kills whom it likes


def _of_machine(meminfo: str) -> int | None:
    try:
        with open(meminfo, "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # not a Linux that says it
    return None
