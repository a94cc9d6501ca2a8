"""The long sweeps in pieces, and a ledger of the cases that they have tested: `benchmarks/soak.json`.

    python -m tests.soak                          print the counts, by row and commit, beside the wanted numbers
    python -m tests.soak simulation --minutes 30  go on where the ledger ends, and record every piece

`make soak` runs all rows at once, in many hours. This program runs them in pieces: a run of a row starts after the last
piece in the ledger (seeds, fuzzed frames and flipped bits are never used twice), and ends after the piece during which the
time limit passes. A piece that fails is not recorded; it ends the run with a traceback that names the failing case. A sum
over commits counts cases of all versions of the code, not of the present one only; so the table has a line for each commit.

Tests report too: with CKPT_SOAK_LEDGER=1 the numbers that they pass to the fixture `soaked` are recorded if they pass.

A line of the ledger: row, commit ("+" if the tree had changes), version of Python, first (number of the first case), count
(in the row's unit), seconds, and other figures.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LEDGER = Path(os.environ.get("CKPT_SOAK_FILE", ROOT / "benchmarks" / "soak.json"))
LARGEST = {"branches", "inputs kept"}
"""Figures of which the largest counts, not the sum."""
Figures = dict[str, int]
Entry = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """The unit that is counted, the wanted number, and the number in one piece. `piece(first, count)` runs one piece and
    returns the number of cases and other figures; a row without it gets its numbers from tests (`soaked`)."""

    unit: str
    wanted: int
    step: int = 0
    piece: Callable[[int, int], tuple[int, Figures]] | None = None
    by_version: bool = False
    """Every version of Python has numbers of its own, because it looks at other code."""


def simulation(first: int, count: int) -> tuple[int, Figures]:
    from tests.simulation.test_job_simulation import check_block

    events, deaths, commits, restored = check_block(first, count)
    twice = len([seed for seed in range(first, first + count) if seed % 100 == 0])
    return count, {
        "events": events,
        "deaths": deaths,
        "commits": commits,
        "lines run to the end": restored,
        "seeds run twice": twice,
    }


def exploration(first: int, count: int) -> tuple[int, Figures]:
    """Explore the next of the bounds, each once for a commit; `first` is its number."""
    from tests.model.explore import Explorer
    from tests.model.test_exhaustively import PARTS

    here = [entry for entry in entries("exploration") if entry["commit"] == commit()]
    left = [name for name in PARTS if not any(name in entry["figures"] for entry in here)]
    if not left:
        raise SystemExit("exploration: this commit has visited all its bounds")
    states = Explorer(PARTS[left[0]], both_ends=True, most=count, partly=True).explore()
    return states, {left[0]: states}


def flips(first: int, count: int) -> tuple[int, Figures]:
    import sys
    import tempfile

    directory = str(ROOT / "tests" / "unit" / "ckpt" / "store")
    if directory not in sys.path:
        sys.path.insert(0, directory)
    from store_helpers import make_job  # type: ignore[import-not-found]# type: ignore[import-not-found]
    from test_damage_random import flip_everywhere  # type: ignore[import-not-found]# type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as place:
        return count, flip_everywhere(make_job(Path(place)), count, seed=first)


def frames(first: int, count: int) -> tuple[int, Figures]:
    from tests.fuzz.guided import guided

    return guided(first, count)


def restores(first: int, count: int) -> tuple[int, Figures]:
    """Images of the next program of the sweep, resumed, at checks drawn with the number of its turn (of slow programs, where
    counting checks takes minutes, at random moments): a few, and up to `count` if that takes no more than some seconds of
    computing. `first` only counts: burnt rounds leave no image."""
    import tempfile
    from collections import Counter

    from tests.sweep.catalogue import PROGRAMS
    from tests.sweep.driver import sweep
    from tests.sweep.fetch import fetched

    first_count, some_s = 8, 40.0
    programs = [one for _, one in sorted(PROGRAMS.items()) if not one.limit]
    turn = sum(entry["figures"]["turns"] for entry in mine("restores"))
    program = programs[turn % len(programs)]
    equal, figures = 0, Counter({"turns": 1})
    asked = first_count
    for half in range(2):
        began = os.times().children_user
        with tempfile.TemporaryDirectory(prefix="soak-") as place:
            directory = Path(place, program.name)
            found = sweep(
                program, fetched(), directory, seed=2 * turn + half, restores=asked, exact=not program.slow
            )
        # A program that is in C for nearly all of its time: too slow where every one of its checks is tried.
        failures = [text for text in found.failures if "not possible within the limit" not in text]
        assert not failures, "\n".join(failures)
        for surprise in found.surprises:
            print(surprise)
        equal += found.equal
        figures += Counter({"rounds burnt": found.burnt, "tries refused": sum(found.refused.values())})
        asked = min(count - asked, int(asked * some_s / (os.times().children_user - began)))
        if asked <= first_count:
            break
    print(f"{program.name}: {equal} equal", end="; ")
    return equal, dict(figures)


def rings(first: int, count: int) -> tuple[int, Figures]:
    """What other processes may write into rings of shared memory; both ends in C and in Python, side by side."""
    from tests.fuzz.test_rings import attack

    return count, dict(attack(first, count))


def undone(first: int, count: int) -> tuple[int, Figures]:
    """Random programs of file operations and restarts, killed now and then; every fourth of two ranks."""
    import tempfile

    from tests.unit.ckpt.undo.test_sequences import check, check_two_ranks

    kills = exact = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        for seed in range(first, first + count):
            if seed % 4:
                kills += check(place, seed)
            else:
                exact += check_two_ranks(place, seed)
    return count, {"restarts killed": kills, "of two ranks without a problem": exact}


def reductions(first: int, count: int) -> tuple[int, Figures]:
    """Reductions of 32 MB by four ranks, rank 1 killed at a random moment of each: table 2 of the paper."""
    from tests.system.reduction.reduction_deaths import deaths

    found = deaths(first, count, nbytes=32 << 20)
    found.pop("times of t, hundredths")
    return count, dict(found)


def faults(first: int, count: int) -> tuple[int, Figures]:
    """As root: hosts and switches in network namespaces."""
    import tempfile
    from collections import Counter

    from tests.system.diagnosis.test_namespaces import draw

    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        for number in range(first, first + count):
            found.update(draw(number, Path(folder)))
    return count, dict(found)


def faulty_jobs(first: int, count: int) -> tuple[int, Figures]:
    """As root: jobs of eight ranks on hosts and switches with everything, two faults each."""
    import tempfile
    from collections import Counter

    from tests.system.diagnosis.faults_of_jobs import draw

    found: Counter[str] = Counter()
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            found.update(draw(number, Path(folder)))
    return count, dict(found)


def redundant(first: int, count: int) -> tuple[int, Figures]:
    """Jobs with replicas, in each of which bits flip, or processes are killed or stopped."""
    from tests.system.redundancy.faults import faults

    return count, dict(faults(first, count))


def deaths(first: int, count: int) -> tuple[int, Figures]:
    """Solves with checksums, in each of which a rank dies at another call of its communication."""
    from tests.system.abft.abft_jobs import LARGE, deaths_of_large
    from tests.system.support import jobs_fixture

    if first >= len(LARGE):
        raise SystemExit("abft: a rank has died at every call")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        jobs = jobs_fixture(Path(folder))
        try:
            return deaths_of_large(next(jobs), first, count)
        finally:
            next(jobs, None)


ROWS = {
    "simulation": Row("simulated seeds", 100_000, 500, simulation),
    "exploration": Row("states explored, larger bounds", 20_000_000, 3_500_000, exploration),
    "whole": Row("nodes of the largest bounds, visited whole", 1_800_000),
    "frames": Row("hostile frames, guided by coverage", 10_000_000, 200_000, frames),
    "rings": Row("hostile acts on rings", 10_000_000, 400_000, rings),
    "flips": Row("random flips in large images", 1_000_000, 20_000, flips),
    "undone": Row("sequences of file operations, undone", 1_000_000, 5_000, undone),
    "restores": Row("images of the sweep's programs resumed", 10_000, 400, restores, by_version=True),
    "calls": Row("calls of the store that failed, four ranks", 5_000),
    "kills": Row("random kills", 3_000),
    "starved": Row("processes stopped, locks held, clocks moved, kills between them", 500),
    "messages": Row("messages under kernel faults", 10_000_000),
    "restarts": Row("restarts under kernel faults", 100),
    "reductions": Row("reductions of 32 MB of which a rank is killed", 700, 20, reductions),
    "faults": Row("worlds with one fault of the network or two, somebody mute", 1_000, 10, faults),
    "faulty jobs": Row(
        "jobs of 8 ranks with two faults of their hosts, a thousand faults", 500, 2, faulty_jobs
    ),
    "redundant": Row("jobs with replicas: flips, or kills and stops", 1_000, 4, redundant),
    "abft": Row("calls of solves of order 256, at each of which a rank died", 3_500, 50, deaths),
    "abft flips": Row("bits flipped in matrices, panels and messages of factorisations", 10_200),
    "long": Row("seconds with a kill every 30 s", 7_200),
}


@cache
def commit() -> str:
    """The commit, with a + if the tree has changes."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{LEDGER.name}")
        changed = "\n".join(line for line in changed.splitlines() if LEDGER.name not in line)
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def entries(row: str | None = None) -> list[Entry]:
    """The entries of the ledger, of one row or of all."""
    if not LEDGER.exists():
        return []
    found: list[Entry] = json.loads(LEDGER.read_text(encoding="utf-8"))
    return [entry for entry in found if row in (None, entry["row"])]


