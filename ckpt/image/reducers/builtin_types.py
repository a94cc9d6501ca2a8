"""Reducers for types of the interpreter and the standard library that ``pickle`` cannot save, or does not save exactly.

For the contract of a reducer see :mod:`ckpt.image.reducers.by_value`. The table says what an image holds and what is lost:

    =============================  ===========================================================================
    object                         in the image
    =============================  ===========================================================================
    exceptions                     arguments, attributes, C fields, cause, context, traceback
    generators, coroutines         :mod:`ckpt.image.frames.generators`
    iterators, views               :mod:`ckpt.image.reducers.iterators`
    locks                          locked or not; an RLock is held again by the same thread, as often
    weak references, proxies       the referent and the callback; if nothing else in the image refers to the
                                   referent, it is gone after the load
    ``re.Match``, ``finditer``     searched again; a finditer match has ``pos`` = its own start
    ``functools.lru_cache``        with its contents; the counters of an unbounded one start again
    ``csv`` readers and writers    with their dialect and line number
    context variables, tokens, …   :mod:`ckpt.image.reducers.contexts`
    threads, ``threading.local``   :mod:`ckpt.image.reducers.thread_objects`
    memoryviews                    :mod:`ckpt.image.reducers.buffers`
    tracebacks                     every entry, no variables (:mod:`ckpt.image.reducers.tracebacks`)
    =============================  ===========================================================================

Where Python offers no other way to the state of a C object, :func:`gc.get_referents` shows the objects that it holds.
"""

from __future__ import annotations

import codecs
import contextvars
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat import accelerators, referents
from ckpt.compat.memory import referent_of
from ckpt.compat.referents import mapping_of
from ckpt.compat.typeobjects import is_heap
from ckpt.image.frames.generators import gen_info
from ckpt.image.lowlevel import _lookup
from ckpt.image.reducers import buffers, contexts, rebuild, tracebacks
from ckpt.image.reducers.installed_classes import reduce_by_hooks
from ckpt.image.reducers.iterators import class_of_dict
from ckpt.image.reducers.raw_instances import attributes_of, has_state_in_c, reduce_raw, slots_of
from ckpt.image.reducers.saver import Reducer
from ckpt.image.reducers.thread_objects import REDUCERS as THREAD_REDUCERS
from ckpt.image.reducers.thread_objects import reduce_thread, reduce_thread_local

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["REDUCERS", "reducer_by_family"]

REDUCERS: dict[type, Reducer] = {}
"""Reducers by exact type."""


def reduces(*types_: type) -> Callable[[Reducer], Reducer]:
    def register(reducer: Reducer) -> Reducer:
        for cls in types_:
            REDUCERS[cls] = reducer
        return reducer

    return register


# ---------------------------------------------------------------------- exceptions and frames

_READ_ONLY_FIELDS = frozenset({"message", "exceptions", "__suppress_context__"})


def reduce_exception(pickler: Saver, obj: BaseException) -> Any:
    cls = type(obj)
    bases = [c for c in cls.__mro__ if not is_heap(c)]
    fields = []
    for base in bases:
        for key, value in base.__dict__.items():
            if type(value) is types.MemberDescriptorType and key not in _READ_ONLY_FIELDS:
                try:
                    field = value.__get__(obj, cls)
                except AttributeError:
                    continue
                if field is not None:  # None may also mean "never set"; setting None would not restore that
                    fields.append((base, key, field))
    first: tuple[Any, ...] = ()
    if isinstance(obj, BaseExceptionGroup):
        first = (obj.message, list(obj.exceptions))
    state = (
        rebuild.ARGS.__get__(obj),
        attributes_of(obj),
        obj.__cause__,
        obj.__context__,
        obj.__suppress_context__,
        fields,
        slots_of(pickler, obj),
        obj.__traceback__,
    )
    return rebuild.make_exception, (bases[0], cls, first), state, None, None, rebuild.fill_exception


@reduces(types.FrameType)
def reduce_frame(pickler: Saver, obj: Any) -> Any:
    raise PicklingError(
        "a frame object cannot be saved (sys._getframe, inspect.currentframe); keep none in variables"
    )


