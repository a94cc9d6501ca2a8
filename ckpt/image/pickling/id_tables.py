"""Tables that keep objects by their ``id()``: the objects are elsewhere after a restart, and so the keys become others.

Only these tables, of all places that may hold such a number:

=========================================================  ===================================================
table                                                      what becomes new
=========================================================  ===================================================
a ``dict`` with a key that is the address of the object    its keys
that the value is, refers to weakly, or holds (in a tuple
or list): ``{id(obj): obj}``, ``WeakValueDictionary``
a ``dict`` or ``set`` of which all numbers among the keys  its keys, its members
or members may be addresses: ``{id(obj): value}``,
``{id(obj)}``; numbers within tuples too:
``{(id(obj), id(function)): value}``
the memo of ``copy.deepcopy``                              its keys
in variables and closures of functions, and attributes of  keys, members, entries and values, within tuples and
objects, of modules that a library names in                tables too
:attr:`ckpt.image.interface.library.Library.id_tables`
numbers there, and in default arguments, by themselves;    the number
in texts there: ``f"enter@{id(obj)}"``
variables of running functions                             the address of an object that is in a variable of a
                                                           running function
=========================================================  ===================================================

The tables are noted while the image is written. At its end the pickler has met all objects of the image, so that the numbers
among them that are addresses of such objects are known. A table is restored with the old numbers; when everything has been
loaded, :func:`renumber` replaces them. A number that is the address of nothing in the image stays what it is.

Not here: the number that a weak reference of a subclass keeps itself (``reduce_weakref``); numbers in other places, which
stay what they are, and which ``ckpt doctor`` names (:mod:`ckpt.image.trial`); functions that are waited for
(:mod:`ckpt.image.frames.unrecordable`, :mod:`ckpt.image.interface.transient`).
"""

from __future__ import annotations

import operator
import re
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.inspect_raw import ADDRESSES, attributes_of, content_of, is_a, package_of
from ckpt.image.modules.package_restore import put_attributes, put_content

if TYPE_CHECKING:
    from ckpt.image.frames.stack import FrameRecord
    from ckpt.image.reducers.saver import Reducer, Saver

__all__ = ["Batch", "IdTables", "Table", "numbers_in", "reduce_batch", "renumber"]

Table = tuple[Any, bool, list[tuple[int, Any]]]
"""Container, or a cell, function or instance that holds numbers by themselves; is all of it renumbered, or its keys only?
numbers, each with its object."""

_CONTAINERS = (dict, set, list, deque)
_NUMBER = re.compile(r"0x[0-9a-f]{9,}|(?<![0-9])[1-9][0-9]{9,}")  # in a text, of the size of addresses
_LEVELS = 3  # of containers in each other that are looked into, of named modules
_SINGLETONS = {id(obj): (obj,) for obj in (None, True, False, ..., NotImplemented)}


class Batch:
    """Stands for the tables noted so far; pickled as the list of :data:`Table` for :func:`renumber`."""

    def __init__(self, tables: IdTables) -> None:
        self.tables = tables


