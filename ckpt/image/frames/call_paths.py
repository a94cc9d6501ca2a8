"""Finds the function that C code enters when it calls or iterates an object.

Given are an object that C code was working on, and the frame `inner` that this C code has entered. The functions here say
whether the path from the object to inner is known, and what becomes of inner's result (:class:`CallPath`). The modes V, R
and I are those of `c_calls`, which asks these questions about the operands of an instruction.

inner is identified by its function object (or generator), and the path to it by the very names that C code looks up
(`__add__` for `+`). That a method belongs to an object is no evidence that C code has called it.

This module is long because calls and iterators lead to each other: each kind of path may go on as any other.

Nothing here runs code of the program: no ==, no hash, no attribute access that a class of the program could intercept.
Not here: attributes (`attribute_paths`), the operands of an instruction, and where a frame goes on (`c_calls`).
"""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import itertools
import types
from collections.abc import Sequence
from typing import Any

from ckpt.compat import asyncio_objects
from ckpt.compat.accelerators import count_elements, csv, io_base
from ckpt.compat.referents import (
    active_source_of_chain,
    implementation_of,
    parts_of_asker,
    parts_of_filter,
    parts_of_groups,
    parts_of_map,
    parts_of_starmap,
    source_of_tee,
    sources_of,
)
from ckpt.image.frames import _frames
from ckpt.image.frames._frames import DEAD, NULL
from ckpt.image.frames.attribute_paths import path_of_attribute
from ckpt.image.frames.opcodes import CO_OPTIMIZED
from ckpt.image.frames.suspended import (
    PASS,
    REDO,
    CachedCall,
    CallPath,
    ContextRun,
    Suspended,
    arguments,
    first_argument,
    function_of,
    instance_of,
    runs_method,
)

__all__ = [
    "adds_items",
    "consumer_of_items",
    "is_context_run",
    "path_of_call",
    "path_of_iteration",
    "pending_of",
    "repeated_source",
]


_INPLACE_ADD = 13  # argument of BINARY_OP


def _finalising(inner: Suspended) -> bool:
    """Whether a generator under a call might be closed by the release of the call's arguments rather than run
    by the call.

    A generator being finalised has one (resurrected) reference, as one that only the operand slot refers to.
    It runs code only if it catches what is thrown in at a yield.
    """
    return inner.gen_references <= 1 and inner.map.catches_at_yield


# ---------------------------------------------------------------------------------- iterators

FORWARDING_ITERATORS = (filter,)
_REPEATABLE = (itertools.islice, itertools.pairwise, itertools.cycle, itertools.compress)
"""Iterators that are as they were while they ask their first source."""
_TEE: type = type(itertools.tee(())[0])
_ASKERS = (itertools.takewhile, itertools.dropwhile, itertools.filterfalse)
_GROUPS = (itertools.groupby, type(next(itertools.groupby("a"))[1]))
_MOST_SOURCES = 16
"""Iterators have so many sources; a longer tuple is data."""
_SEQUENCE_ITERATOR = type(iter(type("_", (), {"__getitem__": None})()))
_CALLABLE_ITERATOR = type(iter(int, 1))


def path_of_iteration(iterator: Any, inner: Suspended) -> CallPath | None:
    """How next(iterator) leads to inner, if it does so before any state of the iterator has changed. PASS: what inner
    returns is the item."""
    if inner.gen is not None and iterator is inner.gen:
        return REDO
    cls = type(iterator)
    is_readable = cls.__module__ in ("builtins", "itertools") and cls is not itertools.zip_longest
    parts = gc.get_referents(iterator) if is_readable else []
    if cls is enumerate:
        return _again(parts[0], inner)
    if cls is zip:
        return (
            _again_zip(iterator, parts[0], inner) if parts and type(parts[0]) is tuple and parts[0] else None
        )
    if cls is itertools.zip_longest:
        return _again_longest(iterator, inner)
    if cls in _REPEATABLE:
        return _path_of_first_source(iterator, inner)
    if cls is _TEE:
        return _again(source_of_tee(iterator), inner)
    if cls is map:
        sources, function = parts_of_map(iterator)
        if inner.gen is None and path_of_call(function, None, inner) == PASS:
            return None if any(_may_call(source, inner) for source in sources) else PASS
        return _again(sources[0], inner) if len(sources) == 1 else None
    if cls is itertools.starmap:
        return _path_of_starmap(iterator, inner)
    if cls is itertools.accumulate:
        return _path_of_accumulate(iterator, inner)
    if cls is itertools.chain:
        return path_of_iteration(active_source_of_chain(iterator), inner)
    if cls in _ASKERS:
        return _path_of_asker(iterator, *parts_of_asker(iterator), inner)
    if cls in _GROUPS:
        return _path_of_asker(iterator, *parts_of_groups(iterator), inner)
    if cls in FORWARDING_ITERATORS:
        return REDO if inner.gen is not None and any(part is inner.gen for part in parts) else None
    if cls is _SEQUENCE_ITERATOR:
        return REDO if parts and runs_method(parts[0], ("__getitem__",), inner) else None
    if cls is _CALLABLE_ITERATOR:
        return REDO if inner.gen is None and any(function_of(part) is inner.func for part in parts) else None
    return REDO if runs_method(iterator, ("__next__",), inner) else None


