"""The operands of a call instruction: the callable and its arguments, also where C code has overwritten their slots.

C code that is called may put other objects into the slots of the evaluation stack for the time of the call, or may copy the
arguments to where nobody sees them. Each function here says for one such case what was there when the call began, or that
this is not known.

C code that collects the items of an iterator (``list(generator)``, ``list(map(function, …))``) has put those so far into a
container that nobody else knows. It is looked for on the C stack (``frames_collected.c``). If exactly one is found, and no
object refers to it, the call is repeated with a `Collector` in the place of the callable, which adds the rest of the items
to that container.

Nothing here runs code of the program. Not here: where the call goes on (`c_calls`), which Python frame a callable enters
(`call_paths`).
"""

from __future__ import annotations

import collections
import functools
import gc
import types
from collections.abc import Sequence
from typing import Any

from ckpt.compat.referents import compare_of_key
from ckpt.image.frames import _frames
from ckpt.image.frames._frames import NULL
from ckpt.image.frames.call_paths import (
    consumer_of_items,
    is_context_run,
    path_of_call,
    pending_of,
    repeated_source,
)
from ckpt.image.frames.opcodes import TABLE, Instruction
from ckpt.image.frames.suspended import (
    PASS,
    CallPath,
    Suspended,
    all_arguments,
    cell_contents,
    first_argument,
    has_surplus,
    instance_dict,
    instance_of,
    runs_method,
)

__all__ = [
    "attribute_name",
    "callee",
    "collector_for",
    "fold_for",
    "holds_bound_argument",
    "made_by_iter",
    "makes_tuple",
    "positional_arguments",
    "recursion_levels",
    "taken_again",
    "through_replaced",
]


def through_replaced(
    outer: Suspended, inner: Suspended, prefix: Instruction, base: int, stack: list[Any]
) -> CallPath | None:
    """The path through a callable whose slot holds an argument for the time of the call.

    Bound methods and partial with one argument do that to spare a copy. The former is left in the slot only
    by the normal exit of `with`: __exit__(None, None, None). The latter is looked for where the program got
    it from (where the callable is the first operand, partial leaves its slot alone).
    """
    assert TABLE is not None
    method, replaced = stack[base : base + 2]
    if method is not NULL or TABLE.callable_first:
        normal_exit = prefix.arg == 2 and all(entry is None for entry in stack[base + 1 :])
        return PASS if normal_exit and runs_method(method, ("__exit__",), inner) else None
    index = prefix.previous
    while index >= 0 and outer.map.depth.get(index, 0) > base + 1:
        index = outer.map.instructions[index].previous
    fn = _loaded(outer, index)
    if type(fn) is functools.partial and len(fn.args) == 1 and fn.args[0] is replaced:
        path = path_of_call(fn, None, inner)
        return path if path is not None and path.mode != "R" else None
    return None


def _loaded(outer: Suspended, index: int) -> Any:
    """The object that the load instruction at that index has most probably loaded, found without running code; or NULL."""
    instruction = outer.map.instructions.get(index)
    if instruction is None:
        return NULL
    name, arg = instruction.name, instruction.arg
    if name == "LOAD_FAST":
        return outer.locals[arg]
    if name in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
        return cell_contents(outer.locals[arg])
    if name in ("LOAD_GLOBAL", "LOAD_NAME"):
        assert TABLE is not None
        key = outer.code.co_names[arg >> TABLE.load_global_shift if name == "LOAD_GLOBAL" else arg]
        return outer.func.__globals__.get(key, NULL)
    if name in ("LOAD_ATTR", "LOAD_METHOD"):
        owner, key = _loaded(outer, instruction.previous), attribute_name(outer, instruction)
        return NULL if owner is NULL else instance_dict(owner).get(key, _frames.lookup(type(owner), key))
    return NULL


def callee(operands: list[Any]) -> tuple[Any, list[Any]]:
    """The callable of a call and its arguments, in whichever order they are on the stack."""
    assert TABLE is not None
    first, second = operands[:2]
    if TABLE.callable_first:
        return first, operands[2:] if second is NULL else operands[1:]
    return (second, operands[2:]) if first is NULL else (first, operands[1:])


def recursion_levels(fn: Any) -> int:
    """Levels of recursion that the call itself counts, while a Python function runs under it."""
    assert TABLE is not None
    direct = type(fn) in (types.FunctionType, types.MethodType, functools.partial)
    return int(TABLE.counts_c_calls and not direct)


