"""Locks of installed modules that the program holds when an image is taken.

Such a lock is a variable of a module (``RE_LOCK = threading.Lock()``), or an attribute of one of its classes or objects. In
the new process the import makes the lock again, and it is free; but the program, which was inside of ``with RE_LOCK:``, will
release it. So the image holds the path to the lock, which is also its persistent id (``("held", kind, module, variable,
step, …)``), and the lock is acquired again when everything is loaded. Locks are searched for in

- variables of by-reference modules, and attributes of the classes defined there,
- the notes of installed packages (:mod:`ckpt.image.modules.package_baseline`),
- attributes of objects of which a method is on the stack, if the object is a variable of a module.

A lock that is not reentrant does not show which thread holds it. If other threads of the program run (only harmless ones
may, and they do not exist after a restart), such a lock in a note counts as held by the program only if a method of its
object is on the stack.

Not here: a lock that was assigned after the import, or that is in an object which is saved by value; both are saved as
ordinary objects (:mod:`ckpt.image.reducers.builtin_types`).
"""

from __future__ import annotations

import _thread
import importlib
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ckpt.compat import stdlib
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel.inspect_raw import Path, dictionary_of, follow, is_a, namespace_of
from ckpt.image.modules.package_baseline import PackageBaseline, members

if TYPE_CHECKING:
    from ckpt.image.modules.references import References

__all__ = ["Finder", "HeldLock", "hold_again", "note_held"]

_RLOCK = type(threading.RLock())
_OURS = 2  # the main thread and the port's helper
_NOT_THE_PROGRAMS = ("ckpt", "zmq", "threading")


class HeldLock(NamedTuple):
    """One lock that the program holds. ``times``: how often the thread that runs the program has acquired it."""

    path: Path
    lock: Any
    times: int

    @property
    def pid(self) -> tuple[Any, ...]:
        """The persistent id of the lock."""
        return ("held", _kinds()[type(self.lock)], *self.path)


def note_held(references: References, notes: PackageBaseline, receivers: Iterable[object]) -> list[HeldLock]:
    """All such locks that this thread may be holding. ``receivers``: objects of which a method is on the stack.

    Must be called after :func:`ckpt.image.modules.package_changes.settle`, which decides which objects of packages are saved
    by their path.
    """
    kinds = frozenset(_kinds())
    owners = None if threading.active_count() <= _OURS else {id(obj) for obj in receivers}
    found: dict[int, HeldLock] = {}
    for source in (
        _in_modules(references, notes, kinds),
        _in_notes(references, notes, kinds, owners),
        _in_receivers(references, receivers, kinds),
    ):
        for path, lock in source:
            if id(lock) not in found and (times := _times_held(lock)):
                found[id(lock)] = HeldLock(path, lock, times)
    return list(found.values())


def _in_modules(
    references: References, notes: PackageBaseline, kinds: frozenset[type]
) -> Iterator[tuple[Path, Any]]:
    for name, module in list(sys.modules.items()):
        if name in references.by_value or name.partition(".")[0] in _NOT_THE_PROGRAMS:
            continue
        if not issubclass(type(module), types.ModuleType):
            continue
        for key, value in list(module.__dict__.items()):
            kind = type(value)
            if kind in kinds:
                if references.name_of(value) is not None:
                    yield (name, key), value
            elif kind is type and namespace_of(value).get("__module__") == name:
                note = notes.objects.get(id(value))
                for attribute, lock in list(namespace_of(value).items()):
                    is_old = note is None or (note.attributes or {}).get(attribute) is lock
                    if type(lock) in kinds and is_old:
                        yield (name, key, attribute), lock


def _in_notes(
    references: References, notes: PackageBaseline, kinds: frozenset[type], owners: set[int] | None
) -> Iterator[tuple[Path, Any]]:
    """Locks in the notes. ``owners``: ids of the objects whose non-reentrant locks count; ``None``: those of all objects."""
    for note in list(notes.objects.values()):
        values = [*(note.attributes or {}).values(), *_values(note.content)]
        if kinds.isdisjoint(map(type, values)):
            continue
        if references.name_of(note.obj) or id(note.obj) in references.changed.ids:
            for step, lock in members(note):
                is_mine = type(lock) is not _thread.LockType or owners is None or id(note.obj) in owners
                if type(lock) in kinds and is_mine and _is_there((*note.path, step), lock):
                    yield (*note.path, step), lock


def _values(content: Any) -> Iterable[Any]:
    return content.values() if type(content) is dict else content if type(content) is list else ()


def _in_receivers(
    references: References, receivers: Iterable[object], kinds: frozenset[type]
) -> Iterator[tuple[Path, Any]]:
    for obj in receivers:
        pid = references.name_of(obj)
        if pid is not None and pid[0] == "attr" and not is_a(obj, type):
            for attribute, lock in (dictionary_of(obj) or {}).items():
                if type(lock) in kinds:
                    yield (*pid[1:], attribute), lock


def _is_there(path: Path, lock: Any) -> bool:
    try:
        return follow(path) is lock
    except (LookupError, AttributeError):
        return False


def _kinds() -> dict[type, str]:
    """Type of lock → the name from which :func:`_new` makes a lock of this type."""
    found: dict[type, str] = {_thread.LockType: "Lock", _RLOCK: "RLock"}
    found |= {kind: f"multiprocessing.{kind.__name__}" for kind in _of_multiprocessing()}
    return found | {kind: f"{kind.__module__}.{kind.__qualname__}" for kind in _of_libraries()}


def _times_held(value: Any) -> int:
    if type(value) is _thread.LockType:
        return int(value.locked())
    if type(value) is _RLOCK:
        return stdlib.times_owned(value)
    if type(value) in _of_multiprocessing():
        return stdlib.times_semaphore_owned(stdlib.semaphore_of(value))
    return _count_by_release(value) if type(value) in _of_libraries() else 0


def _count_by_release(lock: Any) -> int:
    """How often this thread holds a lock that tells only whether: released until it is free, and acquired again."""
    times = 0
    while stdlib.is_owned(lock):
        lock.release()
        times += 1
    for _ in range(times):
        lock.acquire()
    return times


def _of_multiprocessing() -> tuple[type, ...]:
    module = sys.modules.get("multiprocessing.synchronize")
    return () if module is None else (module.Lock, module.RLock)


def _of_libraries() -> tuple[type, ...]:
    """The types of reentrant locks that libraries name; h5py holds one in every call."""
    names = (name.partition(":") for each in libraries.loaded() for name in each.lock_types)
    kinds = (getattr(sys.modules.get(module), name, None) for module, _, name in names)
    return tuple(kind for kind in kinds if isinstance(kind, type))


def _new(kind: str) -> Any:
    module, _, name = kind.rpartition(".")
    return getattr(importlib.import_module(module or "threading"), name)()


class Finder:
    """Finds the locks while one image is loaded. If there is no lock at a path (another version of the package, or the
    package makes its locks when it needs them), a lock is made; the same lock is returned for the same path."""

    def __init__(self) -> None:
        self._made: dict[Path, Any] = {}

    def find(self, pid: tuple[Any, ...]) -> Any:
        kind, path = pid[1], pid[2:]
        if path in self._made:
            return self._made[path]
        try:
            found = follow(path)
        except (LookupError, AttributeError):
            found = None
        if _kinds().get(type(found)) == kind:
            return found
        return self._made.setdefault(path, _new(kind))


def hold_again(held: list[tuple[Any, int]]) -> None:
    """At load: acquire each lock as often as the program held it. ``held``: (lock, times)."""
    for lock, times in held:
        if not _times_held(lock):
            for _ in range(times):
                lock.acquire()
