"""The operations of ckpt.abft beside the solve, in real jobs: ranks that die at every call, and more than are borne."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.abft.abft_jobs import goes_on_from_a_checkpoint, lines, solve_with_deaths, solve_with_flips
from tests.system.support import Job, jobs_fixture

pytest.importorskip("numpy")
pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(8)]

PROGRAMS = Path(__file__).parent
MOST_CALLS = {"matmul": 130, "cg": 600, "encoded": 140, "lu": 130, "cholesky": 130, "qr": 130}
"""By operation: of the hook, before and after each call counted apart, in jobs as `died_at` has them."""
MOST_DEATHS = 40
"""In one job: each takes a rank, and every round waits for all ranks that are left, so time grows as their square."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


def points(operation: str) -> list[tuple[int, int]]:
    return [(place, call) for place in range(6) for call in range(1, MOST_CALLS[operation] + 1)]


def parts(operation: str) -> int:
    """So many jobs have a death at every point."""
    return -(-len(points(operation)) // MOST_DEATHS)


def died_at(start: Callable[..., Job], operation: str, deaths: list[tuple[int, int]]) -> None:
    """A job in which a rank dies at each of these (place, call) in turn, and one without a death."""
    found = solve_with_deaths(start, [*([death] for death in deaths), []], operation=operation, nb=16)
    assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)
    calls = [int(call) for outcome in found[-1] for call in re.findall(r"calls=(\d+)", outcome)]
    assert max(calls) <= MOST_CALLS[operation], "the nightly test leaves calls out"


OPERATIONS = "solve", "lu", "cholesky", "qr", "matmul", "cg"


@pytest.mark.parametrize("more", [{}, {"spares": 2}], ids=["", "processes may be started"])
def test_while_nothing_fails_there_are_two_agreements_and_no_other_collective(
    start: Callable[..., Job], more: dict[str, int]
) -> None:
    """However many steps there are: no barrier and no agreement for each phase."""
    job = start(PROGRAMS / "calls.py", ranks=6, on_failure="continue", **more)
    assert job.finish() == 0, job.report()
    seen = set()
    for rank in range(6):
        for line in job.output(rank).splitlines():
            name, order, counts = line.split(" | ")
            calls = json.loads(counts)
            calls.pop("Is_revoked", 0)  # a look at what this process knows
            agreements, messages = (
                calls.pop("shrink"),
                sum(map(calls.pop, ("Send", "Isend", "Recv"), (0, 0, 0))),
            )
            assert agreements == 2 and messages > 0 and set(calls) == {"Free"}, f"rank {rank}: {line}"
            seen.add((rank, name.partition(",")[0], int(order)))
    assert seen == {(rank, name, n) for rank in range(6) for name in OPERATIONS for n in (64, 256)}


@pytest.mark.parametrize("operation", MOST_CALLS)
def test_a_rank_dies_at_a_call(
    start: Callable[..., Job], operation: str, figures: Callable[[str, int], None]
) -> None:
    deaths = random.Random(seed_of_the_commit()).sample(points(operation), 4)
    died_at(start, operation, deaths)
    figures("abft: calls at which a rank died", len(deaths))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("operation", "part"), [(operation, part) for operation in MOST_CALLS for part in range(parts(operation))]
)
def test_a_rank_dies_at_every_call(
    start: Callable[..., Job], operation: str, part: int, figures: Callable[[str, int], None]
) -> None:
    deaths = points(operation)[part :: parts(operation)]
    died_at(start, operation, deaths)
    figures("abft: calls at which a rank died", len(deaths))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("spares", "redundant", "deaths"), [(2, 1, 2), (3, 1, 3), (0, 2, 2), (2, 2, 3)])
def test_several_deaths(
    start: Callable[..., Job], seed: int, spares: int, redundant: int, deaths: int
) -> None:
    """Right, or all tell alike that too many are lost; which it is, depends on where they meet."""
    choose = random.Random(seed_of_the_commit() + seed)
    operation = choose.choice([*MOST_CALLS])
    places = 2 * (2 + redundant) + spares
    rounds = [
        [(place, choose.randint(1, MOST_CALLS[operation])) for place in choose.sample(range(places), deaths)]
        for _ in range(8)
    ]
    solve_with_deaths(start, rounds, operation=operation, spares=spares, redundant=redundant)


