"""Locks of installed modules that the program holds when an image is taken.

Such a lock is a variable of a module (``RE_LOCK = threading.Lock()``), or an attribute of one of its classes or objects. In
the new process the import makes the lock again, and it is free; but the program, which was inside of ``with RE_LOCK:``, will
release it. So the image holds the path to the lock, which is also its persistent id (``("held", kind, module, variable,
step, …)``), and the lock is acquired again when everything is loaded. Locks are searched for in

- variables of by-reference modules, and attributes of the classes defined there,
- the notes of installed packages (:mod:`ckpt.image.modules.package_baseline`),
- attributes of objects of which a method is on the stack, or a ``with`` block is entered, if the object is a variable of a
  module.

A lock that is not reentrant does not show which thread holds it. If other threads of the program run that are not in the
image (only harmless ones may, and they do not exist after a restart), such a lock in a note counts as held by the program
only if a method of its object is on the stack, or a ``with`` block of it is entered.

Not here: a lock that was assigned after the import, or that is in an object which is saved by value; both are saved as
ordinary objects (:mod:`ckpt.image.reducers.builtin_types`).
"""

from __future__ import annotations

import _thread
import importlib
import sys
import threading
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ckpt.compat import children, stdlib
from ckpt.compat.threads import rlock_owner
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.inspect_raw import Path, dictionary_of, follow, is_a
from ckpt.image.modules.package_baseline import Note, PackageBaseline, members
from ckpt.image.threads.restart import hold_later, note_lock
from ckpt.transport.records import NamedTuple

if TYPE_CHECKING:
    from ckpt.image.modules.references import References

__all__ = ["LockFinder", "HeldLock", "acquire_again", "find_held_locks", "is_free"]

_RLOCK = type(threading.RLock())
_ATTRIBUTES = Note._fields.index("attributes")
_EXCLUDED_PACKAGES = ("ckpt", "zmq", "threading")


class HeldLock(NamedTuple):
    """One lock that the program holds. ``times``: how often its thread has acquired it. ``owner``: identifier of the thread
    that holds a reentrant lock, if that is not the main thread."""

    path: Path
    lock: Any
    times: int
    owner: int = 0

    @property
    def pid(self) -> tuple[Any, ...]:
        """The persistent id of the lock."""
        return ("held", _lock_types()[type(self.lock)], *self.path)


def find_held_locks(
    references: References,
    notes: PackageBaseline,
    receivers: Iterable[object],
    threads: Container[int] = (),
) -> list[HeldLock]:
    """All such locks that the program may be holding. ``receivers``: objects of which a method is on a stack, or a
    ``with`` block is entered. ``threads``: identifiers of the other threads in the image.

    Must be called after :func:`ckpt.image.modules.plain_values.leave_out_unsavable`, which decides which objects of
    packages are saved by their path.
    """
    lock_types = frozenset(_lock_types())
    in_image = {threading.main_thread(), threading.current_thread()}
    are_all = all(thread in in_image or thread.ident in threads for thread in threading.enumerate())
    owners = None if are_all else {id(obj) for obj in receivers}
    found: dict[int, HeldLock] = {}
    for source in (
        _in_modules(references, notes, lock_types),
        _in_notes(references, notes, lock_types, owners),
        _in_receivers(references, receivers, lock_types),
    ):
        for path, lock in source:
            if id(lock) in found:
                continue
            owner = rlock_owner(lock)[0] if type(lock) is _RLOCK else 0
            if owner in threads:
                found[id(lock)] = HeldLock(path, lock, rlock_owner(lock)[1], owner)
            elif times := _times_held(lock):
                found[id(lock)] = HeldLock(path, lock, times)
    return list(found.values())


def _in_modules(
    references: References, notes: PackageBaseline, lock_types: frozenset[type]
) -> Iterator[tuple[Path, Any]]:
    for name, variable, attribute, lock in _lookup.instances(
        sys.modules, tuple(lock_types), _EXCLUDED_PACKAGES
    ):
        if name in references.by_value:
            continue
        if attribute is None:
            if references.name_of(lock) is not None:
                yield (name, variable), lock
            continue
        note = notes.objects.get(id(sys.modules[name].__dict__[variable]))
        if note is None or (note.attributes or {}).get(attribute) is lock:
            yield (name, variable, attribute), lock


