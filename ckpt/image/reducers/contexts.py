"""Context variables, contexts and tokens (PEP 567), and the context managers of ``with decimal.localcontext()``.

This module has the reducers and the functions that the pickle stream calls at load. The names of the latter are part of the
image format.

A token belongs to the context in which it was made. The program's current context becomes the current context of the process
that loads the image, so a token of that context is made there: the variable is set to the old value, then set once more,
which gives the token, and then reset. A token whose old value is "not set" can be made only by resetting the variable with
it, which marks the token as used; the mark is removed afterwards.
"""

from __future__ import annotations

import contextvars
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat.accelerators import DECIMAL
from ckpt.compat.memory import mark_unused, move_token
from ckpt.compat.referents import context_of_token
from ckpt.image.errors import RestoreError

_DECIMAL_CONTEXT = "decimal_context"

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["decimal_reducers", "has_decimal_context", "reduce_context", "reduce_context_var", "reduce_token"]


def reduce_context_var(pickler: Saver, obj: contextvars.ContextVar[Any]) -> Any:
    try:
        default = (contextvars.Context().run(obj.get),)
    except LookupError:
        return make_context_var, (obj.name,)
    return make_context_var, (obj.name, *default)


def make_context_var(name: str, *default: Any) -> contextvars.ContextVar[Any]:
    if default:
        return contextvars.ContextVar(name, default=default[0])
    return contextvars.ContextVar(name)


def reduce_context(pickler: Saver, obj: contextvars.Context) -> Any:
    if obj is present_context():
        return present_context, ()
    items = [(None if _is_of_decimal(var) else var, value) for var, value in obj.items()]
    return make_context, (), items, None, None, fill_context


def has_decimal_context() -> bool:
    """Has :mod:`decimal` made a context in the current one? If not, it makes one when it needs one: what is run in copies of
    the current context has one each."""
    return any(_is_of_decimal(var) for var in contextvars.copy_context())


def _is_of_decimal(var: contextvars.ContextVar[Any]) -> bool:
    """Is this the variable in which :mod:`decimal` keeps the current context? No name leads to it."""
    return var.name == _DECIMAL_CONTEXT


def present_context() -> contextvars.Context | None:
    """The current context itself (:func:`contextvars.copy_context` gives only a copy)."""
    probe: contextvars.ContextVar[None] = contextvars.ContextVar("probe")
    token = probe.set(None)
    probe.reset(token)
    return context_of_token(token)


def make_context() -> contextvars.Context:
    return contextvars.Context()


def fill_context(
    context: contextvars.Context, items: list[tuple[contextvars.ContextVar[Any] | None, Any]]
) -> None:
    for var, value in items:
        if var is None:
            import decimal

            context.run(decimal.setcontext, value)
        else:
            context.run(var.set, value)


def reduce_capsule(pickler: Saver, obj: Any) -> Any:
    """Raises PicklingError."""
    raise PicklingError("a capsule (a pointer of a C library) cannot be saved")


# ---------------------------------------------------------------------- tokens


def reduce_token(pickler: Saver, obj: contextvars.Token[Any]) -> Any:
    context = context_of_token(obj)
    if context is present_context():
        context = None
    old = () if obj.old_value is contextvars.Token.MISSING else (obj.old_value,)
    return make_token, (context, obj.var, old, repr(obj).startswith("<Token used"))


def make_token(
    context: contextvars.Context | None, var: contextvars.ContextVar[Any], old: tuple[Any, ...], used: bool
) -> contextvars.Token[Any]:
    """A token of ``var`` made in ``context`` (``None``: the current one); afterwards the variable has the value it had
    before.

    ``old``: the token's old value in a tuple, empty for ``Token.MISSING``. ``used``: has the token been used? Raises
    RestoreError: the variable has a value here already.
    """
    if context is not None:  # it may have its values already, or get them later
        token = contextvars.Context().run(make_token, None, var, old, used)
        if not move_token(token, context):
            raise RestoreError("a token of a context variable cannot be made again by this interpreter")
        return token
    if old:
        base = var.set(old[0])
        token = var.set(None)
        if used:
            var.reset(token)
        var.reset(base)
        return token
    before = var.get(None)
    token = var.set(None)
    if token.old_value is not contextvars.Token.MISSING:
        var.reset(token)
        raise RestoreError(f"the context variable {var.name!r} is set here already ({before!r})")
    var.reset(token)
    if not used and not mark_unused(token):
        raise RestoreError("a token of a context variable cannot be made again by this interpreter")
    return token


# ---------------------------------------------------------------------- decimal


def decimal_reducers() -> dict[type, Any]:
    """The reducer for ``decimal.localcontext()``, by type; :mod:`decimal` must be imported."""
    import decimal

    manager = type(decimal.localcontext())
    if manager.__module__ not in DECIMAL:
        return {}
    return {manager: reduce_decimal_manager}


def reduce_decimal_manager(pickler: Saver, obj: Any) -> Any:
    """The manager is entered and left to find the two contexts that it holds; then the current context is set again."""
    import decimal

    present = decimal.getcontext()
    try:
        inside = obj.__enter__()
        obj.__exit__(None, None, None)
        outside = decimal.getcontext()
    except TypeError as failure:  # a manager that is not complete
        raise PicklingError(f"a decimal context manager: {failure}") from failure
    finally:
        decimal.setcontext(present)
    return make_decimal_manager, (inside, outside)


def make_decimal_manager(inside: Any, outside: Any) -> Any:
    """A manager that sets the context ``outside`` when it is left."""
    import decimal

    present = decimal.getcontext()
    decimal.setcontext(outside)
    try:
        return decimal.localcontext(inside)
    finally:
        decimal.setcontext(present)
