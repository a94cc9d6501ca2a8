"""abft.solve in real jobs: inputs of all kinds; ranks that die at random, several at once and in sequence."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.abft.abft_jobs import (
    MOST_CALLS,
    PROGRAMS,
    Death,
    goes_on_from_a_checkpoint,
    solve_with_deaths,
    solve_with_flips,
)
from tests.system.support import Job, jobs_fixture, write_app

pytest.importorskip("numpy")
pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(8)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


# ---- inputs ------------------------------------------------------------------------------------------------

SOLVED = {
    **{f"order {n}": rf"\({n},\) float64 {n > 0}" for n in (0, 1, 2, 3, 7, 39, 40)},
    "several right-hand sides": r"\(40, 3\) float64 True",
    "no right-hand side": r"\(40, 0\) float64 True",
    **{kind: rf"\(40,\) {kind} True" for kind in ("float32", "complex64", "complex128")},
    **dict.fromkeys(
        ("one column", "one row", "without checksums", "two columns of checksums", "nearly singular"),
        r"\(40,\) float64 True",
    ),
    "graded": r"\(40,\) float64 True the entries of A are between 1e-12 and 1e\+12: sums of checksums lose",
    **dict.fromkeys(
        ("integers converted", "recover", "look-ahead", "look-ahead and looks for wrong numbers"),
        r"\(40,\) float64 True",
    ),
    "look-ahead on one column": r"\(40,\) float64 True",
    "the other byte order": r"\(40,\) float64 True",
    "the other byte order as dtype": r"\(40,\) complex64 True",
    "not looked at": r"\(40,\) float64 False",
}
REFUSED = {
    "integers": r"InputError: matrices are of float32, .*not of int64.*give dtype=numpy.float64",
    "nan": r"InputError: rank 0: A\[17, 3\] is nan: checksums need finite numbers",
    "infinite": r"InputError: rank 0: A\[39, 39\] is -inf",
    "singular": r"Singular: rank 0: .*column 21 of 40 depends on those before it",
    "zero": r"Singular: rank 0: .*column 0 of 40",
    "not square": r"InputError: an array of 40 × 40 is needed, not of 40 × 39",
    "wrong shape": r"InputError: rank 0: fill gave an array of \(40, 40\) for rows 0:8 and columns 0:8, not of \(8, 8\)",
    "text": r"InputError: rank 0: fill gave .* for rows 0:8 and columns 0:8, which are no numbers",
    "complex for real": r"InputError: rank 0: fill gave complex numbers .*: give dtype=numpy.complex128",
    "negative order": r"InputError: n must be the order of a matrix, not -1",
    "no block": r"InputError: nb must be a positive number of rows, not 0",
    "raises at one rank": r"RankFailed: rank 3 raised ZeroDivisionError: by the program",
    "never the same": r"Inaccurate: the residual is .*fill gives other numbers each time",
    "short b": r"InputError: rank 0: b must have 40 rows",
    "b not finite at one rank": r"InputError: rank 4: b\[0, 0\] is inf",
    "complex b": r"InputError: rank 0: b is complex and the matrix is not",
    "different matrices": r"InputError: ranks 0 and 2 called solve with different arguments",
    "different blocks": r"InputError: ranks 0 and 5 called solve with different arguments: .*nb=8.*; .*nb=9",
    "mask": r"InputError: fill is a masked array: give its numbers",
    "mask of what fill gives": r"InputError: rank 0: what fill gave is a masked array",
    "mask of b": r"InputError: rank 0: b is a masked array",
    "no numbers": r"InputError: fill has <U\d+, which are no numbers",
    "no kind of numbers": r"InputError: dtype must be one of float32, .*float65",
    "neither function nor array": r"InputError: an array of 40 × 40 is needed, not of NoneType, or a function",
    "sums overflow": r"Inaccurate: the residual is inf.*divide A and b by their largest numbers",
    "no communicator": r"GridError: comm must be a communicator of one group of ranks, not 3",
    "grows": r"Inaccurate: the residual is .*any LU with partial pivoting \(not in abft.qr\)",
    "on_loss": r"InputError: on_loss must be one of hot, recover, stop",
    "look-ahead of two": r"InputError: look_ahead must be 0 or 1, not 2",
    "different look-ahead": r"InputError: ranks 0 and 3 called solve with different arguments",
    "no matrix": r"InputError: A must be made by grid.matrix\(\)",
    "too few ranks": r"GridError: a grid of 3 × 3 .* needs 12 ranks, and there are 6: start with `ckpt run -n 12",
    "no rows": r"GridError: P must be a positive number",
    "too many columns of checksums": r"GridError: redundant must be 0 to Q=2 columns",
}


def test_good_inputs_are_solved_and_bad_ones_refused_at_all_ranks_alike(start: Callable[..., Job]) -> None:
    job = start(PROGRAMS / "inputs.py", ranks=6, on_failure="continue")
    assert job.finish() == 0, job.report()
    told = Counter(line for rank in range(6) for line in job.output(rank).splitlines())
    assert set(told.values()) == {6}, [line for line, count in told.items() if count != 6]
    found = dict(line.split(" | ") for line in told)
    wanted = {**SOLVED, **REFUSED}
    assert found.keys() == wanted.keys()
    for name, outcome in found.items():
        assert re.match(wanted[name], outcome), f"{name}: {outcome}"


@pytest.mark.parametrize("many", [8, pytest.param(500, marks=pytest.mark.nightly)])
def test_random_shapes_and_kinds_against_numpy(start: Callable[..., Job], many: int) -> None:
    job = start(
        PROGRAMS / "shapes.py",
        seed_of_the_commit(),
        many,
        on_failure="continue",
        ranks=6 if many < 100 else 12,
    )
    assert job.finish(250) == 0, job.report()
    assert job.output(0).splitlines() == ["wrong: 0"], job.report()


# ---- deaths ------------------------------------------------------------------------------------------------

TWO = {"P": 1, "Q": 3, "redundant": 2, "n": 60, "nb": 5}
"""A grid that bears two lost columns at once. Ranks 0 to 2 hold data, 3 and 4 checksums."""
MOST_CALLS_OF_TWO = 140


def test_two_columns_of_data_are_lost_at_once(
    start: Callable[..., Job], figures: Callable[[str, int], None]
) -> None:
    """Two of three columns of data, at calls of their own: both are replaced."""
    choose = random.Random(seed_of_the_commit())
    rounds = [
        [(place, choose.randint(1, MOST_CALLS_OF_TWO)) for place in choose.sample(range(3), 2)]
        for _ in range(4)
    ]
    found = solve_with_deaths(start, [*rounds, []], **TWO)
    assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)
    calls = [int(call) for outcome in found[-1] for call in re.findall(r"calls=(\d+)", outcome)]
    assert max(calls) <= MOST_CALLS_OF_TWO, "the nightly test leaves calls out"
    figures("abft: pairs of calls at which two ranks died", len(rounds))


@pytest.mark.parametrize(("operation", "send"), [("solve", 3), ("matmul", 1)])
def test_who_alone_has_the_result_dies_before_it_is_given(
    start: Callable[..., Job], operation: str, send: int
) -> None:
    """Rank 0 dies when it has given its part to rank 1 only, which then has the result; and rank 1 when it gives that. With
    two columns of checksums nothing is lost: what all hold was forgotten by then."""
    rounds: list[list[Death]] = [[(0, "start_send 8"), (1, f"send {send}")]]
    options = {"P": 1, "Q": 2, "redundant": 2, "n": 8, "nb": 2}
    (outcomes,) = solve_with_deaths(start, rounds, operation=operation, **options)
    assert len(outcomes) == 2 and all(outcome.startswith("right") for outcome in outcomes), outcomes
    assert all(outcome.count("replaced") == 2 for outcome in outcomes), outcomes


@pytest.mark.nightly
@pytest.mark.parametrize("operation", ["solve", "lu", "cholesky", "qr"])
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2), (0, 3), (2, 4), (3, 4)])
def test_two_ranks_die_at_the_same_call(
    start: Callable[..., Job],
    pair: tuple[int, int],
    operation: str,
    part: int,
    figures: Callable[[str, int], None],
) -> None:
    """Every second call, in all parts together; each rank at the one, or the second one some calls later."""
    rounds = [
        [(pair[0], call), (pair[1], call + call // 2 % 12)]
        for call in range(1 + 2 * part, MOST_CALLS_OF_TWO + 1, 8)
    ]
    found = solve_with_deaths(start, rounds, operation=operation, **TWO)
    assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)
    figures("abft: pairs of calls at which two ranks died", len(rounds))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("operation", ["solve", "lu"])
def test_more_deaths_at_once_and_in_sequence_with_two_columns_of_checksums(
    start: Callable[..., Job], seed: int, operation: str
) -> None:
    """2 × 2 processes, two columns of checksums and spares; as many deaths as may be borne, or one more than that."""
    choose = random.Random(seed_of_the_commit() + seed)
    for spares in (0, 2):
        rounds = [
            [
                (place, choose.randint(1, 160))
                for place in choose.sample(range(8 + spares), choose.randint(2, 4))
            ]
            for _ in range(5)
        ]
        solve_with_deaths(
            start, rounds, spares=spares, redundant=2, operation=operation, name=f"job-{spares}"
        )


def several(seed: int, count: int, spares: int, deaths: int) -> list[list[Death]]:
    choose = random.Random(seed)
    return [
        [(place, choose.randint(1, MOST_CALLS)) for place in choose.sample(range(6 + spares), deaths)]
        for _ in range(count)
    ]


def test_several_deaths_with_spares(start: Callable[..., Job]) -> None:
    """The second one falls at any time, into the handling of the first and the encoding of new checksums too."""
    solve_with_deaths(start, several(seed_of_the_commit(), 4, 2, 2), spares=2)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("spares", "deaths"), [(1, 2), (3, 3)])
def test_many_deaths_with_spares(start: Callable[..., Job], seed: int, spares: int, deaths: int) -> None:
    rounds = several(seed_of_the_commit() + seed, 10, spares, deaths)
    solve_with_deaths(start, rounds, spares=spares)


def test_two_columns_lost_at_once_are_told_to_all_alike(start: Callable[..., Job]) -> None:
    """Places 0 and 1 are in columns 0 and 1: what they held is gone, once a panel is applied."""
    (outcomes, others) = solve_with_deaths(start, [[(0, 60), (1, 60)], [(0, 60)]], on_loss="stop")
    assert len(outcomes) >= 4 and all(outcome.startswith("lost") for outcome in (*outcomes, *others))
    assert any("was to stop at that" in outcome for outcome in others)


def killed_from_outside(start: Callable[..., Job], seed: int, kills: int, **more: object) -> list[str]:
    """Random ranks are killed when they, or others, are at random places; what the ranks say at the end."""
    choose = random.Random(seed)
    spares = kills - 1
    options = {"P": 2, "Q": 2, "n": 240, "nb": 12, "spares": spares, "rounds": [[]], "tell": 20}
    job = start(
        PROGRAMS / "deaths.py",
        json.dumps(options),
        ranks=6 + spares,
        on_failure="continue",
        name=f"job-{seed}",
        **more,
    )
    job.wait_event("running")
    left = list(range(6 + spares))
    for number in range(kills):
        watched, victim = choose.choice(left[:4]), choose.choice(left)
        seen = f"call {20 * choose.randint(4 * number + 1, 4 * number + 6)}\n"
        job.wait_for(lambda: seen in job.output(watched) or "\n0 " in job.output(watched), seen)  # noqa: B023
        with contextlib.suppress(ProcessLookupError):  # it has come to its end
            job.kill_rank(victim)
            left.remove(victim)
    assert job.finish() == 0, job.report()
    found = [re.findall(r"^0 (.*)$", job.output(rank), re.M) for rank in left]
    words = {each.split()[0] for outcomes in found for each in outcomes}
    assert words == {"right"} or (kills > 1 and words == {"lost"}), job.report()
    assert all(len(outcomes) == 1 for outcomes in found), job.report()
    return [each[0] for each in found]


@pytest.mark.parametrize("kills", [1, 2])
def test_ranks_are_killed_from_outside(start: Callable[..., Job], kills: int) -> None:
    killed_from_outside(start, seed_of_the_commit(), kills)


FAULTS = {"CKPT_FAULTS": "seed=1,loss=0.02,dup=0.02"}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["quiet", "faults"])
def test_many_are_killed_from_outside(start: Callable[..., Job], seed: int, faults: dict[str, str]) -> None:
    killed_from_outside(start, seed_of_the_commit() + seed, 1, env=faults)


EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "hpl.py"


def test_the_example_loses_a_rank_and_goes_on(start: Callable[..., Job]) -> None:
    job = start(EXAMPLE, "--order", 300, "--kill", "0:0.05", ranks=7, on_failure="continue")
    assert job.finish() == 0, job.report()
    assert "the residual passes" in job.stdout and "order 300 on 2 × 2 processes" in job.stdout


def test_a_solve_goes_on_from_a_checkpoint_as_any_program(start: Callable[..., Job], tmp_path: Path) -> None:
    """Without --on-failure continue a death sets all back, into the middle of the solve."""
    goes_on_from_a_checkpoint(start, tmp_path, "solve")


# ---- wrong numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "wanted"), [(1, "put right"), (6, "replaced")])
def test_wrong_numbers_are_put_right_or_their_column_is_replaced(
    start: Callable[..., Job], bits: int, wanted: str
) -> None:
    found = solve_with_flips(start, 5, 12, bits, 1)
    assert found[wanted] >= 3, found


@pytest.mark.parametrize(("where", "wanted"), [("messages", "made again"), ("panels", "replaced")])
def test_what_is_wrong_on_its_way_or_while_it_waits_is_made_again_or_the_column_is_replaced(
    start: Callable[..., Job], where: str, wanted: str
) -> None:
    found = solve_with_flips(start, 7, 40, 1, 1, "solve", where)
    assert found[wanted] and not found["told"], found


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("verify", [0, 1, 3])
@pytest.mark.parametrize("bits", [1, 3])
def test_no_flip_makes_a_wrong_solution(start: Callable[..., Job], seed: int, verify: int, bits: int) -> None:
    solve_with_flips(start, seed_of_the_commit() + seed, 40, bits, verify)


@pytest.mark.parametrize("policy", ["restart", "continue"])
def test_in_a_job_that_does_not_go_on_after_a_death_checksums_have_to_be_asked_for(
    start: Callable[..., Job], tmp_path: Path, policy: str
) -> None:
    app = write_app(
        tmp_path,
        """
        from ckpt import abft

        abft.Grid(1, 2, redundant=0)
        print(abft.Grid(1, 2, unprotected=True))
        try:
            print(abft.Grid(1, 2))
        except abft.GridError as error:
            print(error)
        """,
    )
    job = start(app, ranks=3, on_failure=policy)
    assert job.finish() == 0, job.report()
    for rank in range(3):
        asked, not_asked = job.output(rank).splitlines()
        assert asked == "Grid(P=1, Q=2, redundant=1)"
        wanted = "start it with `ckpt run --on-failure continue`" if policy == "restart" else asked
        assert wanted in not_asked, job.report()
