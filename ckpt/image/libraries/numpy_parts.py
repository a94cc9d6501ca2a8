"""Parts of numpy beside its arrays.

Its settings for floating-point errors are held by a context variable as a capsule (a pointer of C). The capsule is made
again by setting these errors in a new context. Capsules of other libraries cannot be saved.

Universal functions that are made of functions of the program (``vectorize``, ``frompyfunc``) are followed from the import on
(``frames_callbacks.c``).

Some functions of numpy (``apply_along_axis``) hold a converter: it makes arrays of their arguments, and of their result
what the arguments were. One that makes plain arrays and numbers is made again; one that calls a class of a library or of the
program is named.
"""

from __future__ import annotations

import contextvars
import datetime
import importlib
import pickle
import sys
from typing import Any

from ckpt.image.frames import _frames
from ckpt.image.reducers.contexts import reduce_capsule as reduce_other
from ckpt.image.reducers.saver import Saver

__all__ = ["CAPSULE", "CONVERTERS", "follow_functions", "make_errors", "reduce_capsule"]

CAPSULE = type(datetime.datetime_CAPI)

Errors = tuple[dict[str, Any], Any, int]
"""Mode of each kind of error, the function that is called, the size of buffers."""


def reduce_converter(pickler: Saver, converter: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    probe = numpy.empty(1)
    arrays = converter.as_arrays(subok=True, pyscalars="preserve")
    is_plain = all(type(each) in (numpy.ndarray, int, float, complex) for each in arrays)
    if not is_plain or converter.wrap(probe, to_scalar=False) is not probe:
        raise pickle.PicklingError(
            "a function of numpy is at work whose result will be of a class of its own"
        )
    numbers = [
        each[()] if is_scalar and type(each) is numpy.ndarray else each
        for each, is_scalar in zip(arrays, converter.scalar_input, strict=True)
    ]
    return make_converter, (numbers,)


def make_converter(values: list[Any]) -> Any:
    compiled: Any = importlib.import_module("numpy._core._multiarray_umath")
    return compiled._array_converter(*values)


CONVERTERS = {"_array_converter": reduce_converter}


def follow_functions() -> None:
    """From now on, images may be taken while numpy calls a function of the program for each item of arrays of objects."""
    function = getattr(sys.modules.get("numpy"), "frompyfunc", None)
    if _frames.SUPPORTED and function is not None:
        _frames.follow_ufuncs(function)


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
