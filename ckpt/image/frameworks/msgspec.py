"""msgspec: classes of the program that derive from ``msgspec.Struct``, their objects, encoders and decoders.

A class of structs is made by its metaclass in C, which reads the fields, their defaults and ``__post_init__`` from the class
statement, and the options from its keywords. All of this can be asked of the class. As with other classes of the program,
no code of it runs while it is made again: ``__post_init__`` is looked up when it is called.

Objects get their fields, and nothing else of the class is called. Encoders and decoders are their arguments. They look into
the classes that they are for, whose annotations may be names of variables: so they are filled when all else has been loaded.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from ckpt.compat.typeobjects import allocate
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers import by_value, rebuild
from ckpt.image.reducers.raw_instances import attributes_of, set_attributes, slots_of

__all__ = ["Msgspec", "fill", "fill_struct", "make", "make_struct_class", "make_with"]

_OPTIONS = (
    *("frozen", "eq", "order", "array_like", "gc", "cache_hash", "dict", "weakref"),
    *("omit_defaults", "repr_omit_defaults", "forbid_unknown_fields"),
)


class Msgspec(Library):
    def reducers(self) -> dict[type, Reducer]:
        if self.module is None:
            return {}
        kinds = {"Encoder": reduce_coder, "Decoder": reduce_coder}
        return {
            **by_name("msgspec.json", kinds),
            **by_name("msgspec.msgpack", kinds),
            **by_name("msgspec", {"Meta": reduce_meta}),
            type(self.module.Struct): reduce_struct_class,
        }

    def reducer_by_base(self, cls: type) -> Reducer | None:
        return reduce_struct if issubclass(cls, getattr(self.module, "Struct", ())) else None


def reduce_coder(pickler: Any, obj: Any) -> Any:
    pickler.defer(fill, obj, _arguments(obj))
    return make, (type(obj),)


def reduce_meta(pickler: Any, obj: Any) -> Any:
    return make_with, (type(obj), _arguments(obj))


def _arguments(obj: Any) -> dict[str, Any]:
    names = inspect.signature(type(obj)).parameters
    return {name: value for name in names if (value := getattr(obj, name)) is not None}


def reduce_struct(pickler: Any, obj: Any) -> Any:
    state = attributes_of(obj), slots_of(pickler, obj)
    return allocate, (type(obj),), state, None, None, fill_struct


def reduce_struct_class(pickler: Any, cls: Any) -> Any:
    reduced = by_value.reduce_class(pickler, cls)
    if type(reduced) is not tuple or reduced[0] is not rebuild.make_class:
        return reduced
    _, (meta, name, bases, essentials), *rest = reduced
    essentials = {key: value for key, value in essentials.items() if key != "__slots__"}
    own = [field for field in inspect.get_annotations(cls) if field in cls.__dict__.get("__slots__", ())]
    required = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
    fields = []
    for field in own:
        place = cls.__struct_fields__.index(field)
        default = [] if place < required else [cls.__struct_defaults__[place - required]]
        is_factory = bool(default) and hasattr(type(default[0]), "factory")
        value = default[0].factory if is_factory else default[0] if default else None
        if default and value is sys.modules["msgspec"].NODEFAULT:
            default = []
        fields.append((field, cls.__struct_encode_fields__[place], bool(default), is_factory, value))
    config = cls.__struct_config__
    options = {option: value for option in _OPTIONS if (value := getattr(config, option, None)) is not None}
    options["kw_only"] = bool(own) and not set(own) <= set(cls.__match_args__)
    options.update(
        {"tag": False} if config.tag is None else {"tag": config.tag, "tag_field": config.tag_field}
    )
    has_hook = "__post_init__" in cls.__dict__
    return make_struct_class, (meta, name, bases, essentials, fields, options, has_hook), *rest


# ---------------------------------------------------------------------- called while loading


def make(cls: Any) -> Any:
    return cls.__new__(cls)


def fill(coder: Any, arguments: dict[str, Any]) -> None:
    coder.__init__(**arguments)


def fill_struct(obj: Any, state: tuple[Any, Any]) -> None:
    set_attributes(obj, *state)


def make_with(cls: Any, arguments: dict[str, Any]) -> Any:
    return cls(**arguments)


def make_struct_class(
    meta: Any,
    name: str,
    bases: tuple[type, ...],
    essentials: dict[str, Any],
    fields: list[tuple[str, str, bool, bool, Any]],
    options: dict[str, Any],
    has_hook: bool,
) -> type:
    """``fields``: name, name in messages, is there a default, is it made by a function, the default or function."""
    import msgspec

    content: dict[str, Any] = {**essentials, "__annotations__": {field[0]: object for field in fields}}
    for field, _, has_default, is_factory, value in fields:
        if has_default:
            content[field] = msgspec.field(**{"default_factory" if is_factory else "default": value})
    if has_hook:
        content["__post_init__"] = _call_hook
    if fields:
        options = {**options, "rename": {field[0]: field[1] for field in fields}}
    return rebuild.make_class(meta, name, bases, content, options)


def _call_hook(obj: Any) -> None:
    """The metaclass keeps this one; the class has the program's by then."""
    type(obj).__post_init__(obj)
