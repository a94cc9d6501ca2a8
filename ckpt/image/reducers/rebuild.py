"""Functions that the pickle stream of an image calls at load: the counterparts of the reducers.

Every object is made in two steps: ``make_…`` returns an empty shell, which the unpickler puts into its memo (so that cycles
of references can be restored), then ``fill_…`` sets its state. No function of the program runs: no ``__new__``,
``__init__``, ``__setattr__``, ``__setstate__``, ``__init_subclass__``, ``__set_name__`` and no code of a metaclass. The only
exceptions are ``__hash__`` and ``__eq__`` of objects that are keys of dictionaries or members of sets.

The names in this module are part of the image format: an image refers to them. So names may be added, but not removed.

Not here: files (:mod:`ckpt.image.files.reopen`), numpy arrays (:mod:`ckpt.image.libraries.numpy`), and the choice
of the reducer for a type (:mod:`ckpt.image.reducers.by_value`, :mod:`ckpt.image.reducers.builtin_types`).
"""

from __future__ import annotations

import importlib
import threading
import types
import typing
import weakref
from abc import ABCMeta
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckpt.compat import referents, stdlib
from ckpt.compat.accelerators import CTYPES
from ckpt.compat.memory import replace_dictionary
from ckpt.compat.typeobjects import is_heap, set_instance_dictionary, set_slot
from ckpt.image.errors import RestoreError
from ckpt.image.threads.restart import note_lock

# ---------------------------------------------------------------------- functions


def make_code(*fields: Any) -> types.CodeType:
    """A code object from the fields of :data:`ckpt.image.reducers.by_value.CODE_FIELDS`."""
    return types.CodeType(*fields)


def make_cell() -> types.CellType:
    return types.CellType()


def fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    cell.cell_contents = state[0]


def make_function(
    code: types.CodeType, namespace: dict[str, Any], name: str, closure: tuple[types.CellType, ...] | None
) -> types.FunctionType:
    return types.FunctionType(code, namespace, name, None, closure)


