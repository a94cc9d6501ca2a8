"""Many seeds of a whole job in virtual time, with everything failing: see `tests.simulation.job`.

The seeds of `make test` follow from the commit (`tests.seeds`). A seed that fails prints the line that
repeats it. Every rule of the protocol taken out (`tests.model.mutants`) is noticed within `MUTANT_SEEDS`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace

import pytest

from tests.model.mutants import BOUNDS, MUTANTS
from tests.model.world import Mutant, World
from tests.seeds import seed_of_the_commit
from tests.simulation.job import JobSimulation, SimulationError, run_job

BLOCK, BLOCKS = 50, 20
SOAK_SEEDS = 100_000
MUTANT_SEEDS = 500
TWICE = 100
"""One of so many seeds runs twice."""

Count = Callable[[str, int], None]
Totals = tuple[int, int, int, int]
pytestmark = [pytest.mark.timeout(1200), pytest.mark.turns(2)]


def check_seed(seed: int) -> JobSimulation:
    """Run it; a failure says how to repeat it."""
    try:
        run = run_job(seed)
        if seed % TWICE == 0:
            again = run_job(seed)
            assert (again.trace, again.events, again.now_ns) == (run.trace, run.events, run.now_ns)
    except Exception as error:
        raise AssertionError(
            f"seed {seed}: {type(error).__name__}: {error}\nrepeat: python -m tests.simulation {seed}"
        ) from error
    return run


def check_block(first: int, count: int) -> Totals:
    runs = [check_seed(seed) for seed in range(first, first + count)]
    return (
        sum(run.events for run in runs),
        sum(run.deaths for run in runs),
        sum(run.commits for run in runs),
        sum(run.restored for run in runs),
    )


def tell(figures: Count, seeds: int, totals: Totals) -> None:
    for name, count in zip(
        (
            "events",
            "deaths of ranks, agents, controllers, hosts",
            "commits",
            "committed lines run to the end",
        ),
        totals,
        strict=True,
    ):
        figures(f"simulated jobs: {name}", count)
    figures("simulated jobs: seeds", seeds)


def block_of_seeds(block: int) -> Totals:
    return check_block(seed_of_the_commit() + block * BLOCK, BLOCK)


def noticed_by(found: Mutant) -> tuple[int, str] | None:
    """The first seed that notices, and what it says."""
    world = World(found.edits)
    for seed in range(MUTANT_SEEDS):
        try:
            run_job(seed, world)
        except (SimulationError, AssertionError, ValueError) as noticed:
            return seed, str(noticed).partition("\n")[0]
    return None


@pytest.mark.rotate(10)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_line_and_every_result_is_right(block: int, figures: Count) -> None:
    totals = block_of_seeds(block)
    tell(figures, BLOCK, totals)
    assert all(totals)


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_every_line_and_every_result_of_many_seeds(figures: Count, soaked: Callable[..., None]) -> None:
    first, size = seed_of_the_commit(), 500
    with ProcessPoolExecutor() as pool:
        starts = range(first, first + SOAK_SEEDS, size)
        for totals in pool.map(check_block, starts, [size] * len(starts)):
            tell(figures, size, totals)
            soaked("simulation", size, events=totals[0], deaths=totals[1], commits=totals[2])


def test_a_seed_is_a_run() -> None:
    first, second, other = run_job(5), run_job(5), run_job(6)
    assert (first.trace, list(first.log)) == (second.trace, list(second.log))
    assert other.trace != first.trace


def test_one_seed_in_a_hundred_runs_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def run(seed: int) -> SimpleNamespace:
        runs.append(seed)
        return SimpleNamespace(trace="", events=1, now_ns=1, deaths=1, commits=1, restored=1)

    monkeypatch.setattr("tests.simulation.test_job_simulation.run_job", run)
    first = seed_of_the_commit()
    check_block(first, 3 * TWICE)
    twice = [seed for seed in dict.fromkeys(runs) if runs.count(seed) == 2]
    assert len(twice) == 3 and len(runs) == 3 * TWICE + 3


def test_what_does_not_follow_from_the_seed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays that are some nanoseconds longer each time, as if they came from a clock or from addresses."""
    drift, production = itertools.count(), JobSimulation._about

    def about(self: JobSimulation, mean_ns: int) -> int:
        return production(self, mean_ns) + next(drift)

    check_seed(TWICE)
    monkeypatch.setattr(JobSimulation, "_about", about)
    check_seed(TWICE + 1)
    with pytest.raises(AssertionError, match=f"repeat: python -m tests.simulation {TWICE}$"):
        check_seed(TWICE)


def test_what_a_rank_says_to_a_controller_is_heard_by_that_one() -> None:
    """A rank told the next controller that it had finished. That was taken for what it had said to the one before, since
    each arrival took the oldest report, whomever it was for; and the job did not end."""
    check_seed(1565088604)


def test_a_thread_of_the_testing_process_is_none_of_a_simulated_rank() -> None:
    """A test had left one behind: no rank could be captured any more, and the run did not end."""
    expected, over = run_job(5).trace, threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert run_job(5).trace == expected
    finally:
        over.set()
        thread.join()


def test_the_faults_are_met() -> None:
    """The simulation is worth something only if its faults happen, and are survived."""
    lines: set[str] = set()
    counters: dict[str, int] = {}
    sizes = set()
    for seed in range(60):
        run = run_job(seed)
        sizes.add(run.size)
        lines.update(" ".join(text.split()[2:]) for text in run.log)
        for rank in (*run.ranks, *run.zombies):
            for name, count in rank.process.endpoint.counters().items():
                counters[name] = counters.get(name, 0) + count
    text = "\n".join(lines)
    for what in (
        "is killed", "the agent dies", "the controller dies", "the host dies", "partition", "the image fails",
        "ControlWritten", "ControlFailed", "round-aborted",
    ):  # fmt: skip
        assert what in text, what
    for name in (
        *("retransmitted", "timeouts", "duplicates", "early", "nacks_received", "probes_sent", "old_acks"),
        *("dropped_malformed", "dropped_stale"),
    ):
        assert counters[name] > 0, name
    assert {2, 3, 4, 8} <= sizes


@pytest.mark.rotate(6)
@pytest.mark.parametrize(
    "found",
    # Not simulated: memory of other processes; programs that deal with failures themselves.
    [found for found in MUTANTS if not BOUNDS[found].remote and not BOUNDS[found].continues],
    ids=str,
)
def test_removing_a_rule_is_noticed(found: Mutant, figures: Count) -> None:
    noticed = noticed_by(found)
    assert noticed is not None, f"{MUTANT_SEEDS} seeds did not notice: {found}"
    print(f"seed {noticed[0]}: {noticed[1]}")
    figures("mutants caught by simulation", 1)
