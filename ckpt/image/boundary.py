"""How to re-establish a frame that is suspended inside of a C function which has entered another Python frame.

The interpreter sees `outer` (executing one instruction), C code we know nothing about, and `inner` (a Python frame entered
by that C code).  Whatever the C code still means to do with inner's result is lost with the process, unless we know it:

    V  the C code passes inner's result through unchanged: resume outer *behind* its instruction, with that value pushed.
       Functions called with `*args`, bound methods in the callable slot, partial, `__call__`, `__enter__`, `__exit__`,
       `obj[key]` by `__getitem__`, map's function.
    R  the C code would do the same again: repeat outer's instruction with its operands; it enters the very same function
       (or generator) again, whose frame is then overwritten.  Generators under FOR_ITER, SEND, next, any, all; operators,
       properties, `__getattr__`, lru_cache, `__new__`.
    I  a type call that is running `__init__`: resume outer behind it, with `self` pushed.
    refused: everything else.  State hides in C: sum, sorted, join, a running import …

Rules:
- inner is identified by its function object (or generator), and the way to it by the very names C code looks up
  (`__add__` for `+`); a method that merely belongs to an operand is no evidence.
- Code run by the *release* of an operand must never be taken for code run by the instruction: destructors and weakref
  callbacks are refused by what they are, a generator in a call that could be its finalisation by `_finalising`.
- Operand slots may hold pointers to what is already freed. They have been read defensively (DEAD); R needs all alive.
- Nothing here runs code of the program: no ==, no hash, no attribute access that a class of the program could intercept.

Pure: decides from what `stack` has read.
"""

from __future__ import annotations

import functools
import gc
import itertools
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ckpt.image import _frames
from ckpt.image._frames import DEAD, NULL
from ckpt.image.errors import Refused
from ckpt.image.opcodes import TABLE, CodeMap, Instruction

__all__ = ["Resumption", "Suspended", "classify", "location"]


class Suspended(NamedTuple):
    """A frame as seen by the classifier. `stack(n)`: the first n entries of its evaluation stack, defensively read."""

    code: types.CodeType
    func: Any
    lasti: int
    gen: Any  # None unless the frame is a generator's
    gen_references: int
    locals: list[Any]
    map: CodeMap
    stack: Callable[[int], list[Any]]


class Resumption(NamedTuple):
    """How outer goes on: from the code unit behind `lasti`, with `stack`. until (R): end of the repeated instruction."""

    mode: str
    lasti: int
    stack: list[Any]
    value: Any = NULL
    until: int = 0


class _Way(NamedTuple):
    """How a callable leads to inner: mode, and the value of the call for I."""

    mode: str
    value: Any = NULL


_PASS = _Way("V")
_REDO = _Way("R")


