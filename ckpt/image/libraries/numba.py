"""numba: the random numbers of compiled functions; no image is taken while something is compiled or made known.

A function, universal function, stencil or class that is being made is entered in numba's tables by its constructor; one
that is loaded is made, and entered, anew. An image from within the constructor did both, at which numba fails.

Compiled functions have two generators in each thread, whose states are in memory of C. numba gives a forked child new
states, so the states are read in the program's own process, before the fork.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterable
from pickle import PicklingError
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Numba"]

_STATE_BYTES = 2516
"""Size of a generator's struct: index, 624 words, is a second normal number kept?, that number, was the generator seeded?"""


_MAKING = (
    "core.dispatcher:Dispatcher.__init__",
    "core.dispatcher:Dispatcher._rebuild",
    "np.ufunc.dufunc:DUFunc.__init__",
    "np.ufunc.dufunc:DUFunc._rebuild",
    "np.ufunc.gufunc:GUFunc.__init__",
    "np.ufunc.gufunc:GUFunc._rebuild",
    "stencils.stencil:StencilFunc.__init__",
    "experimental.jitclass.base:register_class_type",
)
"""What enters a function or class in numba's tables."""


class Numba(Library):
    transient_functions = tuple((f"numba.{name}", "numba is making a compiled function") for name in _MAKING)
    moment_limit_s = 60.0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._states: list[bytes] | None = []

    def reason_now(self, values: Iterable[Any]) -> str | None:
        """What is being compiled is in memory of LLVM. numba holds this lock meanwhile."""
        lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
        return "numba is compiling a function" if lock is not None and lock.is_locked() else None

    def before_image(self) -> None:
        self._states = _states()

    def reducers(self) -> dict[type, Reducer]:
        return by_name("numba.experimental.jitclass.base", {"JitClassType": refuse_class})

    def reducer_by_base(self, cls: type) -> Reducer | None:
        boxes = getattr(sys.modules.get("numba.experimental.jitclass._box"), "Box", None)
        return refuse_class if boxes is not None and issubclass(cls, boxes) else None

    def note_settings(self) -> list[bytes]:
        if self._states is None:
            raise PicklingError(
                "this version of numba keeps its random numbers in another way than is known here"
            )
        return self._states

    def apply_settings(self, saved: list[bytes]) -> None:
        for pointer, state in zip(_pointers(), saved, strict=True):
            ctypes.memmove(pointer, state, _STATE_BYTES)


def refuse_class(saver: Any, obj: Any) -> Any:
    raise ObjectRefused(
        obj,
        "a class of numba.experimental.jitclass, or an object of it: what it holds is in memory of compiled code; keep the "
        "numbers in arrays, or in a structured array, and give these to functions of numba.njit",
    )


def _states() -> list[bytes] | None:
    """The states of the two generators; ``None``: the layout of the struct is not the known one. numba's Python function
    gives the index and the words only, so the struct is compared with these and copied whole."""
    found = []
    for pointer in _pointers():
        state = ctypes.string_at(pointer, _STATE_BYTES)
        index, words = sys.modules["numba._helperlib"].rnd_get_state(pointer)
        if state[:2500] != struct.pack("i624I", index, *words):
            return None
        found.append(state)
    return found


def _pointers() -> list[int]:
    helper = sys.modules.get("numba._helperlib")
    return [] if helper is None else [helper.rnd_get_np_state_ptr(), helper.rnd_get_py_state_ptr()]