def test_two_columns_of_checksums_bear_two_columns_lost_at_once(start: Callable[..., Job]) -> None:
    (outcomes,) = solve_with_deaths(start, [[(0, 35), (1, 35)]], operation="matmul", redundant=2, nb=16)
    assert all(outcome.startswith("right") for outcome in outcomes)


def test_more_deaths_than_checksums_are_told_to_all_alike(start: Callable[..., Job]) -> None:
    (outcomes,) = solve_with_deaths(start, [[(0, 35), (1, 35)]], operation="matmul", nb=16)
    assert len(outcomes) == 4 and all(
        "2 columns of data are gone, and 1 complete" in each for each in outcomes
    )


def test_the_log_of_the_job_says_what_became_of_a_death(start: Callable[..., Job]) -> None:
    """Of a solve and a product, hot and computed back."""
    for number, (operation, on_loss, event) in enumerate(
        [
            ("solve", "hot", "abft-replaced"),
            ("solve", "recover", "abft-recovered"),
            ("matmul", "hot", "abft-replaced"),
        ]
    ):
        options = {"P": 2, "Q": 2, "n": 64, "nb": 8, "spares": 0, "rounds": [[[1, 45]]]}
        options |= {"operation": operation, "on_loss": on_loss}
        job = start(
            PROGRAMS / "deaths.py", json.dumps(options), ranks=6, on_failure="continue", name=f"job{number}"
        )
        assert job.finish(200) == 0, job.report()
        assert len(lines(job, 6)["0"]) == 5
        said = [line for line in job.events() if line["event"].startswith("abft-")]
        assert [(line["event"], line["operation"], line["ranks"], line["column"]) for line in said] == [
            (event, operation, [1], 1)
        ], job.report()
        assert 0 < said[0]["step"] < said[0]["steps"] == 8


@pytest.mark.nightly
@pytest.mark.parametrize("operation", ["encoded", "matmul"])
def test_an_operation_goes_on_from_a_checkpoint_as_any_program(
    start: Callable[..., Job], tmp_path: Path, operation: str
) -> None:
    """Without --on-failure continue a death sets all back, into the middle of it; encoded arrays are in images."""
    goes_on_from_a_checkpoint(start, tmp_path, operation)


@pytest.mark.nightly
def test_arrays_made_before_and_after_deaths_belong_together(start: Callable[..., Job]) -> None:
    job = start(PROGRAMS / "arrays.py", ranks=12, on_failure="continue")
    assert job.finish() == 0, job.report()
    said = lines(job, 12)
    assert len(said["end"]) == 7 and len(set(said["lost"])) == 1, job.report()
    assert len(said["lost"]) == 14 and "2 columns of data are gone, and 1 complete" in said["lost"][0]


# ---- inputs ------------------------------------------------------------------------------------------------

