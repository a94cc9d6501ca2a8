"""Which object a failure names."""

from __future__ import annotations

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


def _name() -> str:
    return f"{Model.__module__}.{Model.__qualname__}"
