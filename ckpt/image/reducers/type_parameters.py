"""Type parameters and type aliases (PEP 695), which are objects made in C from Python 3.12 on.

``pickle`` saves them by name. That fails for those of by-value modules and for the parameters of a generic function. So
these are made again from their parts: name, bound, constraints, default, value. A bound or alias value that has not been
evaluated yet is evaluated for that.

In Python 3.11, which has no such objects, :data:`REDUCERS` is empty.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Reducer, Saver

__all__ = ["REDUCERS", "make_type_alias", "make_type_parameter"]


def _is_found_by_name(pickler: Saver, obj: Any) -> bool:
    module = getattr(obj, "__module__", None)
    if module in pickler.references.by_value:
        return False
    return getattr(sys.modules.get(module or ""), obj.__name__, None) is obj


def _default(obj: Any) -> dict[str, Any]:
    """The default of a parameter as a keyword argument; empty if it has none (always before Python 3.13)."""
    return {"default": obj.__default__} if getattr(obj, "has_default", bool)() else {}


def reduce_type_parameter(pickler: Saver, obj: Any) -> Any:
    if _is_found_by_name(pickler, obj):
        return NotImplemented
    cls, arguments, keywords = type(obj), [obj.__name__], _default(obj)
    if cls is not typing.TypeVarTuple:
        keywords["bound"] = obj.__bound__
        for name in ("covariant", "contravariant", "infer_variance"):
            keywords[name] = getattr(obj, f"__{name}__")
    if cls is typing.TypeVar:
        arguments += obj.__constraints__
    return make_type_parameter, (cls, arguments, keywords, obj.__module__)


def reduce_parameter_part(pickler: Saver, obj: Any) -> Any:
    """The reducer for ``P.args`` and ``P.kwargs`` of a ParamSpec ``P``."""
    return type(obj), (obj.__origin__,)


def reduce_type_alias(pickler: Saver, obj: Any) -> Any:
    if _is_found_by_name(pickler, obj):
        return NotImplemented
    return make_type_alias, (obj.__name__, obj.__value__, obj.__type_params__, obj.__module__)


# ---------------------------------------------------------------------- called while loading


def make_type_parameter(cls: Any, arguments: list[Any], keywords: dict[str, Any], module: str | None) -> Any:
    made = cls(*arguments, **keywords)
    made.__module__ = module
    return made


def _alias(name: str, value: Any, parameters: tuple[Any, ...]) -> Any:
    return typing.TypeAliasType(name, value, type_params=parameters)  # type: ignore[attr-defined]


def make_type_alias(name: str, value: Any, parameters: tuple[Any, ...], module: str | None) -> Any:
    """A type alias takes its ``__module__`` from the globals of the function that makes it: each gets its own function."""
    make = types.FunctionType(_alias.__code__, {"__name__": module, "typing": typing})
    return make(name, value, parameters)


# ---------------------------------------------------------------------- the table

REDUCERS: dict[type, Reducer] = {}
"""Reducers by exact type."""

if hasattr(typing, "TypeAliasType"):
    REDUCERS |= dict.fromkeys((typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple), reduce_type_parameter)
    REDUCERS |= dict.fromkeys((typing.ParamSpecArgs, typing.ParamSpecKwargs), reduce_parameter_part)
    REDUCERS[typing.TypeAliasType] = reduce_type_alias
