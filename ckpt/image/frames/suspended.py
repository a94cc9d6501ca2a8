"""A suspended frame as a value; what can be found about it without running code; how it is resumed.

`stack` makes a `Suspended` of each frame it has found. `c_calls` and `call_paths` decide on pairs of them, and answer with
a `Resumption`.

Nothing here runs code of the program: no ==, no hash, no attribute access that a class of the program could intercept.
Not here: any decision.
"""

from __future__ import annotations

import contextvars
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ckpt.image.frames import _frames
from ckpt.image.frames._frames import NULL
from ckpt.image.frames.opcodes import CodeMap
from ckpt.transport.records import NamedTuple

__all__ = [
    "PASS",
    "REDO",
    "CachedCall",
    "CallPath",
    "ContextRun",
    "Mode",
    "Resumption",
    "Suspended",
    "all_arguments",
    "arguments",
    "cell_contents",
    "describe",
    "entered",
    "first_argument",
    "function_of",
    "runs_method",
    "instance_of",
    "location",
    "instance_dict",
    "has_surplus",
]

_CO_VARARGS = 4
_IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType)

Mode = Literal["L", "V", "R", "I"]


class Suspended(NamedTuple):
    """A frame as seen by the classifier. `stack(n)`: the first n entries of its evaluation stack, defensively
    read. `held_by_c(type)`, `takes_from_only(iterator)`, `folds()`, `taken()`: see `_frames` (`folds_of`, `taken_of`)."""

    code: types.CodeType
    func: Any
    lasti: int
    gen: Any  # None unless the frame is a generator's
    gen_references: int
    locals: list[Any]
    map: CodeMap
    stack: Callable[[int], list[Any]]
    held_by_c: Callable[[type], list[Any]] = lambda cls: []
    takes_from_only: Callable[[Any], bool] = lambda iterator: False
    folds: Callable[[], list[_frames.Fold]] = list
    taken: Callable[[], list[_frames.Taken]] = list


class CallPath(NamedTuple):
    """How a callable leads to inner: mode, and the value of the call for I, the `CachedCall` or `ContextRun` for R where it
    is one."""

    mode: Mode
    value: Any = NULL


PASS = CallPath("V")
REDO = CallPath("R")


class CachedCall(NamedTuple):
    """A call of a ``functools.lru_cache`` that has missed, and runs its function: it will be made again."""

    cache: Any
    args: Sequence[Any] | None  # None: not known
    kwargs: dict[str, Any]


class ContextRun(NamedTuple):
    """A call of ``Context.run`` that is under way: it will be made again, and enters the context again. task: the task of
    asyncio that takes a step in it, in C; else None."""

    context: contextvars.Context
    task: Any


class Resumption(NamedTuple):
    """How outer goes on: from the code unit behind `lasti`, with `stack`.

    value: I: the object; R: the `CachedCall` or `ContextRun` that is repeated, where it is one. until: R: end of the
    repeated instruction; V, I: levels of recursion between outer and inner. kept (V, I): operands the C code releases
    when it returns.
    """

    mode: Mode
    lasti: int
    stack: list[Any]
    value: Any = NULL
    until: int = 0
    kept: list[Any] | None = None


def location(code: types.CodeType, lasti: int) -> str:
    """ "file:line function" of an instruction."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= 2 * lasti < end and number is not None:
            line = number
            break
    return f"{code.co_filename}:{line} {code.co_qualname}"


def instance_of(obj: Any, cls: type) -> bool:
    return issubclass(type(obj), cls)


def describe(callable_: Any) -> str:
    """A callable, for people."""
    cls = type(callable_)
    if cls in (
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.MethodWrapperType,
    ):
        return f"{callable_.__qualname__}()"
    if instance_of(callable_, type):
        return f"{type.__getattribute__(callable_, '__name__')}()"
    names = [_told_in_c(callable_, name) for name in ("__module__", "__qualname__")]
    return f"{'.'.join(names)}()" if all(names) else f"a call of a {cls.__name__}"


def _told_in_c(obj: Any, name: str) -> str:
    """An attribute that the type of the object gives in C, as that of functions of Cython does; "": it gives none."""
    descriptor = type.__getattribute__(type(obj), "__dict__").get(name)
    try:
        found = descriptor.__get__(obj) if type(descriptor) in _IN_C else ""
    except AttributeError:
        return ""
    return found if type(found) is str else ""


def function_of(found: Any) -> Any:
    """The Python function of an attribute of a class: a function, a method, a staticmethod or classmethod; else NULL."""
    cls = type(found)
    if cls is types.FunctionType:
        return found
    if cls is types.MethodType or cls is staticmethod or cls is classmethod:
        return function_of(found.__func__)
    return NULL


def runs_method(obj: Any, names: Sequence[str], inner: Suspended) -> bool:
    """Whether inner runs a function that the type of obj has under one of these names."""
    if inner.gen is not None:
        return False
    return any(function_of(_frames.lookup(type(obj), name)) is inner.func for name in names)


def arguments(inner: Suspended) -> list[Any]:
    """The positional arguments of inner, as far as its parameters still hold them; NULL for the others."""
    if inner.gen is not None:
        return []
    found = [NULL if i in inner.map.rebound else inner.locals[i] for i in range(inner.code.co_argcount)]
    return [cell_contents(value) if type(value) is types.CellType else value for value in found]


def has_surplus(inner: Suspended) -> bool:
    """Whether inner has a parameter like ``*args`` that still holds the surplus positional arguments."""
    index = inner.code.co_argcount + inner.code.co_kwonlyargcount
    return inner.gen is None and bool(inner.code.co_flags & _CO_VARARGS) and index not in inner.map.rebound


def all_arguments(inner: Suspended) -> list[Any]:
    """The positional arguments of inner, those that it has by default, and the surplus ones (``*args``)."""
    found = arguments(inner)
    if has_surplus(inner):
        more = inner.locals[inner.code.co_argcount + inner.code.co_kwonlyargcount]
        more = cell_contents(more) if type(more) is types.CellType else more
        found += more if type(more) is tuple else (NULL,)
    return found


def first_argument(inner: Suspended) -> Any:
    """The first positional argument of inner, or NULL."""
    found = arguments(inner)
    return found[0] if found else NULL


def cell_contents(cell: types.CellType) -> Any:
    """The content of a cell; NULL if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return NULL


def instance_dict(obj: Any) -> dict[str, Any]:
    """The instance dictionary of an object, or an empty one; read-only."""
    getter = _frames.lookup(type(obj), "__dict__")
    if type(getter) is types.GetSetDescriptorType or type(obj) is types.ModuleType:
        found = getter.__get__(obj)
        return found if type(found) is dict else {}
    return {}


def entered(func: types.FunctionType, code: types.CodeType, variables: list[Any]) -> types.FunctionType:
    """The function that a frame of that code and with these variables is entered by at a restart: func, or a stand-in.

    A program may give a function another ``__code__`` while it runs, and a function that is saved by reference has the code
    with which it was imported. A frame keeps its own code.
    """
    if func.__code__ is code or func.__code__ == code:
        return func
    cells = variables[len(variables) - len(code.co_freevars) :]
    closure = tuple(cell if type(cell) is types.CellType else types.CellType() for cell in cells)
    return types.FunctionType(code, func.__globals__, code.co_name, None, closure)
