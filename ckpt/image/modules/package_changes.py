"""Changes that a program has made in installed packages since their import: settings, registries, random generators.

The resumed process imports installed packages again, so their modules would have their initial state.

Words
    A *note* (:mod:`ckpt.image.modules.package_baseline`) is a shallow copy of an object of a package, taken after the
    import, with the path to the object: module, variable, steps. A *noted* object is an object with a note.

At dump, in the child
    Each noted object that is still found at its path is compared with its note, by ``is``, never by ``==``. Each difference
    is a :class:`Change`. A noted object itself is saved as a persistent id, ``("lib", module, variable, step, …)``, so that
    the program and the package share it after the restart too. There is one exception. A noted object is not *whole* if it
    held, when its note was taken, itself or through other noted objects, a mutable object without a note or a name: a change
    in that inner object cannot be seen. If the program refers to a noted object that is not whole, that object is saved by
    value, with everything in it.

    *All changes of a package are saved, or none*: half of a package's state may be worse than none (a flag that says that
    something is set up, without that thing). So a trial without output is made first. If the changes of a package cannot be
    saved, the package has its initial state after a restart, and the report of the image lists it in ``left_out``. But if a
    function on the stack uses the changed variable, the image fails with the name of the variable; a later one may succeed.
    Then the packages are left out of which a change is not *plain* (:mod:`ckpt.image.modules.plain_values`).

At load (:mod:`ckpt.image.modules.package_restore`)
    All modules have been imported. The changes are at the end of the stream, and are made, in place, when everything is
    loaded. No method of the package runs, except ``__hash__`` and ``__eq__`` of keys. A change that cannot be loaded or made
    is reported; the restart goes on.

Not here, and not saved
    - libraries with ``is_left_alone`` (:class:`ckpt.image.interface.library.Library`);
    - packages of which something else than settings and registries has changed (:mod:`ckpt.image.modules.plain_values`);
    - packages with compiled modules, which may keep state in C that belongs to their variables (reported), other than weak
      containers, unless the program asks for them (:func:`keep`);
    - containers with more entries than a note copies (reported if their number of entries has changed);
    - tables whose keys are addresses of objects, which must be empty in a new process, unless a library class names the
      modules that keep them;
    - objects without a note.
"""

from __future__ import annotations

import itertools
import operator
import random
import sys
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Any

from ckpt.compat import accelerators, threads
from ckpt.compat.stdlib import ABC_STATE
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.inspect_raw import (
    WEAK,
    Path,
    attributes_of,
    content_of,
    follow,
    is_a,
    is_named,
    is_special,
    namespace_of,
    package_of,
)
from ckpt.image.modules import lazy
from ckpt.image.modules.package_baseline import NO_LIBRARIES, Large, Note, PackageBaseline
from ckpt.image.modules.standard_baseline import Note as OwnerNote
from ckpt.transport.records import NamedTuple, dataclass, field

if TYPE_CHECKING:
    from ckpt.image.modules.references import Pid, References

__all__ = [
    "LOST",
    "Change",
    "Changed",
    "is_kept",
    "keep",
    "find_changes",
    "saved_content",
]

_UNSAVED = (types.ModuleType, weakref.ReferenceType, types.MemberDescriptorType, types.GetSetDescriptorType)
_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_MOST_NAMED = 8  # number of variables that a report names for one package
_LEAST_ADDRESS, _ALIGNMENT = 1 << 32, 8
_MISSING: Any = object()
_LIVE, _NOTED, _OBJECT = (
    OwnerNote._fields.index("live"),
    OwnerNote._fields.index("noted"),
    Note._fields.index("obj"),
)

LOST = frozenset({"unsaved", "not-plain"})
"""Kinds of left-out state of which each image, and a restart, are to say that it is lost."""
_COMPILED = "changed, not kept: the package has compiled modules, which may hold what belongs to it (ckpt.keep_package)"
_TOO_LARGE = (
    "changed, not kept: so large a table is not compared with that after the import (ckpt.keep_package)"
)
_ADDED = "not kept: what a program adds to this package, but for functions, classes, plain values and objects of its own"
_ADDRESSES = "a table by addresses of objects, which are others after a restart"


