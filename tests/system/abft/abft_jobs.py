"""Jobs in which ranks of an operation of ckpt.abft kill themselves, and what the others say (abft/deaths.py)."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.system.support import Job

PROGRAMS = Path(__file__).parent
Death = tuple[int, int | str]  # place, call
MOST_CALLS = 140
"""A solve as in `solve_with_deaths` has at most so many calls, before and after counted apart."""
LARGE = [(Q, place, call) for Q in (2, 3) for place in range(2 * (Q + 1)) for call in range(1, 251)]
"""Processes in a row, a rank, and a call of the communication: all of solves of order 256, and some behind the last."""
LARGE_AT_ONCE = 50


def lines(job: Job, ranks: int) -> dict[str, list[str]]:
    """What ranks have printed, behind the first word."""
    found = defaultdict(list)
    for rank in range(ranks):
        for line in job.output(rank).splitlines():
            first, _, rest = line.partition(" ")
            found[first].append(rest)
    return found


def solve_with_deaths(
    start: Callable[..., Job],
    rounds: list[list[Death]],
    *,
    spares: int = 0,
    reserve: int = 0,
    name: str = "job",
    **more: object,
) -> list[list[str]]:
    """What the ranks say of each round: "right …" or "lost …". Asserts that nobody is wrong, and nobody hangs. `spares`:
    ranks that wait; `reserve`: processes that may be started."""
    options = {"P": 2, "Q": 2, "n": 64, "nb": 8, "spares": spares, "rounds": rounds, **more}
    one = int(options["P"]) * (int(options["Q"]) + int(options.get("redundant", 1))) + spares  # type: ignore[call-overload]
    ranks = one + sum(map(len, rounds))
    may = {"spares": reserve} if reserve else {}
    job = start(
        PROGRAMS / "deaths.py", json.dumps(options), ranks=ranks, on_failure="continue", name=name, **may
    )
    assert job.finish(200) == 0, job.report()
    said = lines(job, ranks)
    found = [said[str(number)] for number in range(len(rounds))]
    for number, (deaths, outcomes) in enumerate(zip(rounds, found, strict=True)):
        where = f"round {number}, deaths {deaths}: {outcomes}\n"
        words = {outcome.split()[0] for outcome in outcomes}
        assert words in ({"right"}, {"lost"}), where + job.report()
        assert len(outcomes) >= one - len(deaths), where + job.report()
    return found


def deaths_of_large(start: Callable[..., Job], first: int, count: int) -> tuple[int, dict[str, int]]:
    """Of these cases of LARGE, each is a solve in which that rank dies at that call. Asserts that each solution is right.
    Returns how many there were, and what became of them."""
    cases = LARGE[first : first + count]
    figures: Counter[str] = Counter()
    for Q in sorted({Q for Q, _, _ in cases}):
        rounds: list[list[Death]] = [[(place, call)] for q, place, call in cases if q == Q]
        found = solve_with_deaths(start, rounds, Q=Q, n=256, nb=16, name=f"job-{first}-{Q}")
        for (death,), outcomes in zip(rounds, found, strict=True):
            assert all(outcome.startswith("right") for outcome in outcomes), (Q, death, outcomes)
            figures["died" if len(outcomes) < 2 * (Q + 1) else "behind the last call"] += 1
    return len(cases), dict(figures)


def goes_on_from_a_checkpoint(start: Callable[..., Job], folder: Path, operation: str) -> None:
    """A death in a job without --on-failure continue, while the operation is made again and again: all ranks are set back
    into the middle of it, and go on. Asserts that each result is right."""
    done = folder / "done"
    options = {
        "P": 2,
        "Q": 2,
        "n": 640,
        "nb": 16,
        "spares": 0,
        "rounds": [[]],
        "tell": 20,
        "unprotected": True,
    }
    options |= {"operation": operation, "until": str(done)}
    job = start(PROGRAMS / "deaths.py", json.dumps(options), ranks=6, every=0.1)
    job.wait_for(lambda: "call 60\n" in job.output(0), "an operation under way")
    job.wait_event("committed", len(job.events("committed")) + 1)
    job.kill_rank(3)
    job.wait_event("restarting")
    done.touch()
    assert job.finish() == 0, job.report()
    said = [job.output(rank) for rank in range(6)]
    right = {len(re.findall(r"^\d+ right ", text, re.M)) for text in said}
    assert len(right) == 1 and right != {0}, job.report()
    assert not any(re.search(r"^\d+ (wrong|lost) ", text, re.M) for text in said), job.report()


def solve_with_flips(
    start: Callable[..., Job], seed: int, many: int, bits: int, verify: int, *more: str
) -> Counter[str]:
    """How many solves ended how: "made again", "put right", "replaced", "told" (an error), "nothing"."""
    job = start(
        PROGRAMS / "flips.py",
        seed,
        many,
        bits,
        verify,
        *more,
        ranks=6,
        on_failure="continue",
        name="-".join(["job", *map(str, (bits, verify, *more))]),
    )
    assert job.finish(200) == 0, job.report()
    said = lines(job, 6)
    found: Counter[str] = Counter()
    for number in range(many):
        assert len(said[str(number)]) == 6 and len(set(said[str(number)])) == 1, job.report()
        outcome, corrected, redone, losses = said[str(number)][0].split()
        assert outcome != "wrong", f"seed {seed}, solve {number}\n{job.report()}"
        kinds = {"told": outcome != "right", "replaced": losses != "0", "put right": corrected != "0"}
        kinds["made again"] = redone != "0"
        found[next((name for name, true in kinds.items() if true), "nothing")] += 1
    return found
