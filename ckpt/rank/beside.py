"""Waits of threads other than the main one: they drive nothing, and wait *beside* the thread that does. (driver)

Each waits at a lock of its own, which an image can have like any other lock that the program waits for. Whoever makes
progress wakes those that it may concern (:mod:`ckpt.transport.driver.waiters`).

Not here: the main thread's wait (:meth:`ckpt.rank.runtime.Runtime.block`).
"""

from __future__ import annotations

import time
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

from ckpt.compat.threads import captured_in_threads
from ckpt.errors import CkptError

if TYPE_CHECKING:
    from ckpt.rank.runtime import Runtime
    from ckpt.transport.driver.waiters import Bell

__all__ = ["NO_PORT", "wait_beside"]

NO_PORT = (
    "a library communicates while it is imported. A restart imports it anew, each rank at its own time, and can then give "
    "it what collectives had brought, but no other messages; let the library communicate when it is first used"
)

_BESIDE_S = 0.5
"""A thread that waits beside looks at its condition this often, though nobody has woken it: so it goes on after a restart,
where nobody knows of it. A wait that ends while an image is prepared has the image looked for again, so not more often."""


@captured_in_threads
def wait_beside(runtime: Runtime, hungry: bool, awaited: Any) -> None:
    """A thread waits that is not the main one. An image has this frame, so its variables are the program's: after a
    restart the thread waits on, until the time is over."""
    woken = allocate_lock()
    woken.acquire()
    if _enter(runtime, woken, hungry, awaited):
        return
    try:
        runtime.lock.release()
        woken.acquire(True, _BESIDE_S)
    finally:
        runtime.lock.acquire()
        _leave(runtime, woken)


def _enter(runtime: Runtime, woken: Bell, hungry: bool, awaited: Any) -> bool:
    """``True``: there has been progress already."""
    port, engine = runtime.port, runtime.engine
    if port is None or engine is None:
        raise CkptError(NO_PORT)
    if runtime.look_beside is not None:
        engine.look, runtime.look_beside = runtime.look_beside, None
    if port.enter_beside():
        runtime.tell_waiting()
        return True
    port.waiters.enter(woken, awaited, is_hungry=hungry)
    if hungry:
        port.endpoint.hungry(True, time.monotonic_ns())
    return False


def _leave(runtime: Runtime, woken: Bell) -> None:
    port = runtime.port
    assert port is not None
    port.waiters.leave(woken)
    port.endpoint.hungry(runtime.is_main_hungry or port.waiters.are_hungry, time.monotonic_ns())