def location(code: types.CodeType, lasti: int) -> str:
    """ "file:line function" of an instruction."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= 2 * lasti < end and number is not None:
            line = number
            break
    return f"{code.co_filename}:{line} {code.co_qualname}"


# ---------------------------------------------------------------------------------- looking without touching


def _is(obj: Any, kind: type) -> bool:
    return issubclass(type(obj), kind)


def _function(found: Any) -> Any:
    """The Python function behind what a class has under a name, or NULL."""
    kind = type(found)
    if kind is types.FunctionType:
        return found
    if kind is types.MethodType or kind is staticmethod or kind is classmethod:
        return _function(found.__func__)
    return NULL


def _has(obj: Any, names: Sequence[str], inner: Suspended) -> bool:
    """Whether inner runs what the type of obj has under one of these names."""
    if inner.gen is not None:
        return False
    return any(_function(_frames.lookup(type(obj), name)) is inner.func for name in names)


def _first_argument(inner: Suspended) -> Any:
    """What inner was given first, as far as can be seen; NULL if nothing."""
    if inner.gen is not None or not inner.code.co_argcount or inner.map.rebinds_first:
        return NULL
    first = inner.locals[0]
    if type(first) is types.CellType:
        try:
            return first.cell_contents
        except ValueError:
            return NULL
    return first


def _is_release(inner: Suspended) -> str:
    """Why inner is run by the release of some object, or nothing."""
    if inner.code.co_name == "__del__":
        return "a destructor is running"
    if inner.gen is None:
        for argument in inner.locals[: inner.code.co_argcount]:
            if argument is NULL or argument is DEAD:
                continue
            if _is(argument, weakref.ref) and weakref.ReferenceType.__call__(argument) is None:
                return "a weak reference callback is running"
        first = _first_argument(inner)
        if first is not NULL and _has(first, ("__del__",), inner):
            return "a destructor is running"
    return ""


def _finalising(inner: Suspended) -> bool:
    """Whether a generator under a call might be closed by the release of the call's arguments rather than run by the call.

    A generator being finalised has one (resurrected) reference, as one that only the operand slot refers to. It runs code
    only if it catches what is thrown in at a yield.
    """
    return inner.gen_references <= 1 and inner.map.catches_at_yield


# ---------------------------------------------------------------------------------- iterators

_PASSING_ITERATORS = (
    itertools.islice,
    itertools.takewhile,
    itertools.dropwhile,
    itertools.filterfalse,
    itertools.accumulate,
    itertools.starmap,
    filter,
)
_SEQUENCE_ITERATOR = type(iter(type("_", (), {"__getitem__": None})()))
_CALLABLE_ITERATOR = type(iter(int, 1))


def _iteration(iterator: Any, inner: Suspended) -> _Way | None:
    """How next(iterator) leads to inner, if it does so before any state of the iterator has changed."""
    if inner.gen is not None and iterator is inner.gen:
        return _REDO
    kind = type(iterator)
    parts = gc.get_referents(iterator) if kind.__module__ in ("builtins", "itertools") else []
    if kind is enumerate:
        return _iteration(parts[0], inner)
    if kind is zip:
        return _iteration(parts[0][0], inner) if parts and type(parts[0]) is tuple and parts[0] else None
    if kind is map:
        sources, function = parts
        if inner.gen is None and _callable(function, None, inner) == _PASS:
            return _PASS
        return _iteration(sources[0], inner) if len(sources) == 1 else None
    if kind is itertools.chain:
        return _iteration(parts[-1], inner) if parts else None
    if kind in _PASSING_ITERATORS:
        return _REDO if inner.gen is not None and any(part is inner.gen for part in parts) else None
    if kind is _SEQUENCE_ITERATOR:
        return _REDO if parts and _has(parts[0], ("__getitem__",), inner) else None
    if kind is _CALLABLE_ITERATOR:
        return _REDO if inner.gen is None and any(_function(part) is inner.func for part in parts) else None
    return _REDO if _has(iterator, ("__next__",), inner) else None


# ---------------------------------------------------------------------------------- attributes


def _attribute(obj: Any, name: str, verb: str, inner: Suspended) -> bool:
    """Whether getting ("get"), setting ("set") or deleting ("delete") obj.name leads to inner."""
    hooks = {"get": ("__getattribute__", "__getattr__"), "set": ("__setattr__",), "delete": ("__delattr__",)}[
        verb
    ]
    if _has(obj, hooks, inner):
        return True
    if type(obj) is super:
        owner = object.__getattribute__(obj, "__self_class__")
        order = type.__getattribute__(owner, "__mro__") if owner is not None else ()
        return any(
            name in namespace and _descriptor(namespace[name], verb, inner)
            for namespace in (type.__getattribute__(k, "__dict__") for k in order)
        )
    if type(obj) is types.ModuleType:
        hook = object.__getattribute__(obj, "__dict__").get("__getattr__")
        return verb == "get" and inner.gen is None and hook is not None and _function(hook) is inner.func
    found = [_frames.lookup(type(obj), name)]
    if _is(obj, type):
        found.append(_frames.lookup(obj, name))
    return any(_descriptor(attribute, verb, inner) for attribute in found)


def _descriptor(attribute: Any, verb: str, inner: Suspended) -> bool:
    """Whether inner is what a descriptor found in a class does for this verb."""
    if attribute is NULL or inner.gen is not None:
        return False
    if _is(attribute, property):
        member = {"get": "fget", "set": "fset", "delete": "fdel"}[verb]
        function = property.__dict__[member].__get__(attribute)
        if function is not None and _function(function) is inner.func:
            return True
    return _has(attribute, ({"get": "__get__", "set": "__set__", "delete": "__delete__"}[verb],), inner)


# ---------------------------------------------------------------------------------- callables

# builtins that look a special method up on their first argument and hand its result on, or do the same again
_BUILTINS: dict[int, tuple[str, ...]] = {
    id(builtin): names
    for builtin, names in {
        len: ("__len__",),
        abs: ("__abs__",),
        repr: ("__repr__",),
        str: ("__str__", "__repr__"),
        int: ("__int__", "__index__", "__trunc__"),
        float: ("__float__", "__index__"),
        complex: ("__complex__", "__float__", "__index__"),
        bool: ("__bool__", "__len__"),
        bytes: ("__bytes__",),
        hash: ("__hash__",),
        iter: ("__iter__",),
        reversed: ("__reversed__",),
        format: ("__format__", "__str__", "__repr__"),
        round: ("__round__",),
        divmod: ("__divmod__",),
        pow: ("__pow__",),
    }.items()
}
_ATTRIBUTE_BUILTINS = {id(getattr): "get", id(hasattr): "get", id(setattr): "set", id(delattr): "delete"}
_GENERATOR_METHODS = ("send", "throw", "close", "__next__")
_LRU = type(functools.lru_cache(lambda: None))


def _describe(callable_: Any) -> str:
    kind = type(callable_)
    if kind in (
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.MethodWrapperType,
    ):
        return f"{callable_.__qualname__}()"
    if _is(callable_, type):
        return f"{type.__getattribute__(callable_, '__name__')}()"
    return f"a call of a {kind.__name__}"


def _callable(fn: Any, args: Sequence[Any] | None, inner: Suspended) -> _Way | None:
    """How calling fn leads to inner. args: positional arguments, None if they cannot be relied on."""
    kind = type(fn)
    if kind is types.FunctionType:
        return _PASS if inner.gen is None and fn is inner.func else None
    if kind is types.MethodType:
        return _callable(fn.__func__, None if args is None else [fn.__self__, *args], inner)
    if kind is functools.partial:
        return _callable(fn.func, None, inner)
    if kind is types.MethodWrapperType and fn.__name__ == "__call__":
        return _callable(fn.__self__, args, inner)
    if kind is types.WrapperDescriptorType and fn.__name__ == "__call__" and args and args[0] is not DEAD:
        return _callable(args[0], args[1:], inner)
    if _is(fn, type):
        return _type_call(fn, args, inner)
    if _has(fn, ("__call__",), inner):
        return _PASS
    if kind is _LRU:
        return _REDO if inner.gen is None and _function(fn.__wrapped__) is inner.func else None
    return _builtin(fn, args, inner)


def _type_call(cls: Any, args: Sequence[Any] | None, inner: Suspended) -> _Way | None:
    if _has(cls, ("__call__",), inner):  # the metaclass's
        return _PASS
    if inner.gen is not None:
        return None
    if _function(_frames.lookup(cls, "__init__")) is inner.func:
        self = _first_argument(inner)
        return _Way("I", self) if self is not NULL and _is(self, cls) else None
    if _function(_frames.lookup(cls, "__new__")) is inner.func:
        return _REDO
    if args and id(cls) in _BUILTINS and _has(args[0], _BUILTINS[id(cls)], inner):
        return _REDO
    return None


def _builtin(fn: Any, args: Sequence[Any] | None, inner: Suspended) -> _Way | None:
    kind = type(fn)
    if inner.gen is not None and _finalising(inner):
        return None
    if kind is types.BuiltinFunctionType:  # a function or a bound method of a C type
        if fn.__name__ in _GENERATOR_METHODS and inner.gen is not None and fn.__self__ is inner.gen:
            return _REDO
        if not args:
            return None
        if fn is next:
            way = _iteration(args[0], inner)
            return None if way == _PASS and len(args) > 1 else way
        if fn is any or fn is all:
            return _REDO if inner.gen is not None and _iteration(args[0], inner) == _REDO else None
        if id(fn) in _BUILTINS:
            operands = args[:2] if fn is divmod or fn is pow else args[:1]
            names = _BUILTINS[id(fn)] + (("__rdivmod__", "__rpow__") if len(operands) == 2 else ())
            return _REDO if any(_has(operand, names, inner) for operand in operands) else None
        if fn is isinstance or fn is issubclass:
            check = "__instancecheck__" if fn is isinstance else "__subclasscheck__"
            return _REDO if len(args) == 2 and _has(args[1], (check,), inner) else None
        if id(fn) in _ATTRIBUTE_BUILTINS and len(args) > 1 and type(args[1]) is str:
            return _REDO if _attribute(args[0], args[1], _ATTRIBUTE_BUILTINS[id(fn)], inner) else None
        return None
    if inner.gen is not None:
        if kind is types.MethodWrapperType and fn.__name__ in _GENERATOR_METHODS and fn.__self__ is inner.gen:
            return _REDO
        if (
            kind in (types.MethodDescriptorType, types.WrapperDescriptorType)
            and fn.__name__ in _GENERATOR_METHODS
        ):
            return _REDO if args and args[0] is inner.gen else None
    return None


def _is_replaced(slot: Any, inner: Suspended) -> bool:
    """Whether a callable slot holds inner's first argument in place of the callable.

    Bound methods and partial put it there for the time of the call. It cannot be the callable if it cannot be called, or if
    calling it would have entered another function than inner.
    """
    if inner.gen is not None or slot is NULL:
        return False
    method = _frames.lookup(type(slot), inner.code.co_name)
    if slot is not _first_argument(inner) and _function(method) is not inner.func:
        return False
    if not callable(slot) or type(slot) is types.FunctionType:
        return True
    return not _is(slot, type) and _function(_frames.lookup(type(slot), "__call__")) is not NULL


# ---------------------------------------------------------------------------------- instructions

_BINARY = "add sub mul matmul truediv floordiv mod pow lshift rshift and xor or".split()
_BINARY_NAMES = tuple(f"__{kind}{name}__" for name in _BINARY for kind in ("", "r", "i"))
_TRUTH = ("__bool__", "__len__")
# instruction -> (position from the top, special methods looked up there), …
_OPERANDS: dict[str, tuple[tuple[int, tuple[str, ...]], ...]] = {
    "BINARY_OP": ((1, _BINARY_NAMES), (2, _BINARY_NAMES)),
    "COMPARE_OP": ((1, names := ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__")), (2, names)),
    "BINARY_SUBSCR": ((2, ("__missing__", "__class_getitem__")), (1, ("__hash__", "__index__"))),
    "STORE_SUBSCR": ((2, ("__setitem__",)), (1, ("__hash__", "__index__"))),
    "DELETE_SUBSCR": ((2, ("__delitem__",)), (1, ("__hash__", "__index__"))),
    "CONTAINS_OP": ((1, ("__contains__",)), (2, ("__hash__",))),
    "UNARY_NEGATIVE": ((1, ("__neg__",)),),
    "UNARY_POSITIVE": ((1, ("__pos__",)),),
    "UNARY_INVERT": ((1, ("__invert__",)),),
    "UNARY_NOT": ((1, _TRUTH),),
    "GET_ITER": ((1, ("__iter__",)),),
    "GET_YIELD_FROM_ITER": ((1, ("__iter__",)),),
    "GET_AWAITABLE": ((1, ("__await__",)),),
    "GET_LEN": ((1, ("__len__",)),),
    "FORMAT_VALUE": ((1, names := ("__format__", "__str__", "__repr__")), (2, names)),
    "POP_JUMP_FORWARD_IF_FALSE": ((1, _TRUTH),),
    "POP_JUMP_FORWARD_IF_TRUE": ((1, _TRUTH),),
    "POP_JUMP_BACKWARD_IF_FALSE": ((1, _TRUTH),),
    "POP_JUMP_BACKWARD_IF_TRUE": ((1, _TRUTH),),
    "JUMP_IF_FALSE_OR_POP": ((1, _TRUTH),),
    "JUMP_IF_TRUE_OR_POP": ((1, _TRUTH),),
}
_ATTRIBUTES = {"LOAD_ATTR": "get", "LOAD_METHOD": "get", "STORE_ATTR": "set", "DELETE_ATTR": "delete"}
_NAMED = {
    "IMPORT_NAME": "an import is in progress",
    "IMPORT_FROM": "an import is in progress",
    "IMPORT_STAR": "an import is in progress",
    "LOAD_BUILD_CLASS": "a class is being created",
    "UNPACK_SEQUENCE": "an iterator is being unpacked",
    "UNPACK_EX": "an iterator is being unpacked",
}


def classify(outer: Suspended, inner: Suspended) -> Resumption:
    """How to resume outer, which is inside of C code that has entered inner. Raises Refused."""
    instruction = outer.map.instructions.get(outer.lasti)
    assert TABLE is not None
    if instruction is None or outer.lasti not in outer.map.depth:
        raise _refused(outer, f"{inner.code.co_qualname} was entered between two instructions")
    release = _is_release(inner)
    if release:
        raise _refused(outer, release)
    if instruction.name in (TABLE.call, TABLE.call_prefix):
        return _call(outer, inner, instruction)
    if instruction.name == "CALL_FUNCTION_EX":
        return _call_ex(outer, inner, instruction)
    return _operation(outer, inner, instruction)


def _refused(outer: Suspended, reason: str) -> Refused:
    return Refused(reason, location(outer.code, outer.lasti))


def _call(outer: Suspended, inner: Suspended, at: Instruction) -> Resumption:
    assert TABLE is not None
    instructions = outer.map.instructions
    prefix = at if at.name == TABLE.call_prefix else instructions[at.previous]
    depth = outer.map.depth[prefix.start]
    stack, count = outer.stack(depth), prefix.arg
    base = depth - count - 2
    method, fn = stack[base], stack[base + 1]
    fn, args = (fn, stack[base + 2 :]) if method is NULL else (method, stack[base + 1 :])
    if fn is DEAD:
        raise _refused(outer, "an operand has already been released")
    call = instructions[prefix.next]
    way = _callable(fn, None if any(arg is DEAD for arg in args) else args, inner)
    if way is None and _is_replaced(fn, inner):
        way = _PASS
    if way is None:
        raise _refused(outer, f"{_describe(fn)} is running {inner.code.co_qualname}")
    if way.mode != "R":
        return Resumption(way.mode, call.next - 1, stack[:base], way.value)
    _all_alive(outer, stack)
    before = instructions.get(prefix.previous)
    start = before.start if before is not None and before.name == TABLE.keyword_names else prefix.start
    return Resumption("R", start - 1, stack, NULL, call.next)


def _call_ex(outer: Suspended, inner: Suspended, at: Instruction) -> Resumption:
    """f(*args, **kwargs). Its arguments may have been replaced by copies, so that only a tuple that is sure to live is used."""
    depth, keywords = outer.map.depth[at.start], at.arg & 1
    stack = outer.stack(depth)
    fn, positional = stack[depth - 2 - keywords], stack[depth - 1 - keywords]
    if fn is DEAD:
        raise _refused(outer, "an operand has already been released")
    before = outer.map.instructions.get(at.previous)
    sure = not keywords and (
        any(local is positional for local in outer.locals)
        or (before is not None and before.name == "LIST_TO_TUPLE")
    )
    args = list(positional) if sure and type(positional) is tuple else None
    way = _callable(fn, args, inner)
    if way is None or (way.mode == "R" and args is None):
        raise _refused(outer, f"{_describe(fn)} with * arguments is running {inner.code.co_qualname}")
    if way.mode == "R":
        _all_alive(outer, stack)
        return Resumption("R", at.start - 1, stack, NULL, at.next)
    return Resumption(way.mode, at.next - 1, stack[: depth - 3 - keywords], way.value)


def _all_alive(outer: Suspended, stack: list[Any]) -> None:
    if any(entry is DEAD for entry in stack):
        raise _refused(outer, "an operand has already been released")


def _operation(outer: Suspended, inner: Suspended, at: Instruction) -> Resumption:
    """Every instruction but calls."""
    depth, name = outer.map.depth[at.start], at.name
    stack = outer.stack(depth)
    _all_alive(outer, stack)
    way: _Way | None = None
    if name == "FOR_ITER":
        way = _iteration(stack[-1], inner)
    elif name == "SEND":
        receiver = stack[-2]
        if (inner.gen is not None and receiver is inner.gen) or _has(receiver, ("__next__", "send"), inner):
            way = _REDO
    elif name == "BEFORE_WITH":  # the manager's slot holds its exit already
        manager = stack[-1].__self__ if type(stack[-1]) is types.MethodType else NULL
        if manager is not NULL and _has(manager, ("__enter__",), inner):
            way = _PASS
    elif name == "WITH_EXCEPT_START":
        way = _callable(stack[-4], None, inner)
        way = way if way == _PASS else None
    elif name in ("LIST_EXTEND", "SET_UPDATE"):  # what has been produced is in the list already
        way = _REDO if inner.gen is not None and stack[-1] is inner.gen else None
    elif name == "BINARY_SUBSCR" and _has(stack[-2], ("__getitem__",), inner):
        way = _PASS
        stack = stack[:-2]
    elif name in _ATTRIBUTES:
        attribute = outer.code.co_names[at.arg]
        way = _REDO if _attribute(stack[-1], attribute, _ATTRIBUTES[name], inner) else None
    elif name in _OPERANDS:
        found = any(
            _has(stack[-position], names, inner)
            for position, names in _OPERANDS[name]
            if position <= depth and stack[-position] is not NULL
        )
        way = _REDO if found else None
    if way is None:
        raise _refused(outer, _NAMED.get(name) or f"{name} is running {inner.code.co_qualname}")
    if way.mode == "R":
        return Resumption("R", at.start - 1, stack, NULL, at.next)
    return Resumption(way.mode, at.next - 1, stack, way.value)
