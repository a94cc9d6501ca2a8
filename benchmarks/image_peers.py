"""A running program with 1 GB of arrays, stopped and brought back: by us, by criu, by dill.

    python -m benchmarks.image_peers [--rounds 3] [--quick] (criu: on the PATH, or $CRIU)

The same program everywhere (`programs/beats.py`): a counter writes a line every 5 ms. *Pause*: how long the program stands
still (criu and dill: all of the write). *Durable*: until the image is safe. *Resume*: from the kill (ours), or the start of
the command that brings it back, to the program's next line. dill saves the module's variables only, the program has to
be written for it, and its stack is lost; it takes part as what Python programs have had so far.

No goals: beside each other, in one run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.spine_jobs import PROGRAMS, Figure, Job, Row, Skipped, environment, named, run_suite, scratch
from benchmarks.spine_jobs import wait_file as wait_lines

PROGRAM = PROGRAMS / "beats.py"
PATIENCE_S = 120.0

Values = dict[str, list[float]]


def beats(path: Path) -> list[tuple[int, int]]:
    """The (count, ns) written so far."""
    if not path.exists():
        return []
    rows = (line.split() for line in path.read_text().splitlines() if line.endswith(tuple("0123456789")))
    return [(int(row[0]), int(row[1])) for row in rows if len(row) == 2]


def next_beat(path: Path, after_ns: int) -> tuple[int, int]:
    """The first line after a moment. RuntimeError when none comes."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for row in beats(path):
            if row[1] > after_ns:
                return row
        time.sleep(0.005)
    raise RuntimeError("the program does not go on")


def rows_of(who: str, values: Values) -> list[Row]:
    units = {"pause": "ms", "durable": "ms", "written": "MB", "resume": "ms"}
    return [Figure(f"{who}: {name}", units[name], tuple(values[name])) for name in units if values.get(name)]


def ours(folder: Path, megabytes: int, values: Values) -> None:
    """One round under `ckpt run -n 1`: a checkpoint, and a kill -9 of the rank."""
    path = folder / "ours"
    with Job(folder / "job", PROGRAM, megabytes, path, ranks=1) as job:
        wait_lines(path, 20, lambda: job.process.poll() is None)
        command = [sys.executable, "-m", "ckpt", "checkpoint", str(folder / "job")]
        subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
        commit = job.wait("a commit", named("committed"))
        captured = next(event for event in job.of("captured") if event["epoch"] == commit["epoch"])
        voted = next(event for event in job.of("voted") if event["epoch"] == commit["epoch"])
        values.setdefault("pause", []).append(captured["pause_ns"] / 1e6)
        values.setdefault("durable", []).append(commit["ms"])
        values.setdefault("written", []).append(voted["bytes_written"] / 1e6)
        pid = job.of("rank-started")[-1]["pid"]
        killed_ns = time.time_ns()
        os.kill(pid, signal.SIGKILL)
        # Lines written just before the kill may carry a later time than its start by the clock's grain.
        _, ns = next_beat(path, killed_ns + 20_000_000)
        values.setdefault("resume", []).append((ns - killed_ns) / 1e6)


def dill(folder: Path, megabytes: int, values: Values) -> None:
    """One round: the program saves itself, ends, and is started again."""
    path, out = folder / "dill", folder / "dill.image"
    command = [sys.executable, str(PROGRAM), str(megabytes), str(path)]
    process = subprocess.Popen(
        [*command, "dump", str(out)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_lines(path, 20, lambda: process.poll() is None)
    Path(f"{out}.go").touch()
    printed, complaint = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        raise RuntimeError(complaint.strip().splitlines()[-1])
    for name in ("pause", "durable"):
        values.setdefault(name, []).append(float(printed) * 1e3)
    values.setdefault("written", []).append(out.stat().st_size / 1e6)
    began_ns = time.time_ns()
    process = subprocess.Popen([*command, "load", str(out)], env=environment())
    try:
        _, ns = next_beat(path, began_ns)
    finally:
        process.kill()
        process.wait()
    values.setdefault("resume", []).append((ns - began_ns) / 1e6)


def find_criu() -> str | Skipped:
    """A criu that works here, or why there is none."""
    criu = os.environ.get("CRIU") or shutil.which(
        "criu", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    )
    if not criu:
        return Skipped("criu", "criu is not installed")
    check = subprocess.run([criu, "check"], capture_output=True, text=True, check=False)
    if check.returncode:
        why = (check.stderr or check.stdout).strip().splitlines()
        return Skipped("criu", f"criu check fails: {why[-1] if why else check.returncode}")
    return criu


def criu_round(criu: str, folder: Path, megabytes: int, values: Values) -> None:
    """One round: dump ends the process, restore brings it back."""
    path, images = folder / "criu", folder / "criu.images"
    images.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(megabytes), str(path)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_lines(path, 20, lambda: process.poll() is None)
    options = ["-D", str(images), "--shell-job"]
    began = time.perf_counter()
    done = subprocess.run(
        [criu, "dump", "-t", str(process.pid), *options], capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - began
    if done.returncode:
        process.kill()
        process.wait()
        raise RuntimeError((done.stderr.strip().splitlines() or ["criu dump failed"])[-1])
    process.wait()
    for name in ("pause", "durable"):
        values.setdefault(name, []).append(took * 1e3)
    values.setdefault("written", []).append(sum(file.stat().st_size for file in images.iterdir()) / 1e6)
    began_ns = time.time_ns()
    done = subprocess.run(
        [criu, "restore", "-d", *options],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["criu restore failed"])[-1])
    try:
        _, ns = next_beat(path, began_ns)
    finally:
        os.kill(process.pid, signal.SIGKILL)
    values.setdefault("resume", []).append((ns - began_ns) / 1e6)


def measure(rounds: int, quick: bool) -> list[Row]:
    """All rows; the contestants take turns."""
    megabytes = 128 if quick else 1024
    contestants: dict[str, Callable[[Path, int, Values], None]] = {"ckpt": ours, "dill.dump_module": dill}
    skipped: list[Row] = []
    criu = find_criu()
    if isinstance(criu, Skipped):
        skipped.append(criu)
    else:
        contestants["criu"] = lambda folder, size, values: criu_round(criu, folder, size, values)
    found: dict[str, Values] = {name: {} for name in contestants}
    for _ in range(rounds):
        for name, work in list(contestants.items()):
            with scratch() as folder:
                try:
                    work(folder, megabytes, found[name])
                except RuntimeError as reason:
                    skipped.append(Skipped(name, str(reason).splitlines()[0]))
                    del contestants[name]
    return [row for name, values in found.items() for row in rows_of(name, values)] + skipped


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=3))
