"""Reads from /proc how much memory this process uses, and how much more it can get.

The helper thread reads them while it holds the port's lock. So the interpreter's lock is not released for each file: other
threads of the program may compute.

The available memory is the smaller of two numbers: the memory that the machine has available (``MemAvailable``), and the
memory that the control groups of this process allow (:mod:`ckpt.capture.memory_groups`).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Collection

from ckpt.capture.memory_groups import MemoryLeft, least_memory_left
from ckpt.image.frames import _frames
from ckpt.image.interface.mappings import SHARED, mappings

__all__ = ["available", "prefer_for_oom_kill", "peak_bytes", "resident_bytes", "shared_files"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Bytes of memory that this process uses now, shared pages included; 0 where the kernel does not say."""
    try:
        return int(_frames.read_file("/proc/self/statm").split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def peak_bytes() -> int:
    """The highest value of :func:`resident_bytes` in this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shared_files(copied: Collection[int] = ()) -> list[str]:
    """Paths of the files that this process has mapped for shared writing, but those mapped at the addresses ``copied``.
    Takes some 0.2 ms, more with more mappings."""
    try:
        found = [each for each in mappings(SHARED) if _is_a_file(each.path) and each.start not in copied]
    except OSError:
        return []  # there is no /proc
    return list(dict.fromkeys(each.path for each in found))


def number_of(file: os.stat_result) -> int:
    """The same in all processes of a host, and different for different files but for an unlikely chance."""
    return (file.st_dev << 40 ^ file.st_ino) & (1 << 64) - 1 or 1


def _is_a_file(path: str) -> bool:
    """Is the mapped path a file whose content the program may change?

    Semaphores of ``multiprocessing`` are no such files: :mod:`ckpt.image.stdlib.processes` saves their values. Nor is what
    :mod:`ckpt.reduction` has in the host's memory: what an image has of it is not changed any more.
    """
    if not path.startswith("/") or path.rpartition("/")[2].startswith("ckpt-reduction-"):
        return False
    return not path.startswith(("/dev/zero", "/memfd:", "/SYSV", "/dev/nvidia", "/dev/shm/sem."))


def available(meminfo: str = "/proc/meminfo", proc: str = "/proc/self") -> MemoryLeft | None:
    """The memory that all processes under the same limit can still get together before the kernel kills or swaps.

    ``None``: the kernel does not say.
    """
    machine = _machine_bytes(meminfo)
    found = [] if machine is None else [MemoryLeft(machine, False)]
    group = least_memory_left(proc)
    return min([*found, *([group] if group is not None else [])], default=None)


def prefer_for_oom_kill() -> None:
    """Ask the kernel to kill this process first when memory runs out, before others of the same control group."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"1000")
    except OSError:
        pass  # this kernel has no such file and chooses the process by its own rules


def _machine_bytes(meminfo: str) -> int | None:
    try:
        for line in _frames.read_file(meminfo).splitlines():
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # this kernel does not report MemAvailable
    return None
