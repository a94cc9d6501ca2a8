"""numpy's settings for floating-point errors, which a context variable holds as a capsule (a pointer of C).

The capsule is made again by setting these errors in a new context. Capsules of other libraries cannot be saved.
"""

from __future__ import annotations

import contextvars
import datetime
from typing import Any

from ckpt.image.reducers.contexts import reduce_capsule as reduce_other
from ckpt.image.reducers.saver import Saver

__all__ = ["CAPSULE", "make_errors", "reduce_capsule"]

CAPSULE = type(datetime.datetime_CAPI)

Errors = tuple[dict[str, Any], Any, int]
"""Mode of each kind of error, the function that is called, the size of buffers."""


def reduce_capsule(pickler: Saver, obj: Any) -> Any:
    if '"numpy.ufunc.extobj"' not in repr(obj):
        return reduce_other(pickler, obj)
    return make_errors, (contextvars.Context().run(_errors, obj),)


def _errors(capsule: Any) -> Errors:
    import numpy

    _variable().set(capsule)
    return {**numpy.geterr()}, numpy.geterrcall(), numpy.getbufsize()


def make_errors(settings: Errors) -> Any:
    return contextvars.Context().run(_set_errors, settings)


def _set_errors(settings: Errors) -> Any:
    import numpy

    errors, call, size = settings
    numpy.seterr(**errors)
    numpy.seterrcall(call)
    numpy.setbufsize(size)
    return _variable().get()


def _variable() -> Any:
    from numpy._core import umath

    return umath._extobj_contextvar