def _path_of_first_source(iterator: Any, inner: Suspended) -> CallPath | None:
    first, *others = sources_of(iterator)
    return None if any(_may_call(other, inner) for other in others) else _again(first, inner)


def _path_of_starmap(mapped: itertools.starmap[Any], inner: Suspended) -> CallPath | None:
    source, function = parts_of_starmap(mapped)
    if inner.gen is not None or path_of_call(function, None, inner) != PASS:
        return _again(source, inner)
    return PASS if _call_again(mapped, inner) is not None and not _may_call(source, inner) else None


def _path_of_accumulate(accumulated: itertools.accumulate[Any], inner: Suspended) -> CallPath | None:
    """What its function returns is the item, and its total: so the function is called again."""
    parts = _frames.accumulate_parts(accumulated)
    if parts is None:
        return None
    source, function = parts
    if function is NULL or inner.gen is not None or path_of_call(function, None, inner) != PASS:
        return _again(source, inner)
    return (
        None if _may_call(source, inner) else CallPath("R", _frames.Pending([(accumulated, (function, 2))]))
    )


def _path_of_asker(asker: Any, source: Any, function: Any, inner: Suspended) -> CallPath | None:
    """How an iterator that asks a function about each item leads to inner. The source is asked before anything in the
    iterator has changed; the function is asked about the same item again."""
    if inner.gen is not None or path_of_call(function, None, inner) != PASS:
        return _again(source, inner)
    item = _asked_about(function, source, inner)
    return None if item is NULL else CallPath("R", _frames.Pending([(asker, (item,))]))


def _asked_about(function: Any, source: Any, inner: Suspended) -> Any:
    """The item about which inner, which is that function, has been asked: its argument. NULL: it has been overwritten, or
    it is not known that inner is asked by the iterator rather than by its source."""
    place = {types.FunctionType: 0, types.MethodType: 1}.get(type(function), -1)
    if place < 0 or place >= inner.code.co_argcount or type(inner.locals[place]) is types.CellType:
        return NULL
    return NULL if _may_call(source, inner) else arguments(inner)[place]


def _call_again(mapped: Any, inner: Suspended) -> tuple[Any, int] | None:
    """The function of a `map` or `starmap`, which runs inner, and with how many arguments it can be called. None: this is
    not known (they come from an item of a `starmap`)."""
    if type(mapped) is map:
        sources, function = parts_of_map(mapped)
        return function, len(sources)
    function = parts_of_starmap(mapped)[1]
    bound = {types.FunctionType: 0, types.MethodType: 1}.get(type(function), -1)
    is_known = bound >= 0 and inner.code.co_argcount >= bound and not inner.code.co_kwonlyargcount
    return (function, inner.code.co_argcount - bound) if is_known else None


def repeated_source(iterator: Any, inner: Suspended) -> Any:
    """The iterator with which a consumer of items can be called again, if all that it has consumed is known: the iterator
    itself, which enters inner again (a generator, or an object of which inner is `__next__`); or, where inner is the
    function of a `map`, one that calls this function once more first: what is in the frame of that call is replaced by what
    is in inner's. NULL: not known."""
    path = path_of_iteration(iterator, inner)
    if path == REDO and (inner.gen is not None or _is_next_of(iterator, inner)):
        return iterator
    if path is not None and type(path.value) is _frames.Pending:
        return iterator
    asked = _active(iterator)
    if type(asked) is filter:
        return _repeated_filter(asked, iterator, inner)
    if path != PASS:
        return NULL
    again = _call_again(asked, inner)
    if again is None:
        return NULL
    function, count = again
    return itertools.chain(itertools.starmap(function, [(None,) * count]), iterator)


