"""The small examples give the right answers, with any number of ranks."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.examples.worlds import World

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(autouse=True)
def examples_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def load(name: str) -> Any:
    return importlib.import_module(name)


def ring_by_hand(size: int, laps: int) -> int:
    token = 0
    for lap in range(laps):
        for rank in range(size):
            token = (31 * token + rank + lap) % 1_000_003
    return token


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_ring_adds_up(ranks: int) -> None:
    ring = load("ring")
    assert World(ranks).run(lambda comm: ring.ring(comm, 25)) == [ring_by_hand(ranks, 25)] * ranks


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_pi_does_not_depend_on_who_throws(ranks: int) -> None:
    pi = load("pi_montecarlo")
    first, *others = World(ranks).run(lambda comm: pi.estimate(comm, 12, 300))
    assert first == 4.0 * sum(pi.throw(task, 300) for task in range(12)) / (12 * 300)
    assert first == pytest.approx(math.pi, abs=0.1)
    assert others == [None] * (ranks - 1)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_heat_spreads_as_on_one_rod(ranks: int) -> None:
    heat = load("heat")
    rod = np.zeros(42)
    rod[0] = 1.0
    for _ in range(60):
        rod[1:-1] += 0.25 * (rod[2:] - 2.0 * rod[1:-1] + rod[:-2])
    temperatures, total = World(ranks).run(lambda comm: heat.diffuse(comm, 40, 60))[0]
    assert np.array_equal(temperatures, rod[1:-1])
    assert total == pytest.approx(rod[1:-1].sum())