class Change(NamedTuple):
    """One difference between an object and its note.

    ``path``: of the object. ``part``: the part of the object that has changed: ``module`` (its variables), ``class`` (its
    attributes), ``attributes`` (of an instance), ``content`` (of a container), ``weak`` (content of a weak one), ``random``
    (state of a ``random.Random``), ``count`` (position of an ``itertools.count``), ``threads`` (attributes of a
    ``threading.local`` in the other threads, by their identifiers). ``value``: for the first three ({name: new value},
    [names that were deleted]); else the new content or state.
    """

    path: Path
    part: str
    value: Any

    @property
    def where(self) -> str:
        """The changed variable, written as in Python."""
        steps = "".join(f"[{step[0]!r}]" if type(step) is tuple else f".{step}" for step in self.path)
        names = [*self.value[0], *self.value[1]][:1] if self.part in ("module", "class", "attributes") else []
        return ".".join([steps[1:], *names])


@dataclass
class Changed:
    """The changes in all installed packages, for one image.

    ``changes``: top-level package → its changes; for the standard library, variable → its change
    (:mod:`ckpt.image.modules.standard_changes`). ``ids``: address → persistent id of a noted object. ``rebound``: (module,
    variable) whose variable is now bound to another object. ``left_out``: ``{"kind", "package", "variables", "reason"}`` of
    state that is not saved, so that it has its initial value after a restart; kinds: ``unsaved``, ``not-plain``,
    ``changed``, ``addresses``. ``is_whole``: do the note of an object and its changes give its whole state? See the module's
    header. ``compiled``: packages with compiled modules of which only weak containers are kept. ``threads``: see
    :attr:`ckpt.image.reducers.saver.Saver.threads`.
    """

    changes: dict[str, list[Change]] = field(default_factory=dict)
    ids: dict[int, Pid] = field(default_factory=dict)
    rebound: set[tuple[str, str]] = field(default_factory=set)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    is_whole: Callable[[Any], bool] = lambda obj: False
    compiled: set[str] = field(default_factory=set)
    threads: Mapping[int, tuple[threading.Thread, Any]] = field(default_factory=dict)

    def leave_out(self, kind: str, package: str, variables: list[str], reason: str) -> None:
        more = len(variables) - _MOST_NAMED
        named = [*variables[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
        if package in self.compiled:  # all else that has changed there is not kept either
            kind = "changed"
        self.left_out.append({"kind": kind, "package": package, "variables": named, "reason": reason})

    def give_up(self, package: str, changes: list[Change]) -> None:
        """These changes cannot be kept: nor is any other one of the package, unless all of these are of weak containers,
        which nothing relies on to hold what they held."""
        if all(change.part == "weak" for change in changes):
            self.changes[package] = [change for change in self.changes[package] if change not in changes]
        else:
            self.drop(package)

    def drop(self, package: str) -> None:
        """Forget all notes and changes of a package: its objects are saved as if they had no notes. What its variables have
        been bound to since is no longer found by their names after a restart: that stays."""
        self.changes.pop(package, None)
        self.ids = {address: pid for address, pid in self.ids.items() if package_of(pid[1]) != package}


_kept_packages: set[str] = set()


def keep(package: str) -> None:
    """From now on, save the changes in this package although it has compiled modules or not all of them are plain, and in
    tables of any size. Raises :class:`ValueError`: the name is not that of a package whose changes can be kept.
    """
    if not isinstance(package, str) or not package.isidentifier():
        raise ValueError(f"keep_package takes the name of a top-level module, not {package!r}")
    if package in sys.stdlib_module_names:
        raise ValueError(f"{package!r} is of the standard library, of which images hold no variables")
    if package in NO_LIBRARIES or libraries.is_left_alone(package):
        raise ValueError(f"images hold the settings of {package!r} in another way")
    _kept_packages.add(package)


def is_kept(package: str) -> bool:
    """Has the program asked for all changes of the package (:func:`keep`)?"""
    return package in _kept_packages


# ---------------------------------------------------------------------- saving


def find_changes(
    notes: PackageBaseline,
    references: References,
    threads: Mapping[int, tuple[threading.Thread, Any]] = types.MappingProxyType({}),
) -> Changed:
    """Compare all noted objects with their notes. Runs in the child, because that touches the memory of all noted objects.
    ``threads``: the other ones of the image, see :attr:`ckpt.image.reducers.saver.Saver.threads`. Raises nothing.
    """
    found = Changed(threads=threads)
    try:
        _find_changes(notes, references, found)
    except Exception as failure:  # not foreseen: the image is taken without the changes
        found = Changed()
        found.leave_out("unsaved", "*", [], f"{failure!r}, please report this")
    return found


def _find_changes(notes: PackageBaseline, references: References, found: Changed) -> None:
    differing = _lookup.differing(notes.modules, _LIVE, _NOTED)
    compiled_changes = Changed(threads=found.threads)
    compiled = _compiled({*notes.of_packages, *map(package_of, differing)}) - _kept_packages
    found.compiled = compiled
    for name in differing:
        module = notes.modules[name].owner
        if sys.modules.get(name) is not module:
            continue
        target = compiled_changes if package_of(name) in compiled else found
        changes = target.changes.setdefault(package_of(name), [])
        changes += _module_differences(notes.modules[name], target)
        for key, function in notes.functions_with_attributes(name):
            if id(function) not in notes.objects and module.__dict__.get(key) is function:
                changes += _differences(Note((name, key), function, {}, None), target)
    for package, of_package in notes.of_packages.items():
        target = compiled_changes if package in compiled else found
        # The persistent ids of objects of compiled packages are not used, so only what has changed is looked at.
        others = _lookup.may_differ(of_package, _OBJECT) if package in compiled else of_package.values()
        for note in list(others):
            if not _is_comparable(note, notes, references):
                continue
            # What a weak container holds belongs to what it is about, such as an object of the program
            of_note = found if type(note.obj) in WEAK else target
            if not (is_named(note.obj) if is_a(note.obj, type) else references.name_of(note.obj)):
                of_note.ids[id(note.obj)] = ("lib", *note.path)
            of_note.changes.setdefault(package, []).extend(_differences(note, of_note))
    found.is_whole = lambda obj: (
        is_a(obj, type) or notes.is_whole(obj, lambda value: bool(references.name_of(value)))
    )
    found.changes = {package: changes for package, changes in found.changes.items() if changes}
    found.left_out += compiled_changes.left_out
    found.rebound |= compiled_changes.rebound
    for package, changes in compiled_changes.changes.items():
        if changes:
            found.leave_out("changed", package, [change.where for change in changes], _COMPILED)
    for name in references.added.keys() & lazy.left_alone.keys():
        values = {
            key: getattr(sys.modules.get(name), "__dict__", {}).get(key) for key in references.added[name]
        }
        lost = [f"{name}.{key}" for key, value in values.items() if not references.is_patch(type(value))]
        if lost:
            found.leave_out("changed", package_of(name), lost, _ADDED)


def _is_comparable(note: Note, notes: PackageBaseline, references: References) -> bool:
    known = references.name_of(note.obj)
    if known is not None and (known[0] != "attr" or known[1] not in notes.modules):
        return False  # an object of the standard library, or the dictionary of a module
    if references.is_user_type(type(note.obj)) or libraries.is_filled(type(note.obj)):
        return False
    try:
        return follow(note.path) is note.obj
    except (LookupError, AttributeError):
        return False


def _module_differences(note: OwnerNote, found: Changed) -> Iterator[Change]:
    (name,) = note.path
    changed, deleted = _changed(note.noted, note.live)
    for key, value in changed.items():
        if not is_a(value, types.ModuleType):
            found.rebound.add((name, key))
            yield Change((name,), "module", ({key: value}, []))
    if deleted:
        yield Change((name,), "module", ({}, deleted))


def _changed(noted: dict[str, Any], present: Any) -> tuple[dict[str, Any], list[str]]:
    changed = {
        key: value
        for key, value in present.items()
        if noted.get(key, _MISSING) is not value and not (isinstance(key, str) and is_special(key))
    }
    deleted = [key for key in noted if key not in present and not is_special(key)]
    return changed, deleted


def _differences(note: Note, found: Changed) -> Iterator[Change]:
    obj, path = note.obj, note.path
    if is_a(obj, type):
        yield from _differences_of_class(note)
        return
    if note.attributes is not None:
        changed, deleted = _changed(note.attributes, attributes_of(obj) or {})
        if changed or deleted:
            yield Change(path, "attributes", (changed, deleted))
    if is_a(obj, threading.local):
        values = {ident: threads.values_of(obj, key) for ident, (_, key) in found.threads.items()}
        if any(values.values()):
            yield Change(path, "threads", {ident: dict(own) for ident, own in values.items() if own})
    if type(obj) is random.Random:
        state = accelerators.random.Random.getstate(obj)
        if state != note.content:  # tuples of integers, so that != is safe
            yield Change(path, "random", state)
    elif type(obj) is itertools.count:
        if repr(obj) != note.content:
            yield Change(path, "count", repr(obj))
    elif type(note.content) is Large:
        if len(content_of(obj)) != note.content.length:
            if package_of(path[0]) in _kept_packages:
                yield Change(path, "content", saved_content(obj))
            else:
                where = Change(path, "content", None).where
                found.leave_out("changed", package_of(path[0]), [where], _TOO_LARGE)
    elif note.content is not None and not _is_same(note.content, obj):
        if _is_by_address(obj) and not _is_renumbered(package_of(path[0])):
            found.leave_out(
                "addresses", package_of(path[0]), [Change(path, "content", None).where], _ADDRESSES
            )
        else:
            yield Change(path, "weak" if type(obj) in WEAK else "content", saved_content(obj))


def _differences_of_class(note: Note) -> Iterator[Change]:
    namespace, noted = namespace_of(note.obj), note.attributes or {}
    changed, deleted = _changed(noted, namespace)
    for key, value in namespace.items():
        if is_special(key) and noted.get(key, _MISSING) is not value and type(value) in _METHODS:
            changed[key] = value
    for key, value in changed.items():
        if not is_a(value, _UNSAVED) and key != ABC_STATE and not libraries.is_filled(type(value)):
            yield Change(note.path, "class", ({key: value}, []))
    if deleted:
        yield Change(note.path, "class", ({}, deleted))


def _is_same(noted: Any, obj: Any) -> bool:
    if is_a(noted, dict):
        return (
            len(noted) == dict.__len__(obj)
            and all(map(operator.is_, noted, dict.__iter__(obj)))
            and all(map(operator.is_, noted.values(), dict.values(obj)))
        )
    if is_a(noted, set):
        return len(noted) == set.__len__(obj) and set(map(id, noted)) == set(map(id, set.__iter__(obj)))
    present = content_of(obj)
    if is_a(obj, OrderedDict):
        return len(noted) == len(present) and all(
            a[0] is b[0] and a[1] is b[1] for a, b in zip(noted, present, strict=True)
        )
    return len(noted) == len(present) and all(map(operator.is_, noted, present))


def _is_by_address(obj: Any) -> bool:
    """Do all keys, or members, look like results of ``id()``: large integers, aligned?"""
    keyed: Any = getattr(obj, "data", None) if type(obj) is weakref.WeakValueDictionary else obj
    keys = list(dict.__iter__(keyed) if is_a(keyed, dict) else set.__iter__(obj) if is_a(obj, set) else ())
    return bool(keys) and all(
        type(key) is int and key > _LEAST_ADDRESS and key % _ALIGNMENT == 0 for key in keys
    )


def _is_renumbered(package: str) -> bool:
    """Do the addresses in tables of this package become those of the new process (:mod:`ckpt.image.pickling.id_tables`)?"""
    return any(package_of(name) == package for library in libraries.loaded() for name in library.id_tables)


def saved_content(obj: Any) -> Any:
    if is_a(obj, set):
        return _lookup.layout(obj) if type(obj) is set else list(set.__iter__(obj))
    present = content_of(obj)
    return list(present.items()) if isinstance(present, dict) else present


def _compiled(packages: set[str]) -> set[str]:
    """Those of the top-level packages of which a compiled module is loaded."""
    suffixes = tuple(EXTENSION_SUFFIXES)
    found = set()
    for name in list(sys.modules) if packages else ():
        if package_of(name) in packages and package_of(name) not in found:
            file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
            if type(file) is str and file.endswith(suffixes):
                found.add(package_of(name))
    return found