def _repeated_filter(filtered: Any, iterator: Any, inner: Suspended) -> Any:
    """An iterator that asks the function of a `filter` for the same item once more, which inner has as its argument."""
    source, function = parts_of_filter(filtered)
    if inner.gen is not None or path_of_call(function, None, inner) != PASS:
        return NULL
    item = _asked_about(function, source, inner)
    return NULL if item is NULL else itertools.chain(filter(function, [item]), iterator)


def _active(iterator: Any) -> Any:
    """What a chain takes items from at present; another iterator itself."""
    while type(iterator) is itertools.chain:
        iterator = active_source_of_chain(iterator)
    return iterator


def pending_of(iterator: Any, inner: Suspended) -> Any:
    """The `Pending` that makes ``next(iterator)`` go on where it is; NULL: none is needed."""
    path = path_of_iteration(iterator, inner)
    return path.value if path is not None and type(path.value) is _frames.Pending else NULL


def _is_next_of(iterator: Any, inner: Suspended) -> bool:
    """Is inner the iterator's own `__next__`, in Python?"""
    return runs_method(iterator, ("__next__",), inner) and first_argument(inner) is iterator


def _again(source: Any, inner: Suspended) -> CallPath | None:
    """The path through an iterator that makes its item of the source's: what inner returns is not that item. So the source
    is asked again."""
    path = path_of_iteration(source, inner)
    if path != PASS:
        return path
    source = _active(source)
    again = _call_again(source, inner)
    return CallPath("R", _frames.Pending([(source, again)])) if again is not None else None


def _again_zip(zipped: Any, sources: tuple[Any, ...], inner: Suspended) -> CallPath | None:
    """How a `zip` is asked again for an item; it may have taken items of its first sources already."""
    try:
        taken = _frames.zip_taken(zipped) or ()
    except LookupError:
        return None
    at = len(taken)
    if at >= len(sources) or any(_may_call(other, inner) for other in sources[:at] + sources[at + 1 :]):
        return None
    path = _again(sources[at], inner)
    if not at or path is None:
        return path
    deeper = path.value.steps if type(path.value) is _frames.Pending else []
    return CallPath("R", _frames.Pending([*deeper, (zipped, taken)])) if deeper or path == REDO else None


def _again_longest(zipped: Any, inner: Suspended) -> CallPath | None:
    """The same for a `zip_longest`, which forgets sources that have ended."""
    try:
        state = _frames.longest_state(zipped)
    except LookupError:
        return None
    sources, taken = state or ((), None)
    at = len(taken or ())
    if taken is None or at >= len(sources) or sources[at] is NULL:
        return None
    if any(_may_call(other, inner) for other in sources[:at] + sources[at + 1 :] if other is not NULL):
        return None
    path = _again(sources[at], inner)
    if not at or path is None:
        return path
    deeper = path.value.steps if type(path.value) is _frames.Pending else []
    ended = tuple(index for index in range(at) if sources[index] is NULL)
    return (
        CallPath("R", _frames.Pending([*deeper, (zipped, (taken, ended))]))
        if deeper or path == REDO
        else None
    )


def _may_call(source: Any, inner: Suspended) -> bool:
    """Whether an object is a callable that leads to inner, or an iterator in C that holds one: then nobody knows whether
    inner is run by this or by what takes items from it."""
    if path_of_call(source, None, inner) is not None:
        return True
    cls = type(source)
    if cls.__module__ not in ("builtins", "itertools") or _frames.lookup(cls, "__next__") is NULL:
        return False
    if cls is itertools.zip_longest:  # its own tuple may have gaps, so that nobody may look into it
        state = _frames.longest_state(source)
        return state is None or any(_may_call(each, inner) for each in state[0] if each is not NULL)
    parts = [part for part in gc.get_referents(source) if part is not cls]
    sources = [each for part in parts for each in (part[:_MOST_SOURCES] if type(part) is tuple else (part,))]
    return cls is not types.GeneratorType and any(_may_call(each, inner) for each in sources)


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


