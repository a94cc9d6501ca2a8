"""Finds what a program has put into the standard library: variables of modules, attributes of classes, functions, objects.

The resumed process imports the standard library again, so all of this would have its initial state: a file bound to
``json.own``, ``socketserver.TCPServer.allow_reuse_address = True``, ``json.JSONEncoder.default = convert``.

Rules
    In the child each owner is compared with its note (:mod:`ckpt.image.modules.standard_baseline`): the values by ``is``, in
    C code that changes no reference count.

    A difference becomes a :class:`ckpt.image.modules.package_changes.Change` of its own, named by the variable: each one is
    saved or, if it cannot be saved, named in the report, independently of the others. All are put back by
    :mod:`ckpt.image.modules.package_restore`.

Not a difference
    - what a function of the module itself binds with ``global``: the library's own state, such as variables that are made
      when they are first needed (:mod:`ckpt.image.modules.lazy`);
    - what ranks put there themselves before the program begins;
    - submodules, weak references, names with two underscores other than methods of classes;
    - in ``sys``: variables that exist from the start, which :mod:`ckpt.image.process.resources` saves.

Not here: the content of tables that modules hold (``re._cache``, ``mimetypes.types_map``), which the library changes itself;
settings that a library keeps by functions (:meth:`ckpt.image.interface.library.Library.note_settings`); functions and
instances of the program that modules have got (:meth:`ckpt.image.modules.references.References.patches`).
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Collection, Iterator
from typing import Any

from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.inspect_raw import is_a, is_special, namespace_of, package_of
from ckpt.image.modules.lazy import is_bound_by_functions
from ckpt.image.modules.origins import OWN_PACKAGES
from ckpt.image.modules.package_changes import Change, Changed
from ckpt.image.modules.standard_baseline import NO_OBJECTS, Note, StandardBaseline

__all__ = ["find_changes"]

_NO_STATE = (types.MemberDescriptorType, types.GetSetDescriptorType, weakref.ReferenceType)
_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_LIVE, _NOTED = Note._fields.index("live"), Note._fields.index("noted")
_MISSING: Any = object()


def find_changes(
    baseline: StandardBaseline,
    by_value: Collection[str],
    patched: Collection[tuple[str, str]],
    found: Changed,
) -> None:
    """Add the differences to ``found``. Runs in the child. ``by_value``: names of modules that are saved by value, and so no
    modules of the standard library. ``patched``: (module, variable) of what is saved as a patch."""
    for name in _lookup.differing(baseline.notes, _LIVE, _NOTED):
        notes = baseline.notes[name]
        if sys.modules.get(name) is not notes[0].owner or name in by_value:
            continue
        changed = [note for note in notes if not _lookup.same(note.noted, note.live)]
        for note in changed + _functions_with_new_attributes(name, notes):
            for change in _differences(note):
                if note.part == "module":
                    key = next(iter([*change.value[0], *change.value[1]]))
                    if (name, key) in patched or _is_bound_by_library(note, key):
                        continue
                    found.rebound.add((name, key))
                found.changes.setdefault(change.where, []).append(change)


def _functions_with_new_attributes(name: str, notes: list[Note]) -> list[Note]:
    """A note, with no attributes, of each function that had none when the module was noted, and has some now."""
    if name in NO_OBJECTS:
        return []
    found = _lookup.owners(notes[0].noted, name, True)
    known = {id(note.owner) for note in notes} if found else ()
    return [
        Note((name, key), "attributes", function, function.__dict__, {})
        for key, function, _ in found
        if id(function) not in known
    ]


def _differences(note: Note) -> Iterator[Change]:
    if note.part != "module" and sys.modules[note.path[0]].__dict__.get(note.path[1]) is not note.owner:
        return  # its variable holds another object: a difference of the module
    present = namespace_of(note.owner) if note.part == "class" else note.live
    # Its values are not noted: see _is_bound_by_library
    is_unknown = note.part == "module" and note.path[0] == "sys"
    for key, value in list(present.items()):
        if is_unknown and key in note.noted:
            continue
        if note.noted.get(key, _MISSING) is not value and _is_state(note, key, value):
            yield Change(note.path, note.part, ({key: value}, []))
    for key in note.noted:
        if key not in present and not is_special(key):
            yield Change(note.path, note.part, ({}, [key]))


def _is_state(note: Note, key: Any, value: Any) -> bool:
    if type(key) is not str or key.startswith("_abc_") or is_a(value, _NO_STATE) or _is_of_ckpt(value):
        return False
    if is_a(value, types.ModuleType):
        name = value.__dict__.get("__name__")
        return sys.modules.get(name) is value and name != f"{note.path[0]}.{key}"
    return not is_special(key) or (note.part == "class" and type(value) in _METHODS)


def _is_of_ckpt(value: Any) -> bool:
    home = getattr(value, "__module__", None) if type(value) in (types.FunctionType, type) else None
    return type(home) is str and package_of(home) in OWN_PACKAGES


def _is_bound_by_library(note: Note, key: str) -> bool:
    """Does the library itself bind this variable?"""
    if note.path[0] == "sys":
        return key in note.noted or key.startswith("last_")
    return is_bound_by_functions(note.owner, key)