FACTORS = ("lu", "cholesky", "qr")
RIGHT = [
    *(f"product of order {n}" for n in (0, 1, 2, 7, 39, 40)),
    *(f"product {kind}" for kind in ("float32", "complex64", "complex128")),
    *(f"product on {grid}" for grid in ("1 × 1 + 1", "3 × 1 + 1", "1 × 5 + 1", "2 × 3 + 0", "1 × 3 + 2")),
    *(f"product on {grid}" for grid in ("1 × 4 + 2", "2 × 2 + 1")),
    "product of large and small numbers",
    *(f"cg of order {n}" for n in (0, 1, 3, 40)),
    *(f"cg of {what}" for what in ("a function", "complex numbers", "tiny numbers", "integers", "zero")),
    *("cg in float32", "cg with a wrong number"),
    *("sums", "applied", "complex multiples", "whole", "in float32", "on all ranks", "no numbers"),
    *("single numbers", "single numbers, verified", "a number of numpy times", "what is held, changed"),
    *("changes what it is given", "an operation on single numbers", "of tiny factors", "of huge factors"),
    *(f"{name} of order {n}" for name in FACTORS for n in (0, 1, 2, 7, 39, 40)),
    *(f"{name} {kind}" for name in FACTORS for kind in ("float32", "complex64", "complex128")),
    *(
        f"{name} on {of}"
        for name in FACTORS
        for of in ("1 × 1 + 1", "3 × 1 + 1", "1 × 5 + 1", "2 × 3 + 0", "1 × 3 + 2")
    ),
    *(
        "qr, singular",
        "solved with factors",
        "solved with factors, several",
        "no communicators are left behind",
    ),
]
REFUSED = {
    "product with an array": r"InputError: B must be made by grid.matrix\(\), not ndarray",
    "product of another grid": r"InputError: A and B must be matrices of the same grid",
    "product of other blocks": r"InputError: A and B must have the same order, block size and kind: .*8.*5",
    "product of other kinds": r"InputError: A and B must have the same order, .*float64.*float32",
    "product with nan": r"InputError: rank \d: A\[17, 3\] is nan: checksums need finite numbers",
    "different products": r"InputError: ranks 0 and 3 called matmul with different arguments",
    "never the same product": r"Inaccurate: the product differs from A·\(B·x\) by .*fill gives other numbers each",
    "cg, not linear": r"NotLinear: rank \d: rows \d+:\d+ of A·p are not what A·s says.*its own adjoint",
    "cg, affine": r"NotLinear: rank \d",
    "cg, not its own adjoint": r"NotLinear: rank \d",
    "cg, negative": r"NotPositive: rank \d: p·A·p is -.* in iteration 0",
    "cg, few iterations": r"NotConverged: 3 iterations have brought the residual to .* not to 1e-10",
    "cg, a shape": r"InputError: rank \d: op gave an array of \(40,\) for rows 0:6, not of \(6,\)",
    "cg, nan": r"InputError: rank \d: op gave nan for row \d",
    "cg, b with nan": r"InputError: rank 0: b\[1\] is not finite",
    "cg, b with a mask": r"InputError: rank 0: b is a masked array",
    "cg, a mask": r"InputError: rank \d: what op gave is a masked array",
    "cg, x too large": r"Inaccurate: the numbers of x are too large for float64: divide b by its largest number",
    "cg, x too small": r"Inaccurate: the numbers of x are too small for float64",
    "parts with a mask": r"InputError: rank 0: parts is a masked array",
    "an operation gives a mask": r"InputError: what the operation gave is a masked array",
    "cg, two vectors": r"InputError: rank 0: b must be one vector, and its shape is \(40, 2\)",
    "cg, different": r"InputError: ranks 0 and 4 called cg with different arguments",
    **{f"{name} of an array": r"InputError: an array of 39 × 39 is needed" for name in FACTORS},
    "lu, singular": r"Singular: rank \d: .*column 21 of 40 depends on those before it",
    "cholesky, indefinite": r"NotPositive: rank \d: .* leading minor of order \d+ of 40 is not positive",
    "cholesky, semidefinite": r"NotPositive: rank \d: .* leading minor of order 2 of 40",
    "cholesky, not Hermitian": r"InputError: rank \d: A\[\d+, \d+\] is .* and A\[\d+, \d+\] is .*: the matrix is not Herm",
    "solved with factors, a shape": r"InputError: b must have 40 rows",
    "never the same factors": r"Inaccurate: the residual is .*fill gives other numbers each time",
    "different factors": r"InputError: ranks 0 and 3 called \w+ with different arguments",
    "solve, wrong at one rank": r"Inaccurate: the residual is",
    "matmul, wrong at one rank": r"Inaccurate: the product differs",
    "lu, wrong at one rank": r"Inaccurate: the residual is",
    "cg of a number": r"InputError: op must be a matrix of the grid, or a function",
    "an array times": r"InputError: an encoded array is multiplied by a finite number, not by array\(\[1., 2.\]\)",
    "parts on no grid": r"InputError: grid must be an abft.Grid, not tuple",
    "cg, tolerance of text": r"InputError: tolerance must be between 0 and 1, not '1e-6'",
    "cg on no grid": r"InputError: grid must be an abft.Grid, not tuple",
    "integer parts": r"InputError: rank 0: part \(0, 0\) is of int64: encoded arrays are of float32",
    "parts of another grid": r"InputError: rank 0: parts must be of shape \(2, 2, …\), not of \(3, 2, 3\)",
    "parts with nan": r"InputError: rank \d: part \(1, 0\) is nan at \(2, 1\)",
    "parts of different shapes": r"InputError: rank \d: part \(\d, 1\) is float64 of \(3,\), and part \(0, 0\) is .*\(2,\)",
    "not linear": r"NotLinear: the operation is not linear: op\(a·u \+ v\) differs",
    "not linear at all": r"NotLinear",
    "limited, beyond what is tried first": r"NotLinear: .* op\(c·u\) differs from c·op\(u\), c = 1.07e\+09, by",
    "small ones cut off": r"NotLinear: .* c = 9.31e-10, by",
    "integers come out": r"InputError: the operation gave int64",
    "another shape": r"InputError: an encoded array of the same grid is added",
    "times text": r"InputError: an encoded array is multiplied by a finite number, not by 'a'",
    "times nan": r"InputError: an encoded array is multiplied by a finite number, not by nan",
    "not the same for all": r"Inaccurate: checksums differ from the sums of the parts by 0.00",
}