def _in_notes(
    references: References, notes: PackageBaseline, lock_types: frozenset[type], owners: set[int] | None
) -> Iterator[tuple[Path, Any]]:
    """Locks in the notes. ``owners``: ids of the objects whose non-reentrant locks count; ``None``: those of all objects."""
    for note in _lookup.holding(notes.objects, _ATTRIBUTES, tuple(lock_types)):
        if references.name_of(note.obj) or id(note.obj) in references.changed.ids:
            for step, lock in members(note):
                counts = type(lock) is not _thread.LockType or owners is None or id(note.obj) in owners
                if type(lock) in lock_types and counts and _is_at((*note.path, step), lock):
                    yield (*note.path, step), lock


def _in_receivers(
    references: References, receivers: Iterable[object], lock_types: frozenset[type]
) -> Iterator[tuple[Path, Any]]:
    for obj in receivers:
        pid = references.name_of(obj)
        if pid is not None and pid[0] == "attr" and not is_a(obj, type):
            for attribute, lock in (dictionary_of(obj) or {}).items():
                if type(lock) in lock_types:
                    yield (*pid[1:], attribute), lock


def _is_at(path: Path, lock: Any) -> bool:
    try:
        return follow(path) is lock
    except (LookupError, AttributeError):
        return False


def _lock_types() -> dict[type, str]:
    """Type of lock → the name from which :func:`_new` makes a lock of this type."""
    found: dict[type, str] = {_thread.LockType: "Lock", _RLOCK: "RLock"}
    found |= {cls: f"multiprocessing.{cls.__name__}" for cls in _multiprocessing_types()}
    return found | {cls: f"{cls.__module__}.{cls.__qualname__}" for cls in _library_types()}


def _times_held(value: Any) -> int:
    if type(value) is _thread.LockType:
        return int(value.locked())
    if type(value) is _RLOCK:
        return stdlib.times_owned(value)
    if type(value) in _multiprocessing_types():
        return children.times_semaphore_owned(children.semaphore_of(value))
    return _count_by_release(value) if type(value) in _library_types() else 0


def is_free(value: Any) -> bool:
    """Is this a lock of :mod:`threading` or :mod:`multiprocessing` that nobody holds?"""
    if type(value) not in (_thread.LockType, _RLOCK, *_multiprocessing_types()) or _times_held(value):
        return False
    if not value.acquire(False):
        return False
    value.release()
    return True


def _count_by_release(lock: Any) -> int:
    """How often this thread holds a lock that tells only whether: released until it is free, and acquired again."""
    times = 0
    while stdlib.is_owned(lock):
        lock.release()
        times += 1
    for _ in range(times):
        lock.acquire()
    return times


def _multiprocessing_types() -> tuple[type, ...]:
    module = sys.modules.get("multiprocessing.synchronize")
    return () if module is None else (module.Lock, module.RLock)


def _library_types() -> tuple[type, ...]:
    """The types of reentrant locks that libraries name; h5py holds one in every call."""
    names = (name.partition(":") for library in libraries.loaded() for name in library.lock_types)
    classes = (getattr(sys.modules.get(module), name, None) for module, _, name in names)
    return tuple(cls for cls in classes if isinstance(cls, type))


def _new(type_name: str) -> Any:
    module, _, name = type_name.rpartition(".")
    return getattr(importlib.import_module(module or "threading"), name)()


class LockFinder:
    """Finds the locks while one image is loaded. If there is no lock at a path (another version of the package, or the
    package makes its locks when it needs them), a lock is made; the same lock is returned for the same path."""

    def __init__(self) -> None:
        self._new_locks: dict[Path, Any] = {}

    def find(self, pid: tuple[Any, ...]) -> Any:
        type_name, path = pid[1], pid[2:]
        if path in self._new_locks:
            return self._new_locks[path]
        try:
            found = follow(path)
        except (LookupError, AttributeError):
            found = None
        if _lock_types().get(type(found)) == type_name:
            return found
        return self._new_locks.setdefault(path, _new(type_name))


def acquire_again(locks: list[tuple[Any, int, int]]) -> None:
    """At load: acquire each lock as often as the program held it. ``locks``: (lock, times, owner)."""
    for lock, times, owner in locks:
        if owner:
            hold_later(lock, owner, times)
        elif not _times_held(lock):
            for _ in range(times):
                lock.acquire()
            if type(lock) is _thread.LockType:
                note_lock(lock)