@reduces(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
def reduce_generator(pickler: Saver, obj: Any) -> Any:
    info = gen_info(obj, pickler.running_generators)
    pickler.definitions.note_closure(info.make[0])
    for values in (info.record.locals, info.record.stack):
        pickler.id_tables.note_variables(getattr(info.make[0], "__module__", None), values)
    return rebuild.generator_make, info.make, info.record, None, None, rebuild.generator_fill


@reduces(types.MappingProxyType)
def reduce_mapping_proxy(pickler: Saver, obj: Any) -> Any:
    mapping = mapping_of(obj)
    owner = class_of_dict(mapping)
    if owner is not None:
        return rebuild.class_dict, (owner,)
    return rebuild.make_mapping_proxy, (mapping,)


# ---------------------------------------------------------------------- descriptors


@reduces(types.GetSetDescriptorType, types.ClassMethodDescriptorType)
def reduce_descriptor(pickler: Saver, obj: Any) -> Any:
    return rebuild.call_attribute, (obj.__objclass__, obj.__name__)


def reduce_property(pickler: Saver, obj: Any) -> Any:
    accessors = (obj.fget, obj.fset, obj.fdel, obj.__doc__)
    return rebuild.make_property, (type(obj), accessors, attributes_of(obj))


def reduce_wrapper(pickler: Saver, obj: Any) -> Any:
    return rebuild.make_wrapper, (type(obj), obj.__func__), obj.__dict__, None, None, rebuild.fill_attributes


@reduces(types.MethodWrapperType)
def reduce_method_wrapper(pickler: Saver, obj: Any) -> Any:
    """A bound slot wrapper, such as ``super().__init__``. It is looked up in its own class, because a subclass may define
    another. Where that class is the object's own builtin type, it is looked up on the object: types of iterators, for
    example, cannot be found by name."""
    if obj.__objclass__ is type(obj.__self__) and not is_heap(obj.__objclass__):
        return getattr, (obj.__self__, obj.__name__)
    return rebuild.bind, (obj.__objclass__, obj.__name__, obj.__self__)


@reduces(types.BuiltinFunctionType)
def reduce_builtin_method(pickler: Saver, obj: Any) -> Any:
    """A bound method of a C type, such as ``super().append``: looked up in its own class. A function of a module whose name
    the program has bound to another object: the function is found under its name while an image is loaded, because patches
    are applied at the end."""
    owner = type(obj.__self__)
    if owner is types.ModuleType and vars(obj.__self__).get(obj.__name__) is not obj:
        name = obj.__self__.__name__
        if sys.modules.get(name) is obj.__self__:
            return rebuild.function_of, (name, obj.__name__)
    if owner is types.ModuleType and (replaced := pickler.references.replaced_name(obj)) is not None:
        return rebuild.function_of, replaced  # for example `open`, if pyfakefs has replaced it
    if owner is types.ModuleType:
        pickler.names.note_definition(obj)
    if owner is types.ModuleType or not is_heap(owner) or issubclass(owner, type):
        return NotImplemented
    for cls in owner.__mro__:
        descriptor = cls.__dict__.get(obj.__name__)
        if type(descriptor) is types.MethodDescriptorType and descriptor.__get__(obj.__self__) == obj:
            # pickle saves it by name and object: the object may be replaced at load
            if descriptor.__objclass__ is owner:
                return NotImplemented
            return rebuild.bind, (cls, obj.__name__, obj.__self__)
    return NotImplemented


@reduces(super)
def reduce_super(pickler: Saver, obj: Any) -> Any:
    get = object.__getattribute__
    return rebuild.make_super, (super.__thisclass__.__get__(obj), get(obj, "__self__"))  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- locks and threads


@reduces(type(threading.Lock()))
def reduce_lock(pickler: Saver, obj: Any) -> Any:
    return rebuild.make_lock, (obj.locked(),)


@reduces(type(threading.main_thread()))
def reduce_main_thread(pickler: Saver, obj: Any) -> Any:
    if obj is not threading.main_thread():
        return NotImplemented
    return threading.main_thread, ()


# ---------------------------------------------------------------------- weak references


def reduce_weakref(pickler: Saver, obj: Any) -> Any:
    cls = type(obj)
    target = weakref.ref.__call__(obj)
    slots = [] if cls is weakref.ref else slots_of(pickler, obj)
    attributes = None if cls is weakref.ref else attributes_of(obj)
    if target is None:
        args: tuple[Any, ...] = (rebuild.make_dead_weakref, (cls,))
    else:
        args = (rebuild.make_weakref, (cls, target, obj.__callback__))
    if not slots and not attributes:
        return args
    own = [(owner, name) for owner, name, value in slots if type(value) is int and value == id(target)]
    return (*args, (attributes, slots, own), None, None, rebuild.fill_weakref)


@reduces(weakref.WeakSet)
def reduce_weak_set(pickler: Saver, obj: Any) -> Any:
    """Its ``__reduce__`` would have its constructor hash the members, which may not be complete yet."""
    data = getattr(obj, "data", None)  # None: it is just being made
    is_raw = type(data) is set and _lookup.has_special_keys(data)
    return reduce_raw(pickler, obj) if is_raw else reduce_by_hooks(pickler, obj)


@reduces(weakref.ProxyType, weakref.CallableProxyType)
def reduce_weakproxy(pickler: Saver, obj: Any) -> Any:
    found = referent_of(obj)
    if not found:
        return rebuild.make_dead_weakproxy, ()
    return rebuild.make_weakproxy, (*found, *gc.get_referents(obj))  # the callback, if it has one


@reduces(referents.ITERATION_GUARD)
def reduce_iteration_guard(pickler: Saver, guard: Any) -> Any:
    """A weak container of the standard library (all tasks of asyncio) is the new process's: the iteration enters there."""
    state = attributes_of(guard), referents.is_guard_entered(guard)
    return rebuild.make_iteration_guard, (), state, None, None, rebuild.fill_iteration_guard


# ---------------------------------------------------------------------- modules


def reduce_module(pickler: Saver, obj: types.ModuleType) -> Any:
    """A module object that is not in ``sys.modules``; modules in ``sys.modules`` are references.

    Functions defined in the module hold its dictionary as their globals, so the new module gets this same dictionary.
    """
    state = (obj.__dict__, type(obj))
    return rebuild.make_module, (obj.__name__,), state, None, None, rebuild.fill_module_dict


# ---------------------------------------------------------------------- families of types

_FAMILIES: tuple[tuple[type, Reducer], ...] = (
    (BaseException, reduce_exception),
    (types.ModuleType, reduce_module),
    (weakref.ref, reduce_weakref),
    (property, reduce_property),
    (staticmethod, reduce_wrapper),
    (classmethod, reduce_wrapper),
    (threading.local, reduce_thread_local),
    (codecs.StreamReader, reduce_raw),  # plain Python, but its __reduce__ refuses
    (codecs.StreamWriter, reduce_raw),
    (codecs.StreamReaderWriter, reduce_raw),
    (codecs.StreamRecoder, reduce_raw),
    (threading.Thread, reduce_thread),
)


def reduce_codec(pickler: Saver, obj: codecs.CodecInfo) -> Any:
    return codecs.lookup, (obj.name,)


REDUCERS |= {
    codecs.CodecInfo: reduce_codec,
    types.TracebackType: tracebacks.reduce_traceback,
    memoryview: buffers.reduce_memoryview,
    buffers.MEMORY_OF_FILE: buffers.reduce_memory_file,
    type(iter(memoryview(b""))): buffers.reduce_memory_iterator,
    type(accelerators.socket.CAPI): contexts.reduce_capsule,
    contextvars.ContextVar: contexts.reduce_context_var,
    contextvars.Context: contexts.reduce_context,
    contextvars.Token: contexts.reduce_token,
    **THREAD_REDUCERS,
}


def reducer_by_family(cls: type) -> Reducer | None:
    """The reducer for a type that is, or derives from, a type of ``_FAMILIES``; else None."""
    for base, reducer in _FAMILIES:
        if issubclass(cls, base):
            # codecs of East Asia have such a base, too, but their state is in C
            return None if reducer is reduce_raw and has_state_in_c(cls) else reducer
    return None
