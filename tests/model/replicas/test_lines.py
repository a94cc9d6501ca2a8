"""Every order of images, answers, a flipped bit and deaths, within small bounds; and each rule taken out is noticed."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

import pytest

from ckpt.controller.replicas import clones, coordinator, copies, inquiries, memory, supervisor
from ckpt.controller.replicas import lines as own_lines
from ckpt.redundancy import lines, membership, vote
from ckpt.redundancy.memory import comparison
from tests.model.replicas.world import Violation, World

BOUNDS = {"requests": 2, "flips": 1, "deaths": 1}


def explore(classes: tuple[Any, Any], ranks: int, replicas: int, **bounds: int) -> tuple[int, bool]:
    """The number of states, and whether a line has been verified in one. Raises Violation."""
    first = World(classes, ranks, replicas, BOUNDS | bounds)
    known, open_, has_verified = {first.key()}, [first], False
    while open_:
        world = open_.pop()
        events = world.events()
        for number, event in enumerate(events):
            after = world if number == len(events) - 1 else world.clone()
            after.do(event)
            key = after.key()
            if key not in known:
                known.add(key)
                open_.append(after)
                has_verified = has_verified or bool(after.verified)
    return len(known), has_verified


SHIPPED = supervisor.ReplicaSupervisor, coordinator.ReplicaCoordinator


@pytest.mark.parametrize(("ranks", "replicas", "requests"), [(1, 2, 2), (1, 3, 1), (2, 2, 1)])
def test_a_line_that_is_gone_on_from_is_verified_and_holds_no_error_that_was_seen(
    ranks: int, replicas: int, requests: int
) -> None:
    states, has_verified = explore(SHIPPED, ranks, replicas, requests=requests)
    assert states > 100 and has_verified


@pytest.mark.nightly
@pytest.mark.parametrize(("ranks", "replicas", "deaths"), [(2, 3, 1), (1, 3, 3), (2, 2, 2)])
def test_the_same_within_larger_bounds(ranks: int, replicas: int, deaths: int) -> None:
    states, _ = explore(SHIPPED, ranks, replicas, deaths=deaths, requests=1 if ranks * replicas > 4 else 2)
    assert states > 1000


MUTANTS = {
    "as many as are needed": (lines, "if not self._suffice(same):", "if False:"),
    "what differs is not the same": (lines, '[plane] = "differs"', '[plane] = "same"'),
    "who is lost has no voice": (lines, "answers.pop(plane, None)", "pass"),
    "two of three are enough": (lines, "return len(self.others) + 1 < self.needed", "return len(self.others) < self.needed"),
    "what it has printed is printed": (coordinator, 'if state == "open" or not self.is_printed:', 'if state == "open":'),
    "a line is of one plane": (coordinator, "if self.donor != former:", "if False:"),
    "what is not verified says so": (coordinator, 'self.round.verified = state == "verified" and', "self.round.verified ="),
    "no restart from what is not verified": (
        own_lines,
        "if self.coordinator.round is None or self.coordinator.round.verified:",
        "if True:",
    ),
    "who was wrong takes its lines along": (
        supervisor,
        'self._distrust(planes, why) if cause == "wrong" else []',
        "[]",
    ),
    "of two that differ no line is used": (
        own_lines,
        "self._distrust({plane for _, plane in self.taken}, why)",
        "[]",
    ),
    "what is not compared is passed over": (own_lines, "self._pass_over(opened, decision", "self._pass_over([], decision"),
    "where nothing was compared it is said": (own_lines, "return [log, Say(text), *self", "return [*self"),
    "what was compared is kept": (own_lines, "self.lines.newest, full)", "self.lines.newest)"),
    "what could not be compared was not": (comparison, 'return self.outcome == "same" or', "return bool(self.outcome) or"),
}  # fmt: skip


ALL = (
    comparison,
    membership,
    vote,
    lines,
    coordinator,
    clones,
    own_lines,
    inquiries,
    copies,
    memory,
    supervisor,
)


def without(module: types.ModuleType, old: str, new: str) -> tuple[Any, Any]:
    """The classes, without one rule."""
    with pytest.MonkeyPatch.context() as patched:
        made = {}
        for each in ALL:
            source = inspect.getsource(each)
            if each is module:
                assert source.count(old) == 1, old
                source = source.replace(old, new)
            copy = made[each] = types.ModuleType(each.__name__)
            patched.setitem(sys.modules, each.__name__, copy)
            exec(compile(source, f"{each.__name__} without a rule", "exec"), copy.__dict__)
    return made[supervisor].ReplicaSupervisor, made[coordinator].ReplicaCoordinator


NOTICED = {
    "who is lost has no voice": (1, 3, {"requests": 1, "flips": 0}),
    "two of three are enough": (1, 3, {"requests": 1, "flips": 0}),
    "no restart from what is not verified": (1, 2, {"requests": 1, "flips": 0, "deaths": 2}),
    "who was wrong takes its lines along": (1, 3, {"requests": 1, "deaths": 2}),
    "what is not compared is passed over": (1, 2, {"flips": 0, "deaths": 2}),
    "where nothing was compared it is said": (1, 2, {"requests": 1, "flips": 0, "deaths": 2}),
    "what was compared is kept": (1, 2, {"flips": 0, "deaths": 0}),
}
"""Bounds within which a mutant is noticed, where one rank of two replicas does not suffice."""


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name: str) -> None:
    ranks, replicas, bounds = NOTICED.get(name, (1, 2, {"requests": 1}))
    with pytest.raises(Violation):
        explore(without(*MUTANTS[name]), ranks, replicas, **bounds)