def holds_bound_argument(fn: Any, below_arguments: Any) -> bool:
    """Whether the entry before the arguments, which was empty when the call began, now holds the argument of a partial."""
    return type(fn) is functools.partial and len(fn.args) == 1 and fn.args[0] is below_arguments


def makes_tuple(outer: Suspended, at: Instruction, index: int) -> bool:
    """Whether the operand at that index of the stack, an argument of the instruction, is a tuple made for it."""
    assert TABLE is not None
    instructions, depth = outer.map.instructions, outer.map.depth
    above = at
    while above.previous in instructions and depth.get(above.start, index + 2) > index + 1:
        above = instructions[above.previous]
    before = instructions.get(above.previous)
    is_made = before is not None and TABLE.meaning(before) == "LIST_TO_TUPLE"
    return is_made and depth.get(above.start) == index + 1


def positional_arguments(fn: Any, positional: Any, inner: Suspended) -> list[Any] | None:
    """The positional arguments of f(*args), read from inner, which is the `__new__` of f, or is run by a
    `functools.lru_cache` or by ``Context.run``.

    None: not known. If the operand is no tuple any more, inner may have some of its arguments by keyword or by default, and
    nothing tells these from positional arguments.
    """
    handed_on: Sequence[Any] = ()
    if type(positional) is tuple:
        fn, handed_on = _handed_on(fn, positional)
    elif type(fn) is types.BuiltinFunctionType:
        return None
    first = [fn] if instance_of(fn, type) else [fn.__self__] if type(fn) is types.MethodType else []
    expected = [*first, *handed_on]
    given = all_arguments(inner)
    if len(given) < len(expected) or any(a is not b for a, b in zip(expected, given, strict=False)):
        return None
    if type(positional) is tuple:
        return list(positional)
    others = inner.code.co_argcount
    is_whole = (others <= len(first) and has_surplus(inner)) or len(given) > others
    return None if not is_whole or any(a is NULL for a in given) else given[len(first) :]


