"""Locks that installed modules keep in variables (``RE_LOCK = threading.Lock()``), classes, or objects of which a method
runs, and that the program held.

Such a lock is found again by its name in the new process, where it is free; the code that was inside of ``with RE_LOCK:``
will release it. Locks that are reached by other ways are ordinary objects (:mod:`ckpt.image.reducers_builtin`).
"""

from __future__ import annotations

import _thread
import sys
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ckpt.image.raw import dictionary_of, is_a, space_of

if TYPE_CHECKING:
    from ckpt.image.modules import References

__all__ = ["hold_again", "note_held"]

_NOT_THE_PROGRAMS = ("ckpt", "transport", "controller", "zmq", "threading")


def note_held(references: References, receivers: Iterable[object] = ()) -> list[tuple[str, str, int]]:
    """``(module, name, times)`` of every such lock that this thread may be holding. ``receivers``: objects of which a method
    runs."""
    found: list[tuple[str, str, int]] = []
    kinds = {_thread.LockType, _thread.RLock, *_of_multiprocessing()}
    for name, module in list(sys.modules.items()):
        if name in references.by_value or name.partition(".")[0] in _NOT_THE_PROGRAMS:
            continue
        if not issubclass(type(module), types.ModuleType):
            continue
        for key, value in list(module.__dict__.items()):
            kind = type(value)
            if kind in kinds:
                found += [(name, key, times)] if (times := _times_held(value)) else []
            elif kind is type and space_of(value).get("__module__") == name:
                for attribute, lock in list(space_of(value).items()):
                    if type(lock) in kinds and (times := _times_held(lock)):
                        found.append((name, f"{key}.{attribute}", times))
    for obj in receivers:
        pid = references.name_of(obj)
        if pid is not None and pid[0] == "attr" and not is_a(obj, type):
            for attribute, lock in (dictionary_of(obj) or {}).items():
                if type(lock) in kinds and (times := _times_held(lock)):
                    found.append((pid[1], f"{pid[2]}.{attribute}", times))
    return found


def _times_held(value: Any) -> int:
    if type(value) is _thread.LockType:
        return int(value.locked())
    if type(value) is _thread.RLock and value._is_owned():  # type: ignore[attr-defined]
        count, owner = value._release_save()  # type: ignore[attr-defined]
        value._acquire_restore((count, owner))  # type: ignore[attr-defined]
        return int(count)
    if type(value) in _of_multiprocessing() and value._semlock._is_mine():
        return int(value._semlock._count())
    return 0


def _of_multiprocessing() -> tuple[type, ...]:
    module = sys.modules.get("multiprocessing.synchronize")
    return () if module is None else (module.Lock, module.RLock)


def hold_again(held: list[tuple[str, str, int]]) -> None:
    for module, name, times in held:
        lock: Any = sys.modules.get(module)
        for step in name.split("."):
            lock = getattr(lock, step, None)
        if lock is not None and not _times_held(lock):
            for _ in range(times):
                lock.acquire()
