"""Decides how a frame is resumed that waits for C code, which has entered another Python frame.

The interpreter sees the frame `outer`, which executes one instruction, then C code that nobody can look into, and the frame
`inner`, which that C code has entered. What the C code still has to do with inner's result is lost with the process, unless
it is known what that is. The answer is a :class:`Resumption` with one of these modes:

    V  the C code returns inner's result unchanged: outer goes on *behind* its instruction, with that value pushed.
       Functions called with `*args`, bound methods, `functools.partial`, `__call__`, `__enter__`, `__exit__`, `obj[key]` by
       `__getitem__`, the function of `map`.
    R  the C code would do the same again: outer repeats its instruction with the same operands. That enters the very same
       function (or generator) again, and the content of inner is put into that frame. Generators under FOR_ITER, SEND,
       `next`, `any`, `all`; operators, properties, `__getattr__`, `lru_cache`, `__new__`.
    I  a call of a type runs `__init__`: outer goes on behind its instruction, with the new object pushed.

Everything else is refused, because C code keeps state that nobody can read: `str.join`, a running import … For some
functions in C (`sum`, `sorted`, `dict` and others) a loop is put in their place whose state can be read (`frames_folds.c`).

Rules
- inner is identified by its function object (or generator), and the path to it by the very names that C code looks up
  (`__add__` for `+`). That a method belongs to an operand is no evidence that this instruction has called it.
- Code that runs because an operand is *released* must never be taken for code that the instruction has called. Destructors
  and callbacks of weak references are refused as such; so is a generator in a call that may be finalising it
  (`call_paths`).
- Slots of operands may point to objects that are freed already. `stack` has read them with care and gives DEAD for such a
  slot. Mode R needs all operands.
- Nothing here runs code of the program: no ==, no hash, no attribute access that a class of the program could intercept.

Not here: what the operands of a call are (`call_operands`), which frame an object leads to (`call_paths`).
"""

from __future__ import annotations

import types
import weakref
from typing import Any

from ckpt.compat.awaitables import sends_into
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.image.frames._frames import DEAD, NULL
from ckpt.image.frames.attribute_paths import path_of_attribute, path_of_super
from ckpt.image.frames.call_operands import (
    attribute_name,
    callee,
    collector_for,
    fold_for,
    holds_bound_argument,
    made_by_iter,
    makes_tuple,
    positional_arguments,
    recursion_levels,
    taken_again,
    through_replaced,
)
from ckpt.image.frames.call_paths import (
    adds_items,
    path_of_call,
    path_of_iteration,
    pending_of,
    repeated_source,
)
from ckpt.image.frames.opcodes import TABLE, Instruction
from ckpt.image.frames.suspended import (
    PASS,
    REDO,
    CachedCall,
    CallPath,
    Resumption,
    Suspended,
    arguments,
    describe,
    instance_of,
    location,
    runs_method,
)

__all__ = ["classify", "inlined"]


def _is_release(inner: Suspended) -> str:
    """Why inner is run by the release of some object; "": it is not."""
    if inner.code.co_name == "__del__":
        return "a destructor is running"
    if inner.gen is None:
        given = arguments(inner)
        for argument in given:
            if instance_of(argument, weakref.ref) and weakref.ReferenceType.__call__(argument) is None:
                return "a weak reference callback is running"
        if given and given[0] is not NULL and runs_method(given[0], ("__del__",), inner):
            return "a destructor is running"
    return ""


# ---------------------------------------------------------------------------------- instructions