class IdTables:
    """The tables that one pickler has met. ``places``: objects with a method ``at(address)``, which returns the object at an
    address as a 1-tuple, or None; for objects that are not in the pickler's memo."""

    def __init__(self, saver: Saver, *places: Any) -> None:
        self._saver = saver
        self._places = (*places, saver.references)
        self._modules = tuple(name for library in libraries.loaded() for name in library.id_tables)
        self._noted: dict[int, tuple[Any, bool]] = {}
        self._taken: set[int] = set()

    # ------------------------------------------------------------------ noting

    def note(self, table: Any, is_whole: bool = False) -> None:
        if id(table) in self._taken:
            return  # the pickler asks for every object again where it is met again
        if not self._noted:
            self._saver.defer(renumber, Batch(self))
        known = self._noted.get(id(table))
        self._noted[id(table)] = table, is_whole or (known is not None and known[1])

    def note_frames(self, frames: Iterable[FrameRecord]) -> None:
        """Note variables of running functions with the address of an object that is in such a variable, too; and the tables
        in variables of functions of the named modules."""
        lists = [(record, values) for record in frames for values in (record.locals, record.stack)]
        addresses: set[int] = set()
        if any(True for _, values in lists for value in values for _ in _numbers_of(value, False)):
            addresses.update(id(value) for _, values in lists for value in values)
        for record, values in lists:
            if any(number in addresses for value in values for number in _numbers_of(value, False)):
                self.note(values, True)
            module = getattr(record.func, "__module__", None)
            if self._is_named(module):
                self.note(values, True)
                self.note_variables(module, values)

    def note_variables(self, module: str | None, values: list[Any]) -> None:
        """Note the tables among the variables of a function of that module."""
        for value in values if self._is_named(module) else ():
            self._note_cell(value) if type(value) is types.CellType else self._note_container(value)

    def note_items(self, container: Any, items: list[Any]) -> bool:
        """Note a list of items of a set, if there are numbers in the set that may be addresses. Are there?"""
        has_numbers = is_a(container, set) and any(True for _ in numbers_in(container, False))
        if has_numbers:
            self.note(items, True)
        return has_numbers

    def note_function(self, function: types.FunctionType) -> None:
        """Note what a function that no name leads to keeps: a callback that takes an object out of a table."""
        if self._modules and self._is_named(function.__module__):
            for cell in function.__closure__ or ():
                self._note_cell(cell)
            self._note_holder(function, function.__defaults__ or ())

    def note_change(self, package: str, value: Any) -> None:
        """Note what has changed in an installed package with named modules; ``value``: as in
        :class:`ckpt.image.modules.package_changes.Change`. The object that is changed may be a variable of any module of
        the package."""
        if any(package_of(name) == package for name in self._modules):
            self._note_container(value)
            if type(value) is tuple and value and type(value[0]) is dict:
                for attribute in value[0].values():
                    self._note_container(attribute)

    def noting(self, cls: type, reduce: Reducer) -> Reducer:
        """``reduce``, or a reducer that also notes the attributes, if the class or a base is of a named module."""
        if not self._modules or not any(self._is_named(c.__dict__.get("__module__")) for c in cls.__mro__):
            return reduce

        def reduce_and_note(saver: Saver, obj: Any) -> Any:
            values = list((attributes_of(obj) or {}).values())
            for value in values:
                self._note_container(value)
            if is_a(obj, _CONTAINERS):
                self._note_container(obj)
            else:
                self._note_holder(obj, values)
            return reduce(saver, obj)

        return reduce_and_note

    def _note_cell(self, cell: types.CellType) -> None:
        values = _content(cell)
        for value in values:
            self._note_container(value)
        self._note_holder(cell, values)

    def _note_holder(self, holder: Any, values: Iterable[Any]) -> None:
        """Note an object that is no container, if a number among what it holds may be an address."""
        if any(True for value in values for _ in _numbers_of(value)):
            self.note(holder, True)

    def _note_container(self, value: Any, levels: int = _LEVELS) -> None:
        if not is_a(value, _CONTAINERS):
            return
        self.note(value, True)
        if levels > 1:
            for inner in _members(value, True):
                inner_parts = inner if type(inner) is tuple else (inner,)
                for part in inner_parts:
                    self._note_container(part, levels - 1)

    def _is_named(self, module: object) -> bool:
        return isinstance(module, str) and any(
            module == name or module.startswith(f"{name}.") for name in self._modules
        )

    # ------------------------------------------------------------------ the end of the image

    def take(self) -> list[Table]:
        """The tables noted since the last call, with the objects that the numbers in them are the addresses of."""
        noted = list(self._noted.values())
        self._taken |= self._noted.keys()
        self._noted.clear()
        wanted = [(table, is_whole, set(numbers_in(table, is_whole))) for table, is_whole in noted]
        if not any(numbers for _, _, numbers in wanted):
            return []
        memo = self._saver.copy_of_memo()
        found: list[Table] = []
        for table, is_whole, numbers in wanted:
            pairs = [
                (number, found_object[0])
                for number in numbers
                if (found_object := self.object_at(number, memo))
            ]
            if pairs:
                found.append((table, is_whole, pairs))
        return found

    def is_known(self, container: Any) -> bool:
        return id(container) in self._noted or id(container) in self._taken

    def object_at(self, number: int, memo: dict[int, tuple[int, Any]]) -> tuple[Any] | None:
        """The object of the image at an address, as a 1-tuple. ``memo``: the pickler's."""
        if number in memo:
            return (memo[number][1],)
        if number in _SINGLETONS:
            return _SINGLETONS[number]
        return next((found for place in self._places if (found := place.at(number)) is not None), None)