def path_of_call(fn: Any, args: Sequence[Any] | None, inner: Suspended) -> CallPath | None:
    """How calling fn leads to inner. args: positional arguments, None if they cannot be relied on."""
    cls = type(fn)
    if cls is types.FunctionType:
        return PASS if inner.gen is None and fn is inner.func else None
    if cls is types.MethodType:
        return path_of_call(fn.__func__, None if args is None else [fn.__self__, *args], inner)
    if cls is functools.partial:
        return _through_partial(fn, args, inner)
    if cls is types.MethodWrapperType and fn.__name__ == "__call__":
        return path_of_call(fn.__self__, args, inner)
    if cls is types.WrapperDescriptorType and fn.__name__ == "__call__" and args and args[0] is not DEAD:
        return path_of_call(args[0], args[1:], inner)
    if instance_of(fn, type):
        return _type_call(fn, args, inner)
    if runs_method(fn, ("__call__",), inner):
        return PASS
    if cls is _LRU:
        is_missing = inner.gen is None and function_of(fn.__wrapped__) is inner.func
        return CallPath("R", CachedCall(fn, args, {})) if is_missing else None
    implementation = implementation_of(fn, args)
    if implementation is not None:
        return path_of_call(implementation, None, inner)
    return _builtin(fn, args, inner)


def _through_partial(fn: Any, args: Sequence[Any] | None, inner: Suspended) -> CallPath | None:
    path = path_of_call(fn.func, None if args is None else [*fn.args, *args], inner)
    if path is not None and type(path.value) is CachedCall:  # asked for what the partial adds, too
        return path._replace(value=path.value._replace(kwargs={**fn.keywords, **path.value.kwargs}))
    return path


def _type_call(cls: Any, args: Sequence[Any] | None, inner: Suspended) -> CallPath | None:
    if runs_method(cls, ("__call__",), inner):  # the metaclass's
        return PASS
    if inner.gen is not None:
        return None
    if function_of(_frames.lookup(cls, "__init__")) is inner.func:
        self = first_argument(inner)
        return CallPath("I", self) if self is not NULL and instance_of(self, cls) else None
    if function_of(_frames.lookup(cls, "__new__")) is inner.func:
        return REDO
    if args and id(cls) in _BUILTINS and runs_method(args[0], _BUILTINS[id(cls)], inner):
        return REDO
    return None


# methods that take item by item from an iterator and put each, at once, where the program sees it
_CONSUMERS: dict[type, tuple[str, ...]] = {
    list: ("extend", "__iadd__"),
    set: ("update",),
    dict: ("update",),
    collections.deque: ("extend", "extendleft"),
    io_base: ("writelines",),
    csv.Writer: ("writerows",),
}


def consumer_of_items(fn: Any, args: Sequence[Any]) -> Any:
    """What to call with an iterator for the same effect as ``fn(*args)``, if that takes items from the iterator which is the
    only argument, and keeps nothing but what is in its container (`_CONSUMERS`; any and all have none). None: it is not so.
    """
    if not args or fn is any or fn is all:
        return fn if len(args) == 1 else None
    is_bound = type(fn) is types.BuiltinFunctionType
    if not is_bound and not (
        type(fn) is types.MethodDescriptorType and instance_of(args[0], fn.__objclass__)
    ):
        return None
    owner, iterators = (type(fn.__self__), args) if is_bound else (fn.__objclass__, args[1:])
    if len(iterators) == 1:
        for base, names in _CONSUMERS.items():
            if issubclass(owner, base) and fn.__name__ in names:
                return fn if is_bound else fn.__get__(args[0], type(args[0]))
    return None


def _consumer(fn: Any, args: Sequence[Any], inner: Suspended) -> CallPath | None:
    """How such a method, called with the iterator alone, leads to inner. The items taken so far are in the container, so the
    call can be repeated with the same iterator."""
    counts = fn is count_elements and len(args) == 2
    if inner.gen is None or not (counts or consumer_of_items(fn, args) is not None):
        return None
    path = path_of_iteration(args[-1], inner)
    return path if path == REDO else None