_BINARY = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
    *("lshift", "rshift", "and", "xor", "or"),
)
_BINARY_NAMES = tuple(f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i"))
_COMPARISONS = ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__")
_FORMATS = ("__format__", "__str__", "__repr__")
_TRUTH = ("__bool__", "__len__")
# instruction -> (position from the top, special methods looked up there), …
_OPERANDS: dict[str, tuple[tuple[int, tuple[str, ...]], ...]] = {
    "BINARY_OP": ((1, _BINARY_NAMES), (2, _BINARY_NAMES)),
    "COMPARE_OP": ((1, _COMPARISONS), (2, _COMPARISONS)),
    "BINARY_SUBSCR": ((2, ("__class_getitem__",)), (1, ("__hash__", "__index__"))),
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
    "FORMAT_VALUE": ((1, _FORMATS), (2, _FORMATS)),
    "STORE_SLICE": ((3, ("__setitem__",)),),
    "CONVERT_VALUE": ((1, ("__str__", "__repr__")),),
    "FORMAT_SIMPLE": ((1, _FORMATS),),
    "FORMAT_WITH_SPEC": ((2, _FORMATS),),
    "TO_BOOL": ((1, _TRUTH),),
    "POP_JUMP_IF_FALSE": ((1, _TRUTH),),
    "POP_JUMP_IF_TRUE": ((1, _TRUTH),),
    "POP_JUMP_FORWARD_IF_FALSE": ((1, _TRUTH),),
    "POP_JUMP_FORWARD_IF_TRUE": ((1, _TRUTH),),
    "POP_JUMP_BACKWARD_IF_FALSE": ((1, _TRUTH),),
    "POP_JUMP_BACKWARD_IF_TRUE": ((1, _TRUTH),),
    "JUMP_IF_FALSE_OR_POP": ((1, _TRUTH),),
    "JUMP_IF_TRUE_OR_POP": ((1, _TRUTH),),
}
_ATTRIBUTES = {"LOAD_ATTR": "get", "LOAD_METHOD": "get", "STORE_ATTR": "set", "DELETE_ATTR": "delete"}
_TAKING = ("LIST_EXTEND", "SET_UPDATE", "CONTAINS_OP")
"""Instructions that take items from an iterator, and keep none of them to themselves."""
_UNPACKING = ("UNPACK_SEQUENCE", "UNPACK_EX")
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
    if instruction.name == TABLE.keyword_call:
        return _call(outer, inner, instruction, names=1)
    if instruction.name in (TABLE.call, TABLE.call_prefix):
        return _call(outer, inner, instruction)
    if instruction.name == "CALL_FUNCTION_EX":
        return _call_ex(outer, inner, instruction)
    return _operation(outer, inner, instruction)


def _refused(outer: Suspended, reason: str) -> Refused:
    return Refused(reason, location(outer.code, outer.lasti))


def _call(outer: Suspended, inner: Suspended, at: Instruction, names: int = 0) -> Resumption:
    """names: number of entries above the arguments (the names of those given by keyword)."""
    assert TABLE is not None
    instructions = outer.map.instructions
    prefix = instructions[at.previous] if at.name == TABLE.call != TABLE.call_prefix else at
    depth = outer.map.depth[prefix.start]
    stack, count = outer.stack(depth), prefix.arg
    base = depth - names - count - 2
    fn, args = callee(stack[base : depth - names])
    if fn is DEAD or (names and type(stack[-1]) is not tuple):
        raise _refused(outer, "an operand has already been released")
    behind = outer.map.call_end(prefix)
    before = instructions.get(prefix.previous)
    first = before if before is not None and before.name == TABLE.keyword_names else prefix
    keyword_names = outer.code.co_consts[first.arg] if first is not prefix else stack[-1] if names else ()
    positional = len(args) - len(keyword_names)
    keywords = dict(zip(keyword_names, args[positional:], strict=True))
    args = args[:positional]
    path = path_of_call(fn, None if any(arg is DEAD for arg in args) else args, inner)
    if path is None and not names:
        path = through_replaced(outer, inner, prefix, base, stack)
    if path is None:
        folding = fold_for(outer, inner, fn)
        if folding is not None:  # the other arguments are ignored
            _all_alive(outer, stack[:base])
            surplus = [None] * (len(stack) - base - 2 - names)
            # as a method of the iterator: a call of a method may have no arguments in whose place it could be
            operands = [*stack[:base], folding[0], folding[1], *surplus, *stack[len(stack) - names :]]
            return Resumption("R", prefix.start - 1, operands, folding[2], behind)
    if path is None and len(stack) == base + 3 and not keyword_names:
        collecting = collector_for(outer, inner, fn, args)
        if collecting is not None:
            _all_alive(outer, stack)
            callable_ = (collecting[0], NULL) if TABLE.callable_first else (NULL, collecting[0])
            operands = [*stack[:base], *callable_, collecting[1]]
            return Resumption("R", prefix.start - 1, operands, pending_of(args[-1], inner), behind)
    if path is None:
        path = _taking_call(outer, inner, stack, base)
    if path is None:
        raise _refused(outer, f"{describe(fn)} is running {inner.code.co_qualname}")
    if path.mode != "R":
        return Resumption(
            path.mode, behind - 1, stack[:base], path.value, recursion_levels(fn), _kept(stack[base:])
        )
    _all_alive(outer, stack)
    if TABLE.callable_first and holds_bound_argument(fn, stack[base + 1]):
        stack[base + 1] = NULL
    return Resumption("R", first.start - 1, stack, _repeated(path, keywords), behind)


def _taking_call(outer: Suspended, inner: Suspended, stack: list[Any], base: int) -> CallPath | None:
    """The path into inner where the call takes items from one of its arguments, which is replaced in the stack."""
    taking = taken_again(outer, inner)
    if taking is None:
        return None
    replaced, again, pending = taking
    places = [i for i in range(base, len(stack)) if any(stack[i] is each for each in replaced)]
    if len(places) != 1:
        return None
    stack[places[0]] = again
    return CallPath("R", pending)


def _repeated(path: CallPath, keywords: dict[str, Any]) -> Any:
    """The value of a `Resumption` that repeats a call: a `CachedCall` gets the keyword arguments of the call."""
    value = path.value
    return value._replace(kwargs={**value.kwargs, **keywords}) if type(value) is CachedCall else value


def _call_ex(outer: Suspended, inner: Suspended, at: Instruction) -> Resumption:
    """f(*args, **kwargs).

    Its positional arguments may have been replaced by a copy: only what is sure to be the same is used. Those by
    keyword are in a dictionary that the program made for this call alone, and that lives until it returns.
    """
    assert TABLE is not None
    depth, keywords = outer.map.depth[at.start], at.arg & 1
    stack = outer.stack(depth)
    base, index = depth - 3 - keywords, depth - 1 - keywords
    fn, positional = stack[base + (not TABLE.callable_first)], stack[index]
    if fn is DEAD:
        raise _refused(outer, "an operand has already been released")
    is_sure = type(positional) is tuple and (
        any(local is positional for local in outer.locals) or makes_tuple(outer, at, index)
    )
    args = list(positional) if is_sure else None
    path = path_of_call(fn, args, inner)
    if args is None and (path is None or path.mode == "R"):
        args = positional_arguments(fn, positional, inner)
        path = path_of_call(fn, args, inner) if args is not None else None
    folding = fold_for(outer, inner, fn) if path is None else None
    if folding is not None:  # the arguments are ignored
        _all_alive(outer, stack[:base])
        callable_ = (folding[0], NULL) if TABLE.callable_first else (NULL, folding[0])
        operands = [*stack[:base], *callable_, (folding[1],), *([{}] * keywords)]
        return Resumption("R", at.start - 1, operands, folding[2], at.next)
    if path is None:
        raise _refused(outer, f"{describe(fn)} with * arguments is running {inner.code.co_qualname}")
    if path.mode == "R":
        assert args is not None
        stack[index] = positional if is_sure else tuple(args)
        _all_alive(outer, stack)
        repeated = _repeated(path, dict(stack[-1]) if keywords else {})
        return Resumption("R", at.start - 1, stack, repeated, at.next)
    if type(positional) is not tuple:  # it had been replaced by a tuple that only C can see
        positional = tuple(argument for argument in arguments(inner) if argument is not NULL)
    operands = [fn, positional, *stack[depth - keywords :]]
    return Resumption(path.mode, at.next - 1, stack[:base], path.value, recursion_levels(fn), _kept(operands))


def _loads_method(at: Instruction) -> bool:
    """Whether an attribute instruction pushes two entries."""
    assert TABLE is not None
    return at.name == "LOAD_METHOD" or (at.name == "LOAD_ATTR" and bool(TABLE.load_attr_shift and at.arg & 1))


def _enter(stack: list[Any], inner: Suspended) -> tuple[CallPath | None, list[Any]]:
    """The path into `__enter__`, and the stack with the manager replaced by its exit.

    Some versions have put it there already; in others only C holds it, and it is made again.
    """
    top = stack[-1]
    if type(top) is types.MethodType and runs_method(top.__self__, ("__enter__",), inner):
        return PASS, stack
    if not runs_method(top, ("__enter__",), inner):
        return None, stack
    found = _frames.lookup(type(top), "__exit__")
    if type(found) in (types.FunctionType, types.MethodDescriptorType):
        return PASS, [*stack[:-1], found.__get__(top, type(top))]
    return None, stack


def inlined(outer: Suspended, inner: Suspended, stack: list[Any]) -> Resumption | None:
    """How to resume outer, which has entered the generator `inner` without C in between; None: it has not.

    stack: of outer, where SEND has moved the value it sends into the generator already; what is sent when the
    instruction is repeated makes no difference.
    """
    assert TABLE is not None
    at = outer.map.ending_at(outer.lasti + 1)
    if at is None or at.name not in TABLE.inlined_iteration or not stack or stack[-1] is not inner.gen:
        return None
    operands = [*stack, None] if at.name == "SEND" else stack
    if outer.map.depth.get(at.start) != len(operands):
        return None
    return Resumption("R", at.start - 1, operands, NULL, at.next)


def _kept(operands: list[Any]) -> list[Any]:
    return [operand for operand in operands if operand is not NULL and operand is not DEAD]


def _all_alive(outer: Suspended, stack: list[Any]) -> None:
    if any(entry is DEAD for entry in stack):
        raise _refused(outer, "an operand has already been released")


def _operation(outer: Suspended, inner: Suspended, at: Instruction) -> Resumption:
    """How outer goes on if its instruction is no call. Raises Refused."""
    assert TABLE is not None
    depth, name = outer.map.depth[at.start], TABLE.meaning(at)
    stack = outer.stack(depth)
    _all_alive(outer, stack)
    path: CallPath | None = None
    kept: list[Any] | None = None
    if name == "FOR_ITER":
        path = path_of_iteration(stack[-1], inner)
        source = repeated_source(stack[-1], inner) if path is None else NULL
        path, stack = (path, stack) if source is NULL else (REDO, [*stack[:-1], source])
    elif name == "SEND":
        receiver = stack[-2]
        is_sent_into = inner.gen is not None and sends_into(receiver) is inner.gen
        if is_sent_into or runs_method(receiver, ("__next__", "send"), inner):
            path = REDO
    elif name == "BEFORE_WITH":
        path, stack = _enter(stack, inner)
    elif name == "WITH_EXCEPT_START":
        path = path_of_call(stack[-4], None, inner)
        path = path if path == PASS else None
    elif name in _TAKING and not runs_method(stack[-1], ("__contains__",), inner):
        # What has been produced is in the list already; or was not equal to what is looked for.
        source = repeated_source(stack[-1], inner)
        if source is NULL and name == "LIST_EXTEND":
            source = made_by_iter(outer, inner, stack[-1])
        pending = pending_of(stack[-1], inner)
        # An `__iter__` in Python would be called again.
        is_lost = source is NULL or (inner.gen is None and source is stack[-1] and pending is NULL)
        path, stack = (None, stack) if is_lost else (CallPath("R", pending), [*stack[:-1], source])
        if path is None and name == "CONTAINS_OP" and runs_method(stack[-2], ("__hash__",), inner):
            path = REDO
    elif name in _UNPACKING:
        taking = taken_again(outer, inner, unpacked=depth - 1)
        if taking is not None:
            path, stack = CallPath("R", taking[2]), [*stack[:-1], taking[1]]
    elif name == "BINARY_OP" and adds_items(at.arg, stack[-2:], inner):
        path = REDO
    elif name == "BINARY_SUBSCR" and runs_method(stack[-2], ("__getitem__", "__missing__"), inner):
        path = PASS  # once more would not do: __missing__ may have added the key
        stack, kept = stack[:-2], stack[-2:]
    elif name in _ATTRIBUTES:
        path = path_of_attribute(stack[-1], attribute_name(outer, at), _ATTRIBUTES[name], inner)
        if path == PASS:
            kept = stack[-1:]
            stack = [*stack[:-1], NULL] if _loads_method(at) else stack[:-1]
            if _loads_method(at) and TABLE.callable_first:
                path = None  # NULL belongs above the result
    elif name == "LOAD_SUPER_ATTR":  # super(class, self).name
        path = path_of_super(stack[-3:], outer.code.co_names[at.arg >> 2], inner)
    elif name == "BINARY_SLICE" and runs_method(stack[-3], ("__getitem__",), inner):
        path = PASS
        stack, kept = stack[:-3], stack[-3:]
    elif name in _OPERANDS:
        found = any(
            runs_method(stack[-position], names, inner)
            for position, names in _OPERANDS[name]
            if position <= depth and stack[-position] is not NULL
        )
        path = REDO if found else None
    if path is None:
        raise _refused(outer, _NAMED.get(name) or f"{name} is running {inner.code.co_qualname}")
    if path.mode == "R":
        return Resumption("R", at.start - 1, stack, path.value, at.next)
    return Resumption(path.mode, at.next - 1, stack, path.value, 0, kept)