def _content(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def reduce_batch(saver: Saver, batch: Batch) -> Any:
    return list, (batch.tables.take(),)


def numbers_in(table: Any, is_whole: bool) -> Iterator[int]:
    """The numbers in a table that may be addresses. ``is_whole``: not only among the keys of a dictionary."""
    for value in _members(table, is_whole):
        yield from _numbers_of(value, is_whole)


def _members(table: Any, is_whole: bool) -> list[Any]:
    cls = type(table)
    if cls is types.CellType:
        return list(_content(table))
    if cls is types.FunctionType:
        return list(table.__defaults__ or ())
    if cls is frozenset:
        return list(table)
    if not is_a(table, _CONTAINERS):
        return list((attributes_of(table) or {}).values())
    found = list(content_of(table))
    return [*found, *dict.values(table)] if is_whole and is_a(table, dict) else found


def _numbers_of(value: Any, is_whole: bool = True) -> Iterator[int]:
    """``is_whole``: also those that are part of a text."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if type(value) is int:
            if value in ADDRESSES:
                yield value
        elif type(value) is tuple:
            waiting += value
        elif is_whole and type(value) is str:
            yield from (number for found in _NUMBER.findall(value) if (number := int(found, 0)) in ADDRESSES)


# ---------------------------------------------------------------------- loading


def renumber(tables: list[Table]) -> None:
    """In the new process: replace the numbers by the addresses that the objects have here."""
    for table, is_whole, pairs in tables:
        here = {number: id(obj) for number, obj in pairs}

        def changed(value: Any, here: dict[int, int] = here, has_texts: bool = is_whole) -> Any:
            if type(value) is int:
                return here.get(value, value)
            if has_texts and type(value) is str:
                text = _NUMBER.sub(lambda found: _renumbered(found[0], here), value)
                return value if text == value else text
            if type(value) is not tuple:
                return value
            parts = tuple(changed(part, here, has_texts) for part in value)
            return value if all(map(operator.is_, parts, value)) else parts

        if is_a(table, _CONTAINERS):
            put_content(table, _changed_content(table, changed, is_whole))
        else:
            _change_holder(table, changed)


def _renumbered(digits: str, here: dict[int, int]) -> str:
    number = here.get(int(digits, 0))
    return digits if number is None else hex(number) if digits.startswith("0x") else str(number)


def _change_holder(holder: Any, changed: Callable[[Any], Any]) -> None:
    cls = type(holder)
    if cls is types.CellType:
        holder.cell_contents = changed(holder.cell_contents)
    elif cls is types.FunctionType:
        holder.__defaults__ = changed(holder.__defaults__)
    else:
        attributes = attributes_of(holder) or {}
        new = {name: changed(value) for name, value in attributes.items()}
        put_attributes(
            holder, ({name: value for name, value in new.items() if value is not attributes[name]}, [])
        )


def _changed_content(table: Any, changed: Callable[[Any], Any], is_whole: bool) -> Any:
    content = content_of(table)
    if is_a(table, dict):
        pairs = content if type(content) is list else list(content.items())
        for (
            key,
            value,
        ) in pairs:  # a reference in a WeakValueDictionary keeps its key; reduce_weakref sees to some
            if type(value) is weakref.KeyedRef and (
                type(key) is tuple or (type(key) is int and value.key == key)
            ):
                value.key = changed(value.key)
        return [(changed(key), changed(value) if is_whole else value) for key, value in pairs]
    if type(table) is set:
        return _lookup.layout(set(map(changed, content)))
    return list(map(changed, content))
