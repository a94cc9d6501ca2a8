"""Lazy variables of the standard library: each is ``None`` until a function of the library first needs it.

Examples are ``base64._b85chars``, ``tempfile._name_sequence``, ``platform._uname_cache``. The standard library is imported
again in the resumed process, and its objects are found by the names of their variables; but a lazy variable is ``None`` in a
new process. So the object in a lazy variable is saved by value if the image refers to it, and bound again at load if the
variable is still ``None``. The same is done for a lazy variable that a function on the stack uses, because the function may
have tested the variable already, and does not test it again.

A variable is lazy if the module's own code binds ``None`` to the name, and a function of the module declares the name
``global`` and binds it. The second condition is tested first, because that needs no file; about forty names of the standard
library fulfil it.

A lazy variable to which nothing in the image refers is not saved: the next call makes its object again.

A function that fills a lazy variable may fill a table of its module beside it, as ``dbm.open`` does with ``dbm._modules``,
and test the variable only. So if a function on the stack uses a lazy variable, what the tables hold that it uses is saved,
too: those that the module's own code makes empty.

Here too: which variables libraries that are left alone have got since their import (:data:`left_alone`).
"""

from __future__ import annotations

import functools
import opcode
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

from ckpt.image.lowlevel.inspect_raw import namespace_of

if TYPE_CHECKING:
    from ckpt.image.frames.stack import FrameRecord

__all__ = ["bind", "fill", "is_bound_by_functions", "is_lazy", "save"]

_STORE_GLOBAL = opcode.opmap["STORE_GLOBAL"]
_EXTENDED_ARG = opcode.opmap["EXTENDED_ARG"]
_IGNORED_OPCODES = frozenset({"COPY", "CACHE", "EXTENDED_ARG"})
_EMPTY: dict[str, Any] = {"BUILD_MAP": {}, "BUILD_LIST": []}


left_alone: dict[str, frozenset[str]] = {}
"""The names that a module had after its import, for modules of libraries whose variables are no part of images
(:attr:`ckpt.image.interface.library.Library.is_left_alone`). Names that it has got since,
and not from a function of its own, are the program's: a new process does not have them."""


def added_names(module: types.ModuleType, known: frozenset[str]) -> list[str]:
    """The names of a module's variables that are not known and, in a library that is left alone, not of its functions."""
    found = [key for key in module.__dict__ if key not in known]
    if found and module.__name__ in left_alone:
        return [key for key in found if not is_bound_by_functions(module, key)]
    return found


@functools.lru_cache(maxsize=4096)
def is_lazy(module: str, name: str) -> bool:
    """Is this a variable of the standard library that is ``None`` right after its module has been imported?"""
    if module.partition(".")[0] not in sys.stdlib_module_names or module == "threading":
        return False
    found = sys.modules.get(module)
    return found is not None and is_bound_by_functions(found, name) and _is_none_at_first(found, name)


def is_bound_by_functions(module: types.ModuleType, name: str) -> bool:
    """Does a function of the module, or a method of one of its classes, declare the name ``global`` and bind it?"""
    values = list(module.__dict__.values())
    values += [part for cls in values if issubclass(type(cls), type) for part in namespace_of(cls).values()]
    return any(
        type(value) is types.FunctionType
        and value.__globals__ is module.__dict__
        and name in value.__code__.co_names
        and name in _bound_globally(value.__code__)
        for value in values
    )


def _bound_globally(code: CodeType) -> Iterator[str]:
    """Without :mod:`dis`, which takes milliseconds for each image."""
    units, argument = code.co_code, 0
    if _STORE_GLOBAL not in units[::2]:
        return
    for operation, low in zip(units[::2], units[1::2], strict=True):
        argument = argument << 8 | low
        if operation == _STORE_GLOBAL:
            yield code.co_names[argument]
        if operation != _EXTENDED_ARG:
            argument = 0


def _is_none_at_first(module: types.ModuleType, name: str) -> bool:
    """Does the module's own code bind ``None`` to the name?"""
    return _value_at_first(module, name) is None