def _handed_on(fn: Any, args: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """The callable that is called in the end, and its positional arguments: ``Context.run`` and partials hand them on."""
    while True:
        if type(fn) is functools.partial:
            fn, args = fn.func, [*fn.args, *args]
        elif is_context_run(fn) and args:
            fn, args = args[0], args[1:]
        else:
            return fn, args


def attribute_name(outer: Suspended, at: Instruction) -> str:
    """The name of the attribute that an instruction loads, sets or deletes."""
    assert TABLE is not None
    return outer.code.co_names[at.arg >> TABLE.load_attr_shift if at.name == "LOAD_ATTR" else at.arg]


# ---------------------------------------------------------------------------------- what has been collected

_COLLECTING: dict[int, tuple[type, Any]] = {
    id(list): (list, None),
    id(set): (set, None),
    id(tuple): (tuple, tuple),
    id(sorted): (list, sorted),
    id(collections.deque): (collections.deque, None),
}
"""Id of a callable → the type of the container that it fills, and what it makes of the container at the end."""
_JOINING = (str, bytes)
_COMPARED = type(functools.cmp_to_key(min))


def collector_for(outer: Suspended, inner: Suspended, fn: Any, args: Sequence[Any]) -> tuple[Any, Any] | None:
    """What outer has to call instead of ``fn(*args)`` to go on collecting, and its argument. None: that is not known."""
    if not args:
        return None
    source = repeated_source(args[-1], inner)
    # Most callers ask in vain: what the call fills is looked for after that
    if source is NULL and inner.gen is None:
        return None
    consumer, found = consumer_of_items(fn, args), _container_of(fn, args)
    if source is NULL and (_is_extend(consumer) if found is None else found[0] is not set):
        source = made_by_iter(outer, inner, args[-1])
    if source is NULL:
        return None
    if type(fn) is _frames.Collector:
        return fn, source
    if consumer is not None:
        # Of generators `path_of_call` knows more; an `__iter__` in Python would be called again.
        return None if source is args[-1] else (consumer, source)
    if found is None:
        return None
    container_type, finish = found
    held = outer.held_by_c(container_type)
    unknown = [index for index in range(len(held)) if not _is_known(held, index)]
    if len(unknown) != 1:
        return None
    container = held[unknown[0]]
    if container_type is tuple:
        container = _frames.begun_tuple(container)
    return _frames.Collector(container, finish), source


def _container_of(fn: Any, args: Sequence[Any]) -> tuple[type, Any] | None:
    """The type of the container that ``fn(*args)`` fills from an iterator, and what it makes of the container at the end."""
    if len(args) == 1 and id(fn) in _COLLECTING:
        return _COLLECTING[id(fn)]
    joins = _separator(fn, args)
    return None if joins is None else (list, joins)


def _is_extend(consumer: Any) -> bool:
    """Is it a method of a list or deque that adds all items?"""
    is_method = type(consumer) is types.BuiltinFunctionType and consumer.__name__ in ("extend", "__iadd__")
    return is_method and issubclass(type(consumer.__self__), (list, collections.deque))


def made_by_iter(outer: Suspended, inner: Suspended, iterable: Any) -> Any:
    """The iterator that C code has made of an iterable whose ``__iter__`` is a function in Python: the generator that runs,
    if C code has no other iterator. NULL: that is not known.

    For callers that never drop a generator before its end, as a set with an item that has no hash does: one that is being
    closed looks the same.
    """
    if inner.gen is None or type(_frames.lookup(type(iterable), "__iter__")) is not types.FunctionType:
        return NULL
    return inner.gen if outer.takes_from_only(inner.gen) else NULL


_ASKS, _CALLS, _COMPARES = 1, 2, 3  # phases of a fold


def fold_for(outer: Suspended, inner: Suspended, fn: Any) -> tuple[Any, Any, Any] | None:
    """What outer has to call instead of fn (`sum`, `min`, `dict` and their like, see ``frames_folds.c``) to go on, with
    which iterator, and the value of the `Resumption`. None: fn is none of them, or inner is run by something else than the
    call's own loop."""
    folds = outer.folds()
    if len(folds) != 1:  # one inside of another: nobody knows what the outer one has called
        return None
    callable_, phase, iterator, function, _ = folds[0].state()
    if fn is not callable_ and fn is not folds[0] and not _is_bound(fn, callable_):
        return None
    pending: Any = NULL
    if phase == _ASKS:
        source, pending = repeated_source(iterator, inner), pending_of(iterator, inner)
    elif (phase == _CALLS and inner.gen is None and path_of_call(function, None, inner) == PASS) or (
        phase == _COMPARES and _is_compared_by(folds[0].comparison(), inner)
    ):
        source = iterator
    else:
        return None
    if source is NULL:
        return None
    cls, state = folds[0].__reduce__()
    return cls(*state), source, pending


def taken_again(
    outer: Suspended, inner: Suspended, unpacked: int | None = None
) -> tuple[list[Any], Any, Any] | None:
    """What outer has to take items from, in the place of which objects, to get the same items again and go on (see
    ``frames_taken.c``), and the value of the `Resumption`. None: nobody knows what has been taken. unpacked: the entry of
    the evaluation stack that is unpacked, if that is what outer does."""
    found = outer.taken()
    if len(found) != 1 or (unpacked is not None and not found[0].is_of(unpacked)):
        return None
    _, (iterator, items, is_for_function) = found[0].__reduce__()
    source = repeated_source(iterator, inner)
    if source is NULL or items is None:
        return None
    again = _frames.Taken(source, items, is_for_function)
    return [iterator, found[0]], again, pending_of(iterator, inner)


def _is_bound(fn: Any, method: Any) -> bool:
    """Is fn that method of a C type, bound to an object? Methods that know their class are of a subtype."""
    if not instance_of(fn, types.BuiltinFunctionType) or type(method) is not types.MethodDescriptorType:
        return False
    return fn.__name__ == method.__name__ and instance_of(fn.__self__, method.__objclass__)


def _is_compared_by(comparison: tuple[Any, Any, str] | None, inner: Suspended) -> bool:
    """Is inner the first function in Python that such a comparison of two objects calls?"""
    if comparison is None or inner.gen is not None:
        return False
    left, right, method = comparison
    if type(left) is _COMPARED and type(right) is _COMPARED:
        return path_of_call(compare_of_key(left), None, inner) == PASS
    reflected_first = type(right) is not type(left) and issubclass(type(right), type(left))
    return not reflected_first and runs_method(left, (method,), inner) and first_argument(inner) is left


def _separator(fn: Any, args: Sequence[Any]) -> Any:
    """The bound ``join`` of a text or of bytes that is called with one argument; else None."""
    if type(fn) is types.BuiltinFunctionType and fn.__name__ == "join" and len(args) == 1:
        return fn if type(fn.__self__) in _JOINING else None
    if len(args) == 2 and type(args[0]) in _JOINING and fn is type(args[0]).__dict__["join"]:
        return args[0].join
    return None


def _is_known(held: list[Any], index: int) -> bool:
    """Does an object, other than this list, refer to its entry?"""
    return any(referrer is not held for referrer in gc.get_referrers(held[index]))