def test_good_inputs_are_computed_and_bad_ones_refused_at_all_ranks_alike(start: Callable[..., Job]) -> None:
    job = start(PROGRAMS / "operations.py", ranks=6, on_failure="continue")
    assert job.finish() == 0, job.report()
    told = Counter(line for rank in range(6) for line in job.output(rank).splitlines())
    assert set(told.values()) == {6}, [line for line, count in told.items() if count != 6]
    found = dict(line.split(" | ") for line in told)
    wanted = {**dict.fromkeys(RIGHT, r"\w+ True"), **REFUSED}
    assert found.keys() == wanted.keys()
    for name, outcome in found.items():
        assert re.match(wanted[name], outcome), f"{name}: {outcome}"


@pytest.mark.parametrize("many", [6, pytest.param(500, marks=pytest.mark.nightly)])
def test_random_shapes_and_kinds_against_numpy(start: Callable[..., Job], many: int) -> None:
    job = start(
        PROGRAMS / "shapes.py",
        seed_of_the_commit(),
        many,
        "any",
        on_failure="continue",
        ranks=6 if many < 100 else 12,
    )
    assert job.finish(280) == 0, job.report()
    assert job.output(0).splitlines() == ["wrong: 0"], job.report()


# ---- wrong numbers -----------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["panels", "messages"])
@pytest.mark.parametrize("operation", ["solve", *FACTORS])
@pytest.mark.parametrize(("bits", "verify"), [(1, 1), (3, 2)])
def test_no_flip_on_its_way_or_while_it_waits_makes_wrong_factors(
    start: Callable[..., Job], operation: str, where: str, bits: int, verify: int
) -> None:
    found = solve_with_flips(start, seed_of_the_commit(), 60, bits, verify, operation, where)
    assert not found["told"], found


@pytest.mark.nightly
@pytest.mark.parametrize("operation", FACTORS)
@pytest.mark.parametrize(("bits", "verify"), [(1, 0), (1, 1), (3, 2)])
def test_no_flip_makes_wrong_factors(
    start: Callable[..., Job], operation: str, bits: int, verify: int
) -> None:
    solve_with_flips(start, seed_of_the_commit(), 30, bits, verify, operation)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(17))
@pytest.mark.parametrize("where", ["numbers", "panels", "messages"])
@pytest.mark.parametrize("operation", ["solve", *FACTORS])
def test_ten_thousand_flips(
    start: Callable[..., Job], operation: str, where: str, part: int, soaked: Callable[..., None]
) -> None:
    found = solve_with_flips(start, seed_of_the_commit() + part, 50, 1, 1, operation, where)
    soaked("abft flips", 50, **{name.replace(" ", "_"): each for name, each in found.items()})
