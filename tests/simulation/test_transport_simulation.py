"""The simulation that ships (`ckpt.transport.protocol.simulation`): endpoints alone, with a coordinator of its own.

Every result as undisturbed, every committed line consistent and restorable. The whole job, with the
production code of controller, imager and store, is in `test_job_simulation`.

A failing seed is repeated by the line it prints.
"""

from __future__ import annotations

from random import Random

import pytest

from ckpt.transport.protocol.events import LinkDown, LinkUp
from ckpt.transport.protocol.simulation import MS, Faults, Simulation
from tests.simulation.scripted import Scripted, run_seed, scripts, undisturbed

pytestmark = pytest.mark.turns(2)

BLOCK = 25
BLOCKS = 4


def check_seed(seed: int) -> Simulation:
    try:
        return run_seed(seed)
    except Exception as error:
        line = f"python -c 'from tests.simulation.scripted import run_seed; run_seed({seed})'"
        pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\nrepeat: {line}")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_results_and_lines_of_seeds(block: int) -> None:
    runs = [check_seed(seed) for seed in range(block * BLOCK, (block + 1) * BLOCK)]
    assert sum(run.crashes for run in runs) > 0
    assert sum(run.commits for run in runs) > 0


@pytest.mark.soak
def test_results_and_lines_of_many_seeds() -> None:
    for seed in range(BLOCKS * BLOCK, 10_000):
        check_seed(seed)


def test_a_seed_is_a_run() -> None:
    first, second = run_seed(5), run_seed(5)
    assert (first.events, first.now_ns, list(first.log)) == (second.events, second.now_ns, list(second.log))
    assert run_seed(6).events != first.events


def test_without_faults_nothing_is_sent_twice() -> None:
    work = scripts(3, 100, seed=1)
    simulation = Simulation(3, lambda rank: Scripted(rank, work[rank]), seed=1, faults=Faults())
    simulation.finish()
    assert [p.program.digest for p in simulation.processes] == undisturbed(work)  # type: ignore[attr-defined]
    for process in simulation.processes:
        counters = process.endpoint.counters()
        assert counters["retransmitted"] == counters["timeouts"] == counters["duplicates"] == 0
        assert not any(count for name, count in counters.items() if name.startswith("dropped"))


def test_links_are_said_to_be_down_while_a_partition_lasts_and_up_afterwards() -> None:
    """That nobody is taken for dead whose kernel answers, the simulation itself checks in every run."""
    work = scripts(4, 2000, seed=3)
    faults = Faults(partition_every_ns=25 * MS, partition_ns=60 * MS, frozen=1.0, round_every_ns=10 * MS)
    simulation = Simulation(4, lambda rank: Scripted(rank, work[rank]), seed=3, faults=faults)
    simulation.run(1_000 * MS)
    simulation.finish()
    told = simulation.links_down
    downs = [(rank, event.rank) for rank, event in told if isinstance(event, LinkDown)]
    ups = [(rank, event.rank) for rank, event in told if isinstance(event, LinkUp)]
    assert downs and ups
    assert {event.kind for _, event in told if isinstance(event, LinkDown)} == {"silent"}
    for pair in set(ups):
        assert ups.count(pair) <= downs.count(pair)


def test_faults_are_met() -> None:
    """The simulation is worth something only if the faults really happen and are really handled."""
    total: dict[str, int] = {}
    for seed in range(60):
        simulation = run_seed(seed)
        for process in (*simulation.processes, *simulation.zombies):
            for name, count in process.endpoint.counters().items():
                total[name] = total.get(name, 0) + count
    for name in (
        *("retransmitted", "timeouts", "duplicates", "early", "nacks_received", "probes_sent", "old_acks"),
        *("dropped_malformed", "dropped_stale", "dropped_zombie"),
    ):
        assert total[name] > 0, name


def test_faults_are_drawn_from_the_seed() -> None:
    assert Faults.drawn(Random(3)) == Faults.drawn(Random(3)) != Faults.drawn(Random(4))
