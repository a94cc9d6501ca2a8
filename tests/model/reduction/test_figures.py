"""The figures of Li, Zhao, Yan et al. (2018) in shape, by simulation of the scheduler that ships: ratios, no clock."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.reduction_simulated import MB, PAPER_MS, RANKS, Cluster, gain, loads_of


@pytest.mark.parametrize("power", [17, 23, 25])
def test_table_1(power: int) -> None:
    """The time of one reduction follows from the messages that the master had each second."""
    assert Cluster(RANKS, 1 << power).run() == pytest.approx(PAPER_MS[power], rel=0.1)


def test_messages_of_table_1() -> None:
    """2 p - 1 messages to the master, but its own one, and a task for each combination."""
    cluster = Cluster(RANKS, 1 << 17)
    cluster.run()
    counts = cluster.hosts[0].counts
    assert counts["in"] == 2 * RANKS - 2 and RANKS - 1 <= counts["out"] <= 2 * RANKS + 10


@pytest.mark.rotate(2)
def test_figure_6() -> None:
    """Nobody loaded. (a) MPI is faster, and the less so the longer the data; (b) of many at once ours are."""
    ratios = [gain(1 << power) for power in (17, 21, 25)]
    assert ratios == sorted(ratios) and ratios[-1] < 0.5
    assert gain(8 * MB, 4) < 1 < gain(8 * MB, 28) < 2


@pytest.mark.parametrize("number", [50, 200])
def test_figures_7_and_8(number: int) -> None:
    """Some or all loaded: MPI is faster for short data, ours for long ones, and more so for several at once."""
    loads = loads_of(Random(2), number)
    short, long, many = gain(1 << 17, 1, loads), gain(16 * MB, 1, loads), gain(8 * MB, 4, loads)
    assert short < 0.7 and 1.2 < long < many, (short, long, many)


def test_figure_9() -> None:
    """32 MB, other loads each day: ours are faster every day, and by more for several at once."""
    for day in (0, 2):
        random = Random(100 + day)
        loads = loads_of(random, random.randrange(20, RANKS))
        one, many = gain(32 * MB, 1, loads), gain(32 * MB, 4, loads)
        assert 1.2 < one < many < 10, (one, many)


def test_all_at_once_do_not_give_their_tasks_to_the_same_few() -> None:
    """The tasks of other reductions count, too: 28 of 8 MB took 2.2 times as long."""
    assert Cluster(RANKS, 8 * MB, 12).run() < 2.5 * Cluster(RANKS, 8 * MB).run()
