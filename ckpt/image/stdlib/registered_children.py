"""Child processes that a program has registered (``ckpt.register_child``): it starts them again itself after a restart.

Such a ``subprocess.Popen`` is no obstacle to an image while its process runs. In the image it is an object without a
process; the file objects of its pipes are not part of the image. In a new process the object gets the attributes of the one
that the program has started in its place.
"""

from __future__ import annotations

import weakref
from typing import Any

from ckpt.compat.children import disown_child

__all__ = ["expect_child", "is_expected", "take_place"]

_expected: weakref.WeakSet[Any] = weakref.WeakSet()


def expect_child(process: Any) -> None:
    """From now on, the program starts this child again after a restart."""
    _expected.add(process)


def is_expected(process: Any) -> bool:
    return process in _expected


def take_place(process: Any, started: Any) -> None:
    """Give the object of a child of a former process what belongs to the new child. Raises TypeError: ``started`` is no
    object of the same class."""
    if type(started) is not type(process):
        raise TypeError(f"it must return a {type(process).__qualname__}, not {type(started).__qualname__}")
    vars(process).update(vars(started))
    disown_child(started)
    expect_child(process)