def mine(row: str) -> list[Entry]:
    """The entries of a row that a run of it goes on from."""
    version = platform.python_version_tuple()[:2]
    return [
        entry
        for entry in entries(row)
        if not ROWS[row].by_version or tuple(entry["python"].split(".")[:2]) == version
    ]


def record(row: str, first: int, count: int, seconds: float, figures: Figures) -> None:
    """Add to the ledger; a piece that goes on where the last one of the same commit ended is added to that line."""
    new: Entry = {
        "row": row,
        "commit": commit(),
        "python": platform.python_version(),
        "first": first,
        "count": count,
        "seconds": round(seconds),
        "figures": figures,
    }
    with open(LEDGER.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = entries()
        for old in kept:
            same = all(old[name] == new[name] for name in ("row", "commit", "python"))
            if same and old["first"] + old["count"] == first:
                old["count"] += count
                old["seconds"] += new["seconds"]
                for name, number in figures.items():
                    sum_up = max if name in LARGEST else int.__add__
                    old["figures"][name] = sum_up(old["figures"].get(name, 0), number)
                break
        else:
            kept.append(new)
        text = "[\n" + ",\n".join(json.dumps(entry) for entry in kept) + "\n]\n"
        temporary = LEDGER.with_suffix(".new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(LEDGER)


def next_number(row: str) -> int:
    """The number of the row's next case: after all recorded ones, of this version of Python if versions count alone."""
    return max((entry["first"] + entry["count"] for entry in mine(row)), default=0)


def go_on(name: str, minutes: float, until: int | None) -> None:
    """Run pieces of a row until the time is over, or until the wanted number is reached."""
    row = ROWS[name]
    if row.piece is None:
        raise SystemExit(f"{name}: reported by its tests, run them with CKPT_SOAK_LEDGER=1 (-m soak)")
    began = time.monotonic()
    while time.monotonic() - began < minutes * 60:
        done = sum(entry["count"] for entry in mine(name))
        if until is not None and done >= until:
            break
        first, start = next_number(name), time.monotonic()
        count, figures = row.piece(first, row.step)
        record(name, first, count, time.monotonic() - start, figures)
        print(f"{name}: {done + count:,} of {row.wanted:,} {row.unit}; {figures}", flush=True)


def table(found: Iterable[Entry]) -> str:
    """Sums by row, and by commit within it."""
    found = list(found)
    lines = []
    for name, row in ROWS.items():
        mine = [entry for entry in found if entry["row"] == name]
        total = sum(entry["count"] for entry in mine)
        lines.append(f"{total:>12,}  of {row.wanted:>11,}  {row.unit}")
        for entry in mine:
            figures = ", ".join(f"{count:,} {what}" for what, count in entry["figures"].items())
            lines.append(
                f"{entry['count']:>16,}  {entry['commit']}, Python {entry['python']}, from {entry['first']:,}, "
                f"{entry['seconds']:,} s{': ' if figures else ''}{figures}"
            )
    return "\n".join(lines)


def main() -> None:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("row", nargs="?", choices=[name for name, row in ROWS.items() if row.piece])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--until", type=int, help="stop when the ledger holds so many")
    given = parser.parse_args()
    if given.row is None:
        print(table(entries()))
    else:
        go_on(given.row, given.minutes, given.until)


if __name__ == "__main__":
    main()
