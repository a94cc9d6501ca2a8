"""What it costs a program that writes files that a restart can put them back: `--files auto` beside `--files off`, in pairs.

    python -m benchmarks.files [--rounds 5] [--quick] [--on DIR]

Every round runs each kind of work of `programs/files.py` under both, one right after the other, every other round the other
way round. Compared are the wall time of the work, and the time that it has used of a core, which a busy machine disturbs
less; each figure is the median of the pairs' ratios. Ten more pairs a round say when the first line of the program runs.
Then ten thousand files that were replaced, and as many that were written anew in place, are put back as by a restart: all of
that can be taken back until all ranks have loaded. A file of 1 GB is replaced and put back.

Goal: wall time at most 1.05 × for new files, their removal, and files that are replaced, 1.02 × for logs that stay open.
A log that is opened for each line is looked at each time (statx(2)), which is a twelfth of such a line: 1.25 ×. The program
begins at most 5 ms later. 2 s for the restart; no byte of the large file is copied.

A trap: an ext4 without a journal searches, at each new file, through all files removed in the last 5 to 35 s
(`recently_deleted` in the kernel's fs/ext4/ialloc.c), so what the runs before have removed decides how long a run takes,
without end. Such a file system is refused: `--on DIR` takes another one.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from benchmarks.spine_jobs import Figure, Job, Row, Skipped, run_suite, scratch
from ckpt.undo.restart.restoring import prepare, undo
from ckpt.undo.watching import FileWatch

WORK = {
    "create": (100_000, 1.05),
    "create_there": (100_000, 1.05),
    "remove": (50_000, 1.05),
    "append": (1_000_000, 1.02),
    "append_anew": (100_000, 1.25),
    "replace": (20_000, 1.05),
}
NAMES = {
    "create": "new files in new directories",
    "create_there": "new files in directories that were there",
    "append": "append to ten logs that stay open",
    "append_anew": "append, each line opens its log",
}
FILES = 10_000
RESTART_GOAL_MS = 2000.0
LATER_GOAL_MS = 5.0
LARGE_BYTES = 1 << 30
KEY = b"k" * 32


def run(folder: Path, what: str, count: int, choice: str) -> tuple[int, int, int]:
    """ns until the program's first line, ns that the work took, and ns that it used of a core."""
    out = folder / "out"
    name = folder / f"job-{time.monotonic_ns()}"
    there = folder / "there"
    if what == "create_there":
        for number in range(0, count, 1000):
            (there / f"{number // 1000}").mkdir(parents=True)
    os.sync()  # what the run before has written is not this one's
    with Job(name, "files.py", what, count, out, ranks=1, flags=("--files", choice)) as job:
        job.finish()
        began_ns, took_ns, used_ns = map(int, out.read_text().split())
        shutil.rmtree(there, ignore_errors=True)
        return began_ns - job.started_ns, took_ns, used_ns


def watch_of(job: Path) -> FileWatch:
    job.mkdir()
    return FileWatch(
        str(job), KEY, rank=0, incarnation=0, limit_bytes=1 << 30, on_uncovered=lambda epoch, each: None
    )


def restart_ms(folder: Path, count: int, *, in_place: bool) -> float:
    """Put back so many files that were replaced, or written anew in place."""
    kind = "place" if in_place else "name"
    job, work = folder / f"undo-{kind}", folder / f"work-{kind}"
    work.mkdir()
    for number in range(count):
        (work / f"{number}").write_text("then")
    watch = watch_of(job)
    watch.start(0)
    for number in range(count):
        written = work / (f"{number}" if in_place else "tmp")
        written.write_text("now")
        if not in_place:
            os.replace(written, work / f"{number}")
    watch.stop()
    began_ns = time.monotonic_ns()
    prepared = prepare(str(job), KEY, 0, highest=0, from_start=True)
    restored = prepared.give(LARGE_BYTES)
    prepared.keep()
    took_ns = time.monotonic_ns() - began_ns
    assert not restored.problems
    assert {(work / f"{number}").read_text() for number in range(count)} == {"then"}
    return took_ns / 1e6


def copied_bytes(folder: Path) -> int:
    """How much this process writes to replace a large file, and to put it back, beside what the program writes."""
    job, large, other = folder / "undo-large", folder / "large", folder / "other"
    with large.open("wb") as file:
        for _ in range(LARGE_BYTES >> 20):
            file.write(b"x" * (1 << 20))
    watch = watch_of(job)
    watch.start(0)
    before = written_bytes()
    other.write_text("now")
    os.replace(other, large)
    watch.stop()
    restored = undo(str(job), KEY, 0, highest=0, from_start=True)
    assert not restored.problems and large.stat().st_size == LARGE_BYTES
    return written_bytes() - before


def written_bytes() -> int:
    """By write(2) and its like. A range that is copied by the kernel (copy_file_range, sendfile) counts, too."""
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])


def has_no_journal(folder: Path) -> bool:
    """Is this directory on an ext4 without a journal?"""
    device = os.stat(folder).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    journal = Path(f"/sys/fs/ext4/{block}/journal_task")
    return journal.exists() and journal.read_text().strip() == "<none>"


def measure(rounds: int, quick: bool) -> list[Row]:
    """All pairs, every round."""
    with scratch() as folder:
        if has_no_journal(folder):
            return [
                Skipped("files", f"{folder.parent} is on an ext4 without a journal: see the header, and --on")
            ]
    wall: dict[str, list[float]] = {what: [] for what in WORK}
    core: dict[str, list[float]] = {what: [] for what in WORK}
    later: list[float] = []
    restarts: dict[bool, list[float]] = {False: [], True: []}
    copied: list[float] = []
    for number in range(1 if quick else rounds):
        choices = ("off", "auto") if number % 2 == 0 else ("auto", "off")
        with scratch() as folder:
            for what, (count, _) in WORK.items():
                share = count // 20 if quick else count
                found = {choice: run(folder, what, share, choice) for choice in choices}
                wall[what].append(found["auto"][1] / found["off"][1])
                core[what].append(found["auto"][2] / found["off"][2])
            for order in (choices, choices[::-1]) * (1 if quick else 5):
                starts = {choice: run(folder, "append", 0, choice)[0] for choice in order}
                later.append((starts["auto"] - starts["off"]) / 1e6)
            for in_place, found_ms in restarts.items():
                found_ms.append(restart_ms(folder, FILES // 20 if quick else FILES, in_place=in_place))
            copied.append(copied_bytes(folder) / 1e6)
    rows: list[Row] = []
    for what, (_, goal) in WORK.items():
        name = NAMES.get(what, what)
        rows.append(Figure(f"{name}: wall time", "x", tuple(wall[what]), goal))
        rows.append(Figure(f"{name}: time of a core", "x", tuple(core[what])))
    rows.append(Figure("the program begins later by", "ms", tuple(later), LATER_GOAL_MS))
    for in_place, found_ms in restarts.items():
        name = f"{FILES} files put back that were {'written in place' if in_place else 'replaced'}"
        rows.append(Figure(name, "ms", tuple(found_ms), RESTART_GOAL_MS))
    rows.append(Figure("written to replace 1 GB and put it back", "MB", tuple(copied), 0.1))
    return rows


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=5))
