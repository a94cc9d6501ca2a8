"""numba: the random numbers of compiled functions; no image is taken while something is compiled or made known.

A function, universal function, stencil or class that is being made is entered in numba's tables by its constructor; one
that is loaded is made, and entered, anew. An image from within the constructor did both, at which numba fails.

A compiled function is saved with its Python function as the program has it. numba's own way makes a copy of that one, with
global variables of its own. A stencil is saved so, too; the representation that numba makes of it has the values of global
variables in it, so it is made when all of the program is there.

What the program has declared by ``overload``, ``register_jitable``, ``overload_method`` and ``overload_attribute`` is in
numba's tables alone, so it is declared again in a new process. A module that is imported there does that by itself.

Compiled functions have two generators in each thread, whose states are in memory of C. numba gives a forked child new
states, so the states are read in the program's own process, before the fork.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
import sys
from collections.abc import Iterable, Iterator
from pickle import PicklingError
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.modules.origins import is_by_value
from ckpt.image.reducers.installed_classes import reduce_by_hooks

__all__ = ["Numba"]

_to_compile: list[tuple[Any, list[Any], bool]] = []
"""While an image is loaded: functions that are compiled for these types alone, once all is declared."""

_to_make: list[tuple[Any, Any, Any, Any]] = []
"""While an image is loaded: stencils, with their functions, modes and options."""

_STATE = {"uuid", "py_func", "locals", "targetoptions", "can_compile", "sigs"}
"""What numba says is to be saved of a compiled function, in the versions that are known here."""

Declared = tuple[str, tuple[Any, ...], dict[str, Any], Any]
"""A function of ``numba.extending``, its arguments, and the function that the program has given to it."""

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
        return {
            **by_name("numba.experimental.jitclass.base", {"JitClassType": refuse_class}),
            **by_name("numba.stencils.stencil", {"StencilFunc": reduce_stencil}),
            **by_name("numba.typed.typeddict", {"Dict": refuse_container}),
            **by_name("numba.typed.typedlist", {"List": refuse_container}),
        }

    def reducer_by_base(self, cls: type) -> Reducer | None:
        boxes = getattr(sys.modules.get("numba.experimental.jitclass._box"), "Box", None)
        if boxes is not None and issubclass(cls, boxes):
            return refuse_class
        compiled = getattr(sys.modules.get("numba.core.dispatcher"), "Dispatcher", None)
        return reduce_compiled if compiled is not None and issubclass(cls, compiled) else None

    def note_settings(self) -> tuple[list[bytes], list[Declared]]:
        if self._states is None:
            raise PicklingError(
                "this version of numba keeps its random numbers in another way than is known here"
            )
        return self._states, list(_declared())

    def apply_settings(self, saved: tuple[list[bytes], list[Declared]]) -> None:
        states, declared = saved
        for pointer, state in zip(_pointers(), states, strict=True):
            ctypes.memmove(pointer, state, _STATE_BYTES)
        for name, arguments, options, function in declared:
            getattr(importlib.import_module("numba.extending"), name)(*arguments, **options)(function)
        while _to_make:
            _make(*_to_make.pop(0))
        while _to_compile:
            _compile(*_to_compile.pop(0))


def refuse_class(saver: Any, obj: Any) -> Any:
    raise ObjectRefused(
        obj,
        "a class of numba.experimental.jitclass, or an object of it: what it holds is in memory of compiled code; keep the "
        "numbers in arrays, or in a structured array, and give these to functions of numba.njit",
    )


def refuse_container(saver: Any, obj: Any) -> Any:
    raise ObjectRefused(
        obj,
        "a container of numba.typed: what it holds is in memory of compiled code; keep a dict, list or array, make the "
        "typed container of it where a compiled function is called, and hold it no longer than for the call",
    )


def reduce_stencil(saver: Any, stencil: Any) -> Any:
    state = stencil.kernel_ir.func_id.func, stencil.mode, stencil.options
    return make_compiled, (type(stencil),), state, None, None, fill_stencil


def fill_stencil(stencil: Any, state: tuple[Any, Any, Any]) -> None:
    _to_make.append((stencil, *state))


def _make(stencil: Any, function: Any, mode: Any, options: Any) -> None:
    representation = importlib.import_module("numba.core.compiler").run_frontend(function)
    stencil.__init__(representation, mode, options)


def reduce_compiled(saver: Any, function: Any) -> Any:
    """What is compiled for types that it meets is compiled again when it meets them."""
    state = dict(function._reduce_states())
    if state.keys() != _STATE:
        return reduce_by_hooks(saver, function)
    return make_compiled, (type(function),), state, None, None, fill_compiled


def make_compiled(cls: Any) -> Any:
    return cls.__new__(cls)


def fill_compiled(function: Any, state: dict[str, Any]) -> None:
    function.__init__(state["py_func"], state["locals"], state["targetoptions"])
    function._set_uuid(state["uuid"])
    if state["sigs"]:
        _to_compile.append((function, state["sigs"], state["can_compile"]))
    else:
        function._can_compile = state["can_compile"]


def _compile(function: Any, signatures: list[Any], can_compile: bool) -> None:
    for signature in signatures:
        function.compile(signature)
    function._can_compile = can_compile


def _declared() -> Iterator[Declared]:
    """What modules that are saved by value have declared."""
    templates: Any = sys.modules.get("numba.core.typing.templates")
    if templates is None:
        return
    for each in templates.builtin_registry.functions:
        function = getattr(each, "_overload_func", None)
        if function is not None and each.key is not function and _is_own(each.key, function):
            yield "overload", (each.key, each._jit_options, each._strict), _options(each), function
    for each in templates.builtin_registry.attributes:
        function = getattr(each, "_overload_func", None)
        if function is not None and _is_own(each.key, function):
            is_method = issubclass(each, templates._OverloadMethodTemplate)
            name = "overload_method" if is_method else "overload_attribute"
            yield name, (each.key, each._attr), _options(each), function


def _is_own(*objects: Any) -> bool:
    """Is one of them of a module that is saved by value?"""
    names = (getattr(each, "__module__", None) for each in objects)
    return any(name in sys.modules and is_by_value(name, sys.modules[name]) for name in names if name)


def _options(template: Any) -> dict[str, Any]:
    return {"inline": template._inline.value, "prefer_literal": template.prefer_literal, **template.metadata}


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
