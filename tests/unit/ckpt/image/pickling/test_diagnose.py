"""Which object a failure names."""

from __future__ import annotations

import sys
import types
import weakref

import pytest

from ckpt.image.errors import ObjectRefused
from ckpt.image.pickling import diagnose


class Model:
    def __init__(self) -> None:
        self.handle = object()


def test_an_object_that_is_refused_as_a_whole_is_named_and_not_a_part_of_it() -> None:
    """Reported of a model of xgboost in training: its handle was named, without the reason."""
    model = Model()
    refusal = ObjectRefused(model, "a model in training; wait")

    def attempt(part: object) -> Exception | None:
        if part is model.handle:
            return TypeError("cannot pickle 'object'")
        return None if isinstance(part, int) else refusal

    path, reason = diagnose.find([3, {"m": model}], attempt, refusal)
    assert (path, reason) == ("[1]['m']", "a model in training; wait (in an object of type " + _name() + ")")


class Solver:
    """As one in C that cannot be saved, and whose parts know it."""

    def __init__(self) -> None:
        self.callbacks = [{"solver": weakref.proxy(self)}, {"solver": self}]


def test_of_objects_that_know_each_other_the_one_that_the_failure_names_is_named() -> None:
    """Of a solver of highspy, a weak proxy was named that refers to it: `ckpt.register_type(weakref.ProxyType, …)`."""
    solver, failure = Solver(), TypeError("cannot pickle 'Solver' object")

    def attempt(part: object) -> Exception | None:
        return None if isinstance(part, str | float) else failure

    for value, wanted in ([3.0, solver], "[1]"), (solver.callbacks, "[0]['solver']"):
        path, reason = diagnose.find(value, attempt, failure)
        assert path == wanted
        assert reason == (
            f"cannot pickle 'Solver' object; close it before a checkpoint, or say how it is saved: "
            f"ckpt.register_type({Solver.__module__}.Solver, save, load)"
        )


def test_what_belongs_to_an_object_of_a_package_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a solver in C that cvxpy keeps, the remedy was to close it, and its class had no name."""
    package = types.ModuleType("package")
    package.__file__ = "/lib/site-packages/package/__init__.py"
    package.Solver = type("Solver", (), {"__module__": "builtins"})  # type: ignore[attr-defined]
    package.Problem = type("Problem", (), {"__module__": "package"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "package", package)
    problem, failure = package.Problem(), TypeError("cannot pickle 'Solver' object")
    problem.cache = {"solver": package.Solver()}
    path, reason = diagnose.find([problem], lambda part: None if isinstance(part, str) else failure, failure)
    assert path == "[0].cache['solver']"
    assert reason == (
        "cannot pickle 'Solver' object, which belongs to a package.Problem; say how it is saved: "
        "ckpt.register_type(package.Solver, save, load); or, if package makes it again when it finds None there: "
        "ckpt.register_type(package.Solver, lambda x: None, lambda x: None)"
    )


def _name() -> str:
    return f"{Model.__module__}.{Model.__qualname__}"
