"""Copies of replicas, in every order of images, answers, a flipped bit, a death and joins; each rule is needed."""

from __future__ import annotations

import pytest

from ckpt.controller.replicas import clones, coordinator
from ckpt.redundancy import membership
from tests.model.replicas.test_lines import SHIPPED, explore, without
from tests.model.replicas.world import Violation

ONE = {"requests": 0, "flips": 0, "deaths": 1, "copies": 1}


def test_a_lost_replica_is_replaced_by_a_copy_of_a_living_one() -> None:
    states, has_verified = explore(SHIPPED, 1, 3, **ONE)
    assert states > 20 and has_verified


def test_no_replica_is_called_wrong_that_is_right_and_no_error_of_a_copy_is_gone_on_from() -> None:
    states, _ = explore(SHIPPED, 1, 3, **ONE | {"flips": 1})
    assert states > 400


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("ranks", "replicas", "more"),
    [
        (2, 3, {"flips": 1}),
        (1, 3, {"flips": 1, "requests": 1}),
        (1, 2, {"flips": 1, "deaths": 2, "requests": 1}),
    ],
)
def test_the_same_within_larger_bounds(ranks: int, replicas: int, more: dict[str, int]) -> None:
    assert explore(SHIPPED, ranks, replicas, **ONE | more)[0] > 1000


MUTANTS = {
    "a donor that is lost takes its copy along": (clones, "and self.copy.donor in planes:", "and False:", {"deaths": 2}),
    "all hold before": (clones, "if copy.open:\n            return False\n        copy", "copy", {}),
    "only lines that were begun later": (clones, "or epoch <= copy.after or", "or", {"requests": 1}),
    "copies of one another do not decide": (
        membership,
        "return all(self.shared(each, other) >= root",
        "return all(True",
        {"flips": 1},
    ),
    "who was alone is not verified": (coordinator, ' and not self.was_alone', "", {"requests": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name: str) -> None:
    module, old, new, more = MUTANTS[name]
    replicas = 2 if name == "who was alone is not verified" else 3
    with pytest.raises(Violation):
        explore(without(module, old, new), 1, replicas, **ONE | more)
