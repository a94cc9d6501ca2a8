"""fastrlock: reentrant locks in C, which packages keep in variables. Held locks are acquired again after a restart."""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["FastRLock"]


class FastRLock(Library):
    lock_types = ("fastrlock.rlock:FastRLock",)
