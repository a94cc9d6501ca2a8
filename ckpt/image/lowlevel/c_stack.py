"""Tests whether the main thread's C stack is large enough for the frames that a restart makes.

The rebuilt outer frames nest on the C stack until they return. An image whose frames no restart could rebuild is refused
when it is taken (`check`). Before the frames are made, the soft limit of the stack is raised if needed (`ensure`).

Not here: the deep stack on which the pickler runs (`_deep`).
"""

from __future__ import annotations

import resource

from ckpt.image.errors import Refused, RestoreError

__all__ = ["UNCHECKED_FRAMES", "check", "ensure"]

UNCHECKED_FRAMES = 64
"""So many frames fit into any limit with which the interpreter starts."""
_PER_FRAME_BYTES = 1024
_RESERVE_BYTES = 4 << 20
_LEAST_BYTES = 192 << 10
_LIMIT_BYTES = 120 << 20
"""The kernel keeps at least 128 MiB of address space for the main thread's stack."""


def check(frames: int) -> None:
    """Raise Refused for a stack of so many frames that a restart could not rebuild within the limit in force here."""
    limit = _reachable(resource.getrlimit(resource.RLIMIT_STACK)[1])
    if not _can_be_rebuilt(frames, limit):
        reason = f"{frames} frames cannot be rebuilt within {limit >> 10} KiB of C stack (ulimit -s)"
        raise Refused(reason, "the whole stack")


def ensure(frames: int) -> None:
    """Raise the soft limit of the main thread's C stack, if so many frames need that. Raises RestoreError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    need = frames * _PER_FRAME_BYTES + min(_RESERVE_BYTES, soft // 2)
    if soft == resource.RLIM_INFINITY or need <= soft:
        return
    limit = _reachable(hard)
    if not _can_be_rebuilt(frames, limit):
        raise RestoreError(
            f"a stack of {frames} frames needs {need >> 10} KiB of C stack, {limit >> 10} KiB can be had (ulimit -s)"
        )
    if limit > soft:
        resource.setrlimit(resource.RLIMIT_STACK, (limit, hard))


def _reachable(hard: int) -> int:
    """The highest soft limit that is of use, in bytes. `hard`: the hard limit."""
    return _LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(hard, _LIMIT_BYTES)


def _can_be_rebuilt(frames: int, limit: int) -> bool:
    """Do the frames fit into the limit? Only a small reserve is required, as the first process may have had no more."""
    return frames * _PER_FRAME_BYTES + _LEAST_BYTES <= limit
