"""Notes of the modules of the standard library as they are after their import. They are the notes that
:mod:`ckpt.image.modules.standard_changes` compares with.

A *note* is a copy of the dictionary of one owner: a module, a class that is written in Python, or a function or object that
a variable of the module holds. A function that has no attributes has no note: any that it has later are new. Copies of
dictionaries only, so that the modules that ranks need themselves take 2 ms, once, before ranks are forked. Those that a
program imports are noted after their import (:func:`ckpt.image.modules.package_baseline.watch`).

No code of the library runs.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from enum import EnumMeta
from typing import Any

from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.inspect_raw import Path, dictionary_of, package_of
from ckpt.image.modules.origins import is_standard
from ckpt.transport.records import NamedTuple, dataclass, field

__all__ = ["NO_OBJECTS", "Note", "StandardBaseline", "is_from_standard"]

_NOT_NOTED = frozenset({"weakref", "ctypes", "importlib", "multiprocessing.resource_tracker"})
"""Libraries and modules whose objects belong to one process: finalizers, libraries in C, the import system, the process that
removes shared memory."""
NO_OBJECTS = frozenset({"sys", "threading"})
"""Modules whose objects describe this process and its threads."""
_DIRECTORY = os.path.dirname(os.__file__) + os.sep


class Note(NamedTuple):
    """The note of one owner. ``part``: ``module``, ``class`` or ``attributes``, as in
    :class:`ckpt.image.modules.package_changes.Change`. ``live``: the owner's dictionary, or the owner if that is a class;
    ``noted``: a copy of the dictionary."""

    path: Path
    part: str
    owner: Any
    live: Any
    noted: dict[str, Any]


@dataclass(slots=True)
class StandardBaseline:
    """All notes of the standard library in a process. ``notes``: module's name → notes of it, of its classes and of its
    objects. ``seen``: the modules that :meth:`note_all` has looked at."""

    notes: dict[str, list[Note]] = field(default_factory=dict)
    seen: _lookup.ModuleStates = field(default_factory=_lookup.ModuleStates)

    def note_all(self) -> None:
        """Note the modules that have been imported and have no note yet."""
        for name in self.seen.changed(sys.modules):
            if name in self.notes or not is_standard(name):
                continue  # most: without a look at the module, whose page of memory a child would copy
            module = sys.modules[name]
            if (
                type(module) is types.ModuleType
                and module.__dict__.get("__name__") == name
                and is_from_standard(module)
            ):
                self.note(module)

    def note_again(self) -> None:
        """What the modules hold now is no change by the program: something of this process has put it there."""
        self.notes.clear()
        self.seen = _lookup.ModuleStates()
        self.note_all()

    def note(self, module: types.ModuleType) -> None:
        name = module.__dict__["__name__"]
        if name in self.notes or name in _NOT_NOTED or package_of(name) in _NOT_NOTED:
            return
        attributes = module.__dict__
        # what sys holds must not live longer: the streams of the program, its exceptions
        noted = dict.fromkeys(attributes) if name == "sys" else dict(attributes)
        notes = self.notes[name] = [Note((name,), "module", module, attributes, noted)]
        for key, value, namespace in _lookup.owners(
            dict(attributes) if name == "sys" else noted, name, False
        ):
            if namespace is not None:
                notes.append(Note((name, key), "class", value, value, namespace))
            elif name not in NO_OBJECTS:
                live = _attributes_of(value)
                if live is not None:
                    notes.append(Note((name, key), "attributes", value, live, dict(live)))


def is_from_standard(module: types.ModuleType) -> bool:
    """Is this the standard library's module, and not one of the program that has such a name (``queue.py``, ``code.py``)?"""
    if not is_standard(module.__name__):
        return False
    file = module.__dict__.get("__file__")
    return type(file) is not str or (file.startswith(_DIRECTORY) and "site-packages" not in file)


def _attributes_of(obj: Any) -> dict[str, Any] | None:
    """The dictionary of a function or of an instance; None: it has none that programs would change."""
    cls = type(obj)
    if cls is types.FunctionType:
        found: dict[str, Any] = obj.__dict__
        return found
    if issubclass(cls, threading.local) or type(cls) is EnumMeta:
        return None
    return dictionary_of(obj)