def fill_function(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    qualname, module, doc, defaults, kwdefaults, annotations, attributes, type_parameters = state
    function.__qualname__ = qualname
    function.__module__ = module
    function.__doc__ = doc
    function.__defaults__ = defaults
    function.__kwdefaults__ = kwdefaults
    if annotations:
        function.__annotations__ = annotations
    if attributes:
        function.__dict__.update(attributes)
    if type_parameters:
        function.__type_params__ = type_parameters  # type: ignore[attr-defined]


def make_property(cls: type, accessors: tuple[Any, ...], attributes: dict[str, Any] | None) -> Any:
    made: Any = property.__new__(cls)
    property.__init__(made, *accessors)
    for key, value in (attributes or {}).items():
        object.__setattr__(made, key, value)
    return made


def make_wrapper(cls: Callable[[Any], Any], function: Any) -> Any:
    """A staticmethod or classmethod."""
    return cls(function)


def fill_attributes(obj: Any, attributes: dict[str, Any]) -> None:
    obj.__dict__.update(attributes)


# ---------------------------------------------------------------------- classes


def metaclass_of_ctypes(meta: type) -> Any:
    """The metaclass of ctypes from which ``meta`` derives, or None. It reads ``_fields_`` and so on when a class is made."""
    return next((cls for cls in meta.__mro__ if cls.__module__ == CTYPES), None)


def make_class(
    meta: type,
    name: str,
    bases: tuple[type, ...],
    essentials: dict[str, Any],
    keywords: dict[str, Any] | None = None,
) -> type:
    """A class with only its name, bases and ``essentials`` (:mod:`ckpt.image.reducers.classes`); :func:`fill_class` adds the
    other attributes. ``keywords``: for a metaclass that takes some.

    ``__init_subclass__`` of the bases is removed meanwhile, so that it does not run. That of ``typing.Generic`` cannot be
    removed where it is written in C; an empty ``__orig_bases__`` makes it do nothing.
    """
    hidden: list[tuple[type, Any]] = []
    for base in bases:
        for cls in base.__mro__:
            if "__init_subclass__" in cls.__dict__ and is_heap(cls):
                hidden.append((cls, cls.__dict__["__init_subclass__"]))
                type.__delattr__(cls, "__init_subclass__")
    is_generic = not is_heap(typing.Generic) and any(issubclass(base, typing.Generic) for base in bases)
    if is_generic:
        essentials = {"__orig_bases__": (), **essentials}
    try:
        in_c = metaclass_of_ctypes(meta)
        maker = in_c or next(cls for cls in meta.__mro__ if not is_heap(cls))
        new: Any = maker.__new__
        made: type = new(meta, name, bases, essentials, **(keywords or {}))
        if in_c is not None:  # from Python 3.13 on, __init__ reads the layout
            in_c.__init__(made, name, bases, essentials)
        if is_generic:
            type.__delattr__(made, "__orig_bases__")
    finally:
        for cls, hook in hidden:
            type.__setattr__(cls, "__init_subclass__", hook)
    if issubclass(meta, ABCMeta):
        stdlib.make_abstract(made)
        made.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # its attributes may lead to an instance
    return made


def _setter_in_c(meta: type) -> Any:
    """The class whose ``__setattr__`` sets an attribute of a class of this metaclass, without the program's own methods.
    Metaclasses that are made in C (pybind11's) have one, and the one of ``type`` refuses their classes."""
    return next(
        each for each in meta.__mro__ if type(each.__dict__.get("__setattr__")) is types.WrapperDescriptorType
    )


def fill_class(cls: type, state: tuple[dict[str, Any], Any]) -> None:
    attributes, abstract = state
    set_attribute = (metaclass_of_ctypes(type(cls)) or _setter_in_c(type(cls))).__setattr__
    for key, value in attributes.items():
        set_attribute(cls, key, value)
    if abstract is not None:
        cls.__abstractmethods__ = abstract  # type: ignore[attr-defined]


def register_virtual(cls: type, subclasses: Sequence[type]) -> None:
    """Register virtual subclasses with an abstract base class; called when all classes are complete."""
    for subclass in subclasses:
        ABCMeta.register(cls, subclass)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- instances


def type_made_by(function: Callable[[], object]) -> type:
    return type(function())


def once(made: list[Any], make: Callable[..., Any], *args: Any) -> Any:
    """What ``make(*args)`` returns, the first time; then the same again."""
    if not made:
        made.append(make(*args))
    return made[0]


def make_instance(cls: type) -> Any:
    try:
        return object.__new__(cls)
    except TypeError:  # a class below is made in C, and allocates its objects itself (ast.AST)
        below = next(
            each for each in cls.__mro__ if type(each.__dict__.get("__new__")) is types.BuiltinFunctionType
        )
        make: Any = below.__new__
        return make(cls)


def make_from_builtin(base: type, cls: type, *args: Any) -> Any:
    """An instance of ``cls``, which derives from the builtin type ``base``; ``args``: the value, for ``base.__new__``."""
    return base.__new__(cls, *args)


def make_by_base(base: type, cls: type, *args: Any) -> Any:
    """As ``base(*args)`` would be, but of ``cls``. Types in C may take their content in ``__init__`` (``bytearray``). A
    ``__init__`` in Python is left out: the attributes come back anyway."""
    make: Any = base.__new__
    made = make(cls, *args)
    fill: Any = getattr(base, "__init__")  # noqa: B009
    if type(fill) is types.WrapperDescriptorType and fill is not object.__init__:
        fill(made, *args)
    return made


def fill_instance(obj: Any, attributes: dict[str, Any]) -> None:
    """Set the instance's dictionary to ``attributes`` itself, not a copy: other objects may hold this dictionary too."""
    set_instance_dictionary(obj, attributes)


def fill_slots(obj: Any, state: tuple[dict[str, Any] | None, list[tuple[type, str, Any]]]) -> None:
    attributes, slots = state
    if attributes is not None:
        set_instance_dictionary(obj, attributes)
    for owner, name, value in slots:
        set_slot(obj, owner.__dict__[name], value)


def fill_container(
    obj: Any, state: tuple[dict[str, Any] | None, list[tuple[type, str, Any]], type, list[Any] | None]
) -> None:
    """Fill an instance of a subclass of list, dict, set or frozenset: attributes, then items by the builtin type's own
    methods. No items (None): they have been given to it while the state was loaded."""
    attributes, slots, base, items = state
    fill_slots(obj, (attributes, slots))
    if items is None:
        return
    if base is list:
        list.extend(obj, items)
    else:
        dict.update(obj, items)


def fill_by_base(
    obj: Any, state: tuple[type, Any, dict[str, Any] | None, list[tuple[type, str, Any]]]
) -> None:
    """Set the state as the library class ``base`` does, then the attributes and slots of the program's classes."""
    base, own, attributes, slots = state
    setstate: Any = getattr(base, "__setstate__", None)
    if own is not None and setstate is not None:
        setstate(obj, own)
    elif isinstance(own, tuple) and len(own) == 2 and isinstance(own[1], dict):
        for name, value in own[1].items():
            object.__setattr__(obj, name, value)
    if attributes:
        object.__getattribute__(obj, "__dict__").update(attributes)
    for owner, name, value in slots:
        set_slot(obj, owner.__dict__[name], value)


def fill_deque(obj: Any, state: tuple[Any, ...]) -> None:
    attributes, slots, items, maxlen = state
    deque.__init__(obj, items, maxlen)
    fill_slots(obj, (attributes, slots))


def fill_ordered(obj: Any, state: tuple[Any, ...]) -> None:
    attributes, slots, items = state
    for key, value in items or ():
        OrderedDict.__setitem__(obj, key, value)
    fill_slots(obj, (attributes, slots))


def fill_defaultdict(obj: Any, state: tuple[Any, ...]) -> None:
    attributes, slots, items, default_factory = state
    obj.default_factory = default_factory
    dict.update(obj, items or ())
    fill_slots(obj, (attributes, slots))


ARGS: Any = BaseException.__dict__["args"]
"""The descriptor of :class:`BaseException` itself: a class of the program may define a slot or property of that name."""


def make_exception(base: type, cls: type, args: tuple[Any, ...]) -> BaseException:
    made: BaseException = base.__new__(cls, *args)
    return made


def fill_exception(obj: BaseException, state: tuple[Any, ...]) -> None:
    args, attributes, cause, context, suppress, fields, slots, traceback = state
    ARGS.__set__(obj, args)
    for owner, name, value in fields:
        owner.__dict__[name].__set__(obj, value)
    obj.__cause__ = cause
    obj.__context__ = context
    obj.__suppress_context__ = suppress
    obj.__traceback__ = traceback
    fill_slots(obj, (attributes, slots))


# ---------------------------------------------------------------------- mappings of classes, bound attributes


def make_mapping_proxy(mapping: Mapping[Any, Any]) -> Any:
    return types.MappingProxyType(mapping)


def class_dict(cls: type) -> Any:
    return cls.__dict__


def make_super(this_class: type, obj: Any) -> Any:
    return super(this_class, obj) if obj is not None else super(this_class)


def bind(cls: type, name: str, obj: object) -> Any:
    """The attribute ``name`` of the class itself, bound to ``obj``."""
    return cls.__dict__[name].__get__(obj)


def call_attribute(owner: Any, name: str) -> Any:
    """The descriptor ``name`` of a class, unbound."""
    return owner.__dict__[name]


# ---------------------------------------------------------------------- locks, weak references, context


def make_lock(locked: bool) -> Any:
    made = threading.Lock()
    if locked:
        made.acquire()
        note_lock(made)
    return made


class _Gone:
    pass


def make_weakref(cls: type, target: Any, callback: Any) -> Any:
    return weakref.ref.__new__(cls, target, callback)


def fill_weakref(
    ref: Any,
    state: tuple[dict[str, Any] | None, list[tuple[type, str, Any]], list[tuple[type, str]]],
) -> None:
    """``state``: attributes, slots, and the slots that hold the address of the referent (``weakref.KeyedRef.key`` in a
    WeakValueDictionary by ``id()``)."""
    attributes, slots, own = state
    fill_slots(ref, (attributes, slots))
    for owner, name in own:
        owner.__dict__[name].__set__(ref, id(weakref.ref.__call__(ref)))


def make_dead_weakref(cls: type) -> Any:
    return weakref.ref.__new__(cls, _Gone())


def make_weakproxy(target: Any, *callback: Any) -> Any:
    return weakref.proxy(target, *callback)


def make_iteration_guard() -> Any:
    return object.__new__(referents.ITERATION_GUARD)


def fill_iteration_guard(guard: Any, state: tuple[dict[str, Any], bool]) -> None:
    attributes, is_entered = state
    guard.__dict__.update(attributes)
    if is_entered:
        referents.enter_guard(guard)


def make_dead_weakproxy() -> Any:
    return weakref.proxy(_Gone())


def make_module(name: str) -> types.ModuleType:
    return types.ModuleType(name)


def fill_module_dict(module: types.ModuleType, state: tuple[dict[str, Any], type]) -> None:
    """Give the module this dictionary itself, because the module's functions hold it as their globals, and its class.

    Raises RestoreError where this interpreter's modules keep their dictionary in another place.
    """
    attributes, cls = state
    if not replace_dictionary(module, attributes):
        raise RestoreError("a module cannot be made again by this interpreter")
    if cls is not types.ModuleType:
        module.__class__ = cls


def set_module_class(module: types.ModuleType, cls: type) -> None:
    module.__class__ = cls


def generator_make(func: Any, name: str, qualname: str, code: types.CodeType) -> Any:
    from ckpt.image.frames.generators import gen_make

    return gen_make(func, name, qualname, code)


def generator_fill(generator: Any, record: Any) -> None:
    from ckpt.image.frames.generators import gen_fill

    gen_fill(generator, record)


def function_of(module: str, name: str) -> object:
    """The attribute ``name`` of a module, found while the image is loaded: the program's patches are not applied yet."""
    return getattr(importlib.import_module(module), name)
