"""Layers that hold messages, together: whatever takes how long, whoever is lost, copied, wrong or started again, every
program gets its messages once, in order, and as they should be."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.redundancy import surroundings
from ckpt.redundancy.comparison import receiver
from ckpt.redundancy.comparison.arrivals import Arrivals
from ckpt.redundancy.comparison.digests import Digests
from ckpt.redundancy.comparison.receiver import ReceiverLayer
from ckpt.redundancy.comparison.release import Releases
from ckpt.redundancy.files import names
from tests.unit.ckpt.redundancy.comparison.together import PROGRAM, Together

pytestmark = pytest.mark.turns(4)

SEEDS = 40


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers of many processes are in this one."""
    for name in ("install", "begin", "go_on"):
        monkeypatch.setattr(surroundings, name, lambda *arguments: None)
    monkeypatch.setattr(names, "install", lambda *arguments: None)


ways = pytest.mark.parametrize("way", ["sender", "receiver"])


@ways
@pytest.mark.parametrize("replicas", [2, 3])
def test_all_get_all_and_a_loss_keeps_nobody_from_it(way: str, replicas: int) -> None:
    for seed in range(SEEDS):
        job = Together(seed, way, replicas)
        job.some_steps()
        job.die(seed % replicas)
        job.to_the_end()
        assert all(job.has_all(plane) for plane in job.living) and not job.is_stuck(), seed


@ways
def test_a_flip_of_three_gets_nowhere_and_keeps_nobody_else(way: str) -> None:
    for seed in range(3 * len(PROGRAM)):
        wrong = seed % 3
        job = Together(seed, way, 3, flip=(wrong, seed // 3))
        job.to_the_end()
        assert job.is_stuck(), seed
        job.die(wrong)
        job.to_the_end()
        assert all(job.has_all(plane) for plane in job.living) and not job.is_stuck(), seed


@ways
def test_a_flip_of_two_stops_both(way: str) -> None:
    for seed in range(2 * len(PROGRAM)):
        job = Together(seed, way, 2, flip=(seed % 2, seed // 2))
        job.to_the_end()
        assert job.is_stuck(), seed


@ways
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_copy_gets_what_its_donor_had_not_got_and_votes(way: str, replicas: int) -> None:
    for seed in range(SEEDS):
        job = Together(seed, way, replicas)
        job.some_steps()
        job.die(job.random.randrange(replicas))
        job.some_steps()
        job.announce()
        job.some_steps()
        plane = job.copy(way)
        job.some_steps()
        if replicas == 3 and seed % 2:
            job.die(job.random.choice(job.living))
        job.to_the_end()
        assert all(job.has_all(each) for each in job.living) and not job.is_stuck(), (seed, plane)


@ways
def test_copies_replace_all_with_which_a_job_began(way: str) -> None:
    for seed in range(SEEDS // 2):
        job = Together(seed, way, 3)
        for _ in range(3):
            job.some_steps()
            job.die(min(job.living))
            job.announce()
            job.copy(way)
        job.to_the_end()
        assert job.living == [3, 4, 5] and all(map(job.has_all, job.living)) and not job.is_stuck(), seed


@ways
@pytest.mark.parametrize("then", ["late", "sender", "receiver"])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_restart_with_any_way_and_number_of_replicas(way: str, then: str, replicas: int) -> None:
    for seed in range(SEEDS // 2):
        job = Together(seed, way, 3)
        job.some_steps()
        job.restart(then, replicas)
        job.some_steps()
        job.restart(way, 2)  # begins of the first restart may be under way yet
        job.to_the_end()
        assert all(map(job.has_all, job.living)) and not job.is_stuck(), seed


def without_held(layer: ReceiverLayer, epoch: int) -> dict[str, Any]:
    return {**BESIDE(layer, epoch), "held": {}}


def without_begin(self: Arrivals, states: Any) -> None:
    self.has_begun = True


def from_the_start(self: Arrivals, stream: str | None, data: Any, now_ns: int) -> Any:
    self.has_begun = True
    return TAKE(self, stream, data, now_ns)


TAKE, BESIDE = Arrivals.take, ReceiverLayer._beside

MUTANTS = {
    "what is held is in no image": (ReceiverLayer, "_beside", without_held),
    "a begin says nothing": (Arrivals, "begin", without_begin),
    "nothing is kept for a copy": (Digests, "keep", lambda self, before: None),
    "a copy says nothing of its image": (Digests, "go_on", lambda self, states: None),
    "all is compared from the start": (Arrivals, "take", from_the_start),
    "a loss lets nothing go on": (Releases, "lost", lambda self, replicas: []),
    "begins of all runs are the same": (receiver, "RUN", 0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises(AssertionError):
        for replicas in (2, 3):
            test_all_get_all_and_a_loss_keeps_nobody_from_it("receiver", replicas)
            test_a_copy_gets_what_its_donor_had_not_got_and_votes("receiver", replicas)
        for replicas in (2, 3):
            test_a_restart_with_any_way_and_number_of_replicas("receiver", "receiver", replicas)