def _is_filled_table(module: str, name: str) -> bool:
    """Is it a dictionary or a list with entries, which the module's own code makes empty?"""
    value = sys.modules[module].__dict__[name]
    return type(value) in (dict, list) and bool(value) and _is_empty_at_first(module, name)


@functools.lru_cache(maxsize=4096)
def _is_empty_at_first(module: str, name: str) -> bool:
    """Does the module's own code bind an empty dictionary or list to the name?"""
    value = _value_at_first(sys.modules[module], name)
    return type(value) in (dict, list) and not value


def _value_at_first(module: types.ModuleType, name: str) -> Any:
    """What the module's own code binds to the name: a constant, an empty dictionary or list; ``...``: something else. The
    code is read from the module's file."""
    import dis

    loader = getattr(module.__dict__.get("__spec__"), "loader", None)
    try:
        code = loader.get_code(module.__dict__["__spec__"].name)  # type: ignore[union-attr]
    except Exception:  # the file is gone, or another kind of loader
        return ...
    bound: Any = ...
    for instruction in dis.get_instructions(code) if type(code) is CodeType else ():
        if instruction.opname in ("STORE_NAME", "STORE_GLOBAL"):
            if instruction.argval == name:
                return bound
        elif instruction.opname == "LOAD_CONST":
            bound = instruction.argval
        elif instruction.opname in _EMPTY and instruction.argval == 0:
            bound = _EMPTY[instruction.opname]
        elif instruction.opname not in _IGNORED_OPCODES:
            bound = ...
    return ...


def save(
    found: dict[tuple[str, str], Any],
    frames: Iterable[FrameRecord],
    write: Callable[[Callable[[str, str, Any], None], tuple[str, str, Any]], None],
) -> None:
    """Call ``write(bind, (module, name, value))`` for the lazy variables in ``found``, and for those that functions of
    ``frames`` use; ``write(fill, …)`` for the tables that these functions use.

    ``found``: the lazy variables that the pickler has met so far; writing may add more, which are written too. Empties
    ``found``, so that it keeps no objects of the program alive.
    """
    tables: dict[tuple[str, str], Any] = {}
    for module, names in _users_of_lazy_variables(frames):
        present = sys.modules[module].__dict__
        for name in (name for name in names if present[name] is not None):
            if is_lazy(module, name):
                found[module, name] = present[name]
            elif _is_filled_table(module, name):
                tables[module, name] = present[name].copy()
    done: set[tuple[str, str]] = set()
    while waiting := found.keys() - done:
        for variable in sorted(waiting):
            write(bind, (*variable, found[variable]))
        done |= waiting
    found.clear()
    for variable, table in tables.items():
        write(fill, (*variable, table))


def _users_of_lazy_variables(frames: Iterable[FrameRecord]) -> Iterator[tuple[str, list[str]]]:
    """``(module, its variables that the function names)`` of each function on the stack that names a lazy variable."""
    for frame in frames:
        if frame.func is None:
            continue
        module = frame.func.__globals__.get("__name__")
        present = getattr(sys.modules.get(module), "__dict__", None) if type(module) is str else None
        if type(module) is not str or present is not frame.func.__globals__:
            continue
        names = [name for name in frame.func.__code__.co_names if name in present]
        if any(is_lazy(module, name) for name in names):
            yield module, names


def bind(module: str, name: str, value: Any) -> None:
    """Bind a lazy variable again; called when everything is loaded. A variable that is not None any more is left alone."""
    from ckpt.image.modules.references import import_again

    variables = import_again(module).__dict__
    if variables.get(name) is None:
        variables[name] = value


def fill(module: str, name: str, content: Any) -> None:
    """Put the content into a table again; called when everything is loaded. A table that is not empty any more is left
    alone."""
    from ckpt.image.modules.references import import_again

    table = import_again(module).__dict__.get(name)
    if table is not None and type(table) is type(content) and not table:
        if type(content) is dict:
            table.update(content)
        else:
            table.extend(content)
