"""jax: what it keeps in C++ beside its arrays.

- Classes of the program that are nodes of trees (``register_pytree_node``, ``register_dataclass``, and so ``flax.struct``
  and equinox): nobody can read that table, so the calls are recorded, and made again.
- The configuration (``jax.config.update("jax_enable_x64", True)``), the main thread's own one of a ``with`` block included.
- Devices: found again by platform and number.

While jax traces a function, the values in it are places in C++ and in tables of the trace, and libraries above it (numpyro)
keep what they know of the function in variables. No image is taken meanwhile.

Not here: arrays (:mod:`ckpt.image.pytorch.gpu_arrays`).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable
from typing import Any

from ckpt.image.interface.library import Library, Reducer
from ckpt.image.modules.references import process_references
from ckpt.image.pytorch.gpu_arrays import reduce_jax

__all__ = ["Jax", "find_device", "make_tree", "register"]

_REGISTERING = ("register_pytree_node", "register_dataclass")
"""The others of the public functions call the first of these, by its name in jax's own module."""
_PLACES = ("jax._src.tree_util", "jax.tree_util")
_CONFIGURATION, _CORE, _ARRAY = "jax._src.config", "jax._src.core", "jax._src.array"
_BACKENDS = "jax._src.xla_bridge"

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
Values = dict[str, tuple[Any, ...]]
"""Name of an option → its value, and the main thread's own one, if it has one."""
_calls: list[Call] = []


class Jax(Library):
    """jax"""

    moment_limit_s = 600.0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._imported: Values = {}

    def when_imported(self) -> None:
        self._imported = _values()
        places = [sys.modules[name] for name in _PLACES if name in sys.modules]
        for name in _REGISTERING:
            original = getattr(places[0], name, None) if places else None
            if original is not None and not hasattr(original, "is_recorded"):
                recording = _recording(name, original)
                for place in places:
                    setattr(place, name, recording)

    def reason_now(self, values: Iterable[Any]) -> str | None:
        if getattr(getattr(sys.modules.get(_BACKENDS), "_backend_lock", None), "locked", bool)():
            return "jax is looking for devices"
        is_clean: Any = getattr(sys.modules.get(_CORE), "trace_state_clean", None)
        return None if is_clean is None or is_clean() else "jax is tracing a function"

    def before_image(self) -> None:
        """What runs is waited for: an array that nobody has computed yet never will be in a child.

        jax's own ``live_arrays()`` would look for devices where the program has not yet, and wait for a lock that the
        program may hold.
        """
        backends: Any = getattr(sys.modules.get(_BACKENDS), "_backends", {})
        for backend in list(backends.values()):
            for array in backend.live_arrays():
                if not array.is_deleted():
                    array.block_until_ready()

    def reducer_by_base(self, cls: type) -> Reducer | None:
        base = getattr(sys.modules.get(_ARRAY), "ArrayImpl", None)
        if cls.__module__.partition(".")[0] == "jaxlib" and cls.__name__ in _REDUCERS:
            return _REDUCERS[cls.__name__]
        return reduce_jax if isinstance(base, type) and issubclass(cls, base) else None

    def note_settings(self) -> tuple[list[Call], Values] | None:
        calls = _calls_of_program()
        changed = {name: value for name, value in _values().items() if value != self._imported.get(name)}
        return (calls, changed) if calls or changed else None

    def apply_settings(self, saved: tuple[list[Call], Values]) -> None:
        calls, changed = saved
        holders = _holders()
        for name, (value, *own) in changed.items():
            if name in holders:
                holders[name]._set(value)
            if name in holders and own:
                holders[name].set_local(own[0])
        register(calls)


def _holders() -> dict[str, Any]:
    configuration: Any = getattr(sys.modules.get(_CONFIGURATION), "config", None)
    found: dict[str, Any] = getattr(configuration, "_value_holders", {})
    return found


def _values() -> Values:
    found: Values = {}
    for name, holder in _holders().items():
        if not hasattr(holder, "get_local"):
            found[name] = (holder.value,)
            continue
        own, unset = holder.get_local(), getattr(sys.modules[_CONFIGURATION].config_ext, "unset", None)
        found[name] = (holder.get_global(), *(() if own is unset else (own,)))
    return found


def _recording(name: str, original: Any) -> Any:
    @functools.wraps(original)
    def recorded(nodetype: Any, *arguments: Any, **options: Any) -> Any:
        made = original(nodetype, *arguments, **options)
        _calls.append((name, (nodetype, *arguments), options))
        return made

    recorded.is_recorded = True  # type: ignore[attr-defined]
    return recorded


def _calls_of_program() -> list[Call]:
    return [call for call in _calls if process_references.is_user_type(call[1][0])]


def reduce_tree(saver: Any, tree: Any) -> Any:
    """The structure of a tree, with nodes of classes of the program: they are registered before it is made."""
    calls = saver.shared.setdefault("jax", _calls_of_program())
    return make_tree, (calls, type(tree), tree.__getstate__())


def reduce_device(saver: Any, device: Any) -> Any:
    return find_device, (device.platform, device.id)


_REDUCERS: dict[str, Reducer] = {"Device": reduce_device, "PyTreeDef": reduce_tree}


# ---------------------------------------------------------------------- called while loading


def register(calls: list[Call]) -> None:
    for name, arguments, options in calls:
        # it may be there: by an earlier call, or a module that is imported again
        with contextlib.suppress(ValueError):
            getattr(sys.modules[_PLACES[0]], name)(*arguments, **options)


def make_tree(calls: list[Call], cls: Any, state: Any) -> Any:
    register(calls)
    made = cls.__new__(cls)
    made.__setstate__(state)
    return made


def find_device(platform: str, number: int) -> Any:
    import jax  # type: ignore[import-not-found, import-untyped, unused-ignore]

    return next(each for each in jax.devices(platform) if each.id == number)
