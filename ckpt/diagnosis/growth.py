"""By how much the counters of devices have grown since the start of the job: a counter alone means nothing. Pure.

    counters    of each question that was asked at the start (`Question.key`): name of a value → number

Few errors say nothing: less than `LEAST` are none. A counter that is less than it was has begun anew (the machine was
started again, the device was replaced), and tells nothing.

Not here: asking at the start (`baseline`), thresholds (models).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ckpt.diagnosis.models import Model, Query
from ckpt.diagnosis.verdict import Answer

__all__ = ["LEAST", "Counters", "grown", "only_counters", "without_counters"]

Counters = Mapping[str, Mapping[str, float]]
LEAST: Final = 10
_MILLION: Final = 1e6


def grown(query: Query, source: str, values: Mapping[str, Any], before: Mapping[str, float]) -> Answer:
    """The answer to a query of a counter: how much it has grown, with `per` in a million of what that has grown by.

    `values`: what `source` says now; `before`: what it said at the start.
    """
    rise: dict[str, float] = {}
    for name in (query.value, *([query.per] if query.per is not None else ())):
        now, then = values.get(name), before.get(name)
        if not isinstance(now, float):
            return Answer(source, None, f"does not tell {name}", silent=False)
        if then is None:
            reason = f"did not tell {name} at the start of the job"
            return Answer(source, None, reason, silent=False)
        if now < then:
            reason = f"{name} has begun anew since the start of the job"
            return Answer(source, None, reason, silent=False)
        rise[name] = now - then
    value = rise[query.value]
    if query.per is None:
        return Answer(source, value)
    if value < LEAST:
        return Answer(source, 0.0)
    # what is damaged may not be counted among the others, or be all that there is
    return Answer(source, _MILLION * value / max(rise[query.per], value))


def without_counters(models: Sequence[Model]) -> list[Model]:
    """Models without the elements that are about what has grown."""
    return _chosen(models, grown=False)


def only_counters(models: Sequence[Model]) -> list[Model]:
    """These elements only."""
    return _chosen(models, grown=True)


def _chosen(models: Sequence[Model], *, grown: bool) -> list[Model]:
    found = []
    for model in models:
        elements = tuple(
            each for each in model.element if any(query.grown for query in each.queries) == grown
        )
        if elements:
            found.append(model.model_copy(update={"element": elements}))
    return found