def adds_items(operator: int, operands: Sequence[Any], inner: Suspended) -> bool:
    """Whether an operator is `+=` of a list or deque and an iterator, which does the same as `extend`."""
    left, right = operands
    if operator != _INPLACE_ADD or type(left) not in (list, collections.deque) or inner.gen is None:
        return False
    return path_of_iteration(right, inner) == REDO


_CONTEXT_RUN = contextvars.Context.__dict__["run"]


def is_context_run(fn: Any) -> bool:
    """Is this the method ``run`` of a context?"""
    return (
        type(fn) is types.BuiltinFunctionType
        and type(fn.__self__) is contextvars.Context
        and fn.__name__ == "run"
    )


def _runs_in_context(context: contextvars.Context, args: Sequence[Any], inner: Suspended) -> CallPath | None:
    """How ``context.run(callback, *args)`` leads to inner. Before it enters inner it has done nothing but enter the context;
    nor has the step of a task, of which the state is restored to that of before (:mod:`ckpt.image.loops.tasks`)."""
    if not args or any(arg is DEAD for arg in args):
        return None
    callback, task = args[0], asyncio_objects.task_of(args[0])
    if task is not None:
        runs = inner.gen is not None and asyncio_objects.coroutine_of(task) is inner.gen
    else:
        while type(callback) is functools.partial:
            callback = callback.func
        is_python = type(callback) in (types.FunctionType, types.MethodType) or runs_method(
            callback, ("__call__",), inner
        )
        runs = is_python and path_of_call(callback, None, inner) == PASS
    return CallPath("R", ContextRun(context, task)) if runs else None


def _source(fn: Any, args: Sequence[Any] | None, inner: Suspended) -> CallPath | None:
    """How exec or eval lead to inner: the code they were given, or have compiled. They keep nothing, but exec
    drops the value of an expression."""
    if inner.gen is not None or inner.code.co_flags & CO_OPTIMIZED or inner.code.co_name != "<module>":
        return None
    if args is None or (type(args[0]) is types.CodeType and args[0] is not inner.code):
        return None
    return PASS if fn is eval or inner.map.returns_none else None


def _builtin(fn: Any, args: Sequence[Any] | None, inner: Suspended) -> CallPath | None:
    cls = type(fn)
    if is_context_run(fn):
        return _runs_in_context(fn.__self__, args or (), inner)
    if fn is _CONTEXT_RUN and args:
        return _runs_in_context(args[0], args[1:], inner)
    if inner.gen is not None and _finalising(inner):
        return None
    if fn is exec or fn is eval:
        return _source(fn, args, inner)
    if cls is types.BuiltinFunctionType:  # a function or a bound method of a C type
        if fn.__name__ in _GENERATOR_METHODS and inner.gen is not None and fn.__self__ is inner.gen:
            return REDO
        if not args:
            return None
        if fn is next:
            path = path_of_iteration(args[0], inner)
            return None if path == PASS and len(args) > 1 else path
        if id(fn) in _BUILTINS:
            operands = args[:2] if fn is divmod or fn is pow else args[:1]
            names = _BUILTINS[id(fn)] + (("__rdivmod__", "__rpow__") if len(operands) == 2 else ())
            return REDO if any(runs_method(operand, names, inner) for operand in operands) else None
        if fn is isinstance or fn is issubclass:
            check = "__instancecheck__" if fn is isinstance else "__subclasscheck__"
            return REDO if len(args) == 2 and runs_method(args[1], (check,), inner) else None
        if id(fn) in _ATTRIBUTE_BUILTINS and len(args) > 1 and type(args[1]) is str:
            return path_of_attribute(args[0], args[1], _ATTRIBUTE_BUILTINS[id(fn)], inner)
        return _consumer(fn, args, inner)
    if cls is types.MethodDescriptorType and args:
        found = _consumer(fn, args, inner)
        if found is not None:
            return found
    if inner.gen is not None:
        if cls is types.MethodWrapperType and fn.__name__ in _GENERATOR_METHODS and fn.__self__ is inner.gen:
            return REDO
        if (
            cls in (types.MethodDescriptorType, types.WrapperDescriptorType)
            and fn.__name__ in _GENERATOR_METHODS
        ):
            return REDO if args and args[0] is inner.gen else None
    return None
