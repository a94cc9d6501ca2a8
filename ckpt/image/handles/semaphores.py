"""Objects that ``multiprocessing`` makes of semaphores: ``Semaphore``, ``Condition``, ``Event``, and the wrappers of
``Value`` and ``Array``. Locks and bounded semaphores: :mod:`ckpt.image.stdlib.processes`.

The value of a semaphore is in memory that the program shares with its child processes and with the copy that writes an
image, so it is noted while all threads of the program stand still (:meth:`Semaphores.copy_out`). After a restart there is
no child process that holds or awaits anything:

=================  ==================================================================================================
``Semaphore``      has the value that was noted. While there are child processes it is refused: how often they hold it,
                   which they do no more after a restart, nobody knows
``Condition``      is made anew, with its lock. Nobody waits for it: no image is taken while a thread of the program does
``Event``          is set or not. If another process was just at it, that cannot be told, and the image fails
``Barrier``        is refused while there are child processes: how many of those that wait at it are theirs, nobody knows
``Synchronized``   is made anew of its lock and its object (:mod:`ckpt.image.handles.shared_heap`)
=================  ==================================================================================================

No image is taken while one of these is being made or removed, or the resource tracker is told of it: its number and its
pipe are others in a new process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ckpt.compat import children
from ckpt.image.errors import ObjectRefused
from ckpt.image.frames import c_waits
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = [
    "ResourceTrackers",
    "Semaphores",
    "SynchronizedTypes",
    "make_condition",
    "make_event",
    "make_semaphore",
    "make_synchronized",
]

_MODULE = "multiprocessing.synchronize"
_ACQUIRE = ("acquire", "__enter__")
_AT_IT = "the program uses a condition or an event of multiprocessing"


class Semaphores(Library):
    """multiprocessing.synchronize"""

    transient_functions = (
        *((f"{_MODULE}:Condition.{name}", _AT_IT) for name in ("wait", "notify")),
        *((f"{_MODULE}:Event.{name}", _AT_IT) for name in ("is_set", "set", "clear", "wait")),
        *children.SEMAPHORE_MOMENTS,
    )
    moment_limit_s = 1e9  # what such a call has half done is not in an image

    def __init__(self, name: str) -> None:
        super().__init__(name)
        if _is_wait not in c_waits.further:
            c_waits.further.append(_is_wait)
        self._values: dict[int, int] = {}
        self._has_children = False

    def copy_out(self, *, is_writing: bool, available: Callable[[], int | None]) -> None:
        self._values = {
            id(each): children.semaphore_value(children.semaphore_of(each)) for each in children.semaphores()
        }
        self._has_children = bool(children.children_started())

    def reducers(self) -> dict[type, Reducer]:
        return by_name(
            self.name,
            {
                "Barrier": self._reduce_barrier,
                "Semaphore": self._reduce_semaphore,
                "Condition": reduce_condition,
                "Event": self._reduce_event,
            },
        )

    def _noted(self, semaphore: Any) -> int:
        value = self._values.get(id(semaphore))
        if value is None:
            raise ObjectRefused(
                semaphore, "a semaphore of multiprocessing was made after the image was prepared"
            )
        return value

    def _reduce_semaphore(self, saver: Any, semaphore: Any) -> Any:
        if self._has_children:
            raise ObjectRefused(
                semaphore,
                "a multiprocessing.Semaphore cannot be saved while there are child processes: how often they hold it is not "
                "known; a BoundedSemaphore can",
            )
        return make_semaphore, (type(semaphore), self._noted(semaphore), children.method_of(semaphore))

    def _reduce_barrier(self, saver: Any, barrier: Any) -> Any:
        if self._has_children:
            raise ObjectRefused(
                barrier,
                "a multiprocessing.Barrier cannot be saved while there are child processes, which may wait at it",
            )
        return reduce_raw(saver, barrier)

    def _reduce_event(self, saver: Any, event: Any) -> Any:
        lock, flag = children.parts_of_event(event)
        if not self._noted(lock):
            raise ObjectRefused(
                event,
                "a multiprocessing.Event was in use by another process just when the image was taken",
            )
        return make_event, (type(event), bool(self._noted(flag)), children.method_of(lock))


def _is_wait(obj: Any, method: str) -> bool:
    """A call that waits for a lock or a bounded semaphore. What it has taken counts when the interpreter's lock is held
    again; until then the image, which saves that count, has it free, and the call takes it once more."""
    if method not in _ACQUIRE or type(obj) is not children.type_of_semaphores():
        return False
    return type(children.owner_of_semaphore(obj)).__name__ in ("Lock", "RLock", "BoundedSemaphore")


class ResourceTrackers(Library):
    """multiprocessing.resource_tracker: a new process has another tracker, behind another pipe. These calls look for it
    once, at their beginning."""

    transient_functions = children.TRACKER_MOMENTS


class SynchronizedTypes(Library):
    """multiprocessing.sharedctypes"""

    def reducer_by_base(self, cls: type) -> Reducer | None:
        return reduce_synchronized if issubclass(cls, getattr(self.module, "SynchronizedBase", ())) else None

    def note_settings(self) -> list[type]:
        return children.shared_types()

    def apply_settings(self, saved: list[type]) -> None:
        children.share_types(saved)


def reduce_condition(saver: Any, condition: Any) -> Any:
    lock = children.lock_of(condition)
    return make_condition, (type(condition), lock, children.method_of(lock))


def reduce_synchronized(saver: Any, wrapper: Any) -> Any:
    return make_synchronized, children.parts_of_synchronized(wrapper)


# ---------------------------------------------------------------------- called while loading


def _context(method: str) -> Any:
    import multiprocessing

    return multiprocessing.get_context(method)


def make_semaphore(cls: Any, value: int, method: str) -> Any:
    return cls(value, ctx=_context(method))


def make_condition(cls: Any, lock: Any, method: str) -> Any:
    return cls(lock, ctx=_context(method))


def make_event(cls: Any, is_set: bool, method: str) -> Any:
    made = cls(ctx=_context(method))
    if is_set:
        made.set()
    return made


def make_synchronized(obj: Any, lock: Any) -> Any:
    return sys.modules["multiprocessing.sharedctypes"].synchronized(obj, lock)
