"""What jax keeps in C++, noted without a call that jax answers under a lock. With stand-ins for its modules."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ckpt.image.interface.library import Library
from ckpt.image.pytorch import jax_state
from ckpt.image.pytorch.jax_state import Jax

UNSET = object()


class Option:
    def __init__(self, value: object) -> None:
        self.value, self.own = value, UNSET

    def get_global(self) -> object:
        return self.value

    def get_local(self) -> object:
        return self.own

    def set_local(self, own: object) -> None:
        self.own = own  # type: ignore[assignment]

    def _set(self, value: object) -> None:
        self.value = value


class Node:
    pass


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    registered: list[Any] = []

    def register_pytree_node(*given: Any) -> None:
        if given[0] in [each[0] for each in registered]:
            raise ValueError("Duplicate custom PyTreeDef type registration")
        registered.append(given)

    options = {
        "jax_enable_x64": Option(False),
        "jax_debug_nans": Option(False),
        "jax_default_device": Option(None),
    }
    parts = {
        "jax": {},
        "jax._src.tree_util": {"register_pytree_node": register_pytree_node},
        "jax.tree_util": {"register_pytree_node": register_pytree_node},
        "jax._src.config": {
            "config": SimpleNamespace(_value_holders=options),
            "config_ext": SimpleNamespace(unset=UNSET),
        },
        "jax._src.core": {"trace_state_clean": lambda: True},
        "jax._src.xla_bridge": {"_backend_lock": threading.Lock(), "_backends": {}},
    }
    modules = {}
    for name, content in parts.items():
        modules[name] = ModuleType(name)
        vars(modules[name]).update(content)
        monkeypatch.setitem(sys.modules, name, modules[name])
    monkeypatch.setattr(jax_state, "_calls", [])
    monkeypatch.setattr(jax_state.process_references, "is_user_type", lambda cls: cls is Node)
    return SimpleNamespace(modules=modules, options=options, registered=registered)


def imported() -> Library:
    library = Jax("jax")
    library.when_imported()
    return library


def test_options_that_the_program_has_set_come_back_with_those_of_its_thread(jax: SimpleNamespace) -> None:
    library = imported()
    assert library.note_settings() is None
    jax.options["jax_enable_x64"].value = True
    jax.options["jax_default_device"].own = "cpu:1"
    saved = library.note_settings()
    jax.options["jax_enable_x64"].value, jax.options["jax_default_device"].own = False, UNSET
    library.apply_settings(saved)
    assert {name: (each.value, each.own) for name, each in jax.options.items()} == {
        "jax_enable_x64": (True, UNSET),
        "jax_debug_nans": (False, UNSET),
        "jax_default_device": (None, "cpu:1"),
    }


def test_classes_of_the_program_are_registered_again_once(jax: SimpleNamespace) -> None:
    library = imported()
    library.when_imported()  # a second time it does nothing
    jax.modules["jax.tree_util"].register_pytree_node(Node, len, list)
    jax.modules["jax.tree_util"].register_pytree_node(Option, len, list)  # of an installed package
    saved = library.note_settings()
    assert saved == ([("register_pytree_node", (Node, len, list), {})], {})
    jax.registered.clear()
    library.apply_settings(saved)
    library.apply_settings(saved)
    assert jax.registered == [(Node, len, list)]


def test_no_image_while_jax_traces_or_looks_for_devices(jax: SimpleNamespace) -> None:
    library = imported()
    assert library.reason_now(()) is None
    jax.modules["jax._src.core"].trace_state_clean = lambda: False
    assert library.reason_now(()) == "jax is tracing a function"
    with jax.modules["jax._src.xla_bridge"]._backend_lock:
        assert library.reason_now(()) == "jax is looking for devices"


def test_arrays_are_waited_for_without_the_lock_that_the_program_may_hold(jax: SimpleNamespace) -> None:
    """A rank waited for ever, whose main thread was in jax's look for devices."""
    waited: list[str] = []

    def array(name: str, *, is_deleted: bool) -> SimpleNamespace:
        return SimpleNamespace(is_deleted=lambda: is_deleted, block_until_ready=lambda: waited.append(name))

    client = SimpleNamespace(live_arrays=lambda: [array("a", is_deleted=False), array("b", is_deleted=True)])

    def live_arrays() -> list[Any]:
        raise AssertionError("asks for the lock")

    jax.modules["jax"].live_arrays = live_arrays
    library = imported()
    library.before_image()
    jax.modules["jax._src.xla_bridge"]._backends["cpu"] = client
    with jax.modules["jax._src.xla_bridge"]._backend_lock:
        library.before_image()
    assert waited == ["a"]
