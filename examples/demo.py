"""The demo: a real program on real data loses two ranks to kill -9 and ends with the very same bytes.

    make demo

1. The tsunami of examples/tsunami runs undisturbed on four ranks.
2. It runs again, with a checkpoint every few seconds. Half-way one rank is killed with SIGKILL; later a
   second one, while a checkpoint is under way. Nobody helps: the job goes on by itself.
3. The results are compared byte for byte, and what it cost is printed.

Everything that happens here is read off the job's event log (JOB/events.jsonl), as a user could. Exit status:
0 when all results are equal, 1 when one differs or anything else did not go as told above.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

APPLICATION = Path(__file__).resolve().parent / "tsunami" / "tsunami.py"
RESULTS = ("result.npz", "result.txt", "gauges.csv")
TRIES = 5  # a round may commit before our signal arrives: then the next one is tried

Event = dict[str, Any]


class Failed(Exception):
    """The demo did not go as it should; the text says how."""


# ---- watching a job --------------------------------------------------------------------------------------


class Watch:
    """Follows a job's event log while its `ckpt run` is alive. Keeps what it has read in `events`."""

    def __init__(self, path: Path, alive: Callable[[], bool]) -> None:
        self.path = path
        self.alive = alive
        self.events: list[Event] = []
        self._offset = 0

    def read(self) -> list[Event]:
        """The lines added since the last call; a half-written last line is left for the next."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = [event for event in map(parse, whole.splitlines()) if event is not None]
        self.events += new
        return new

    def wait(
        self, what: str, found: Callable[[Event], bool], *, timeout_s: float, fresh: bool = False
    ) -> Event:
        """The first event that `found` accepts: of all, or (`fresh`) of those not read yet."""
        deadline = time.monotonic() + timeout_s
        if fresh:
            self.read()
        known: Iterable[Event] = [] if fresh else list(self.events)
        while True:
            alive = self.alive()
            for event in [*known, *self.read()]:
                if found(event):
                    return event
            known = []
            if not alive:
                raise Failed(f"the job ended before: {what}")
            if time.monotonic() > deadline:
                raise Failed(f"not within {timeout_s:.0f} s: {what}")
            time.sleep(0.001)


def parse(line: bytes) -> Event | None:
    """One line of the log; None for the torn line that a writer leaves when it is killed."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def named(name: str) -> Callable[[Event], bool]:
    """Accepts events of that name."""
    return lambda event: event["event"] == name


def pid_of(events: list[Event], rank: int) -> int:
    """The process that is this rank now."""
    started = [event for event in events if event["event"] == "rank-started" and event["rank"] == rank]
    return int(started[-1]["pid"])


# ---- the two runs ----------------------------------------------------------------------------------------


class Run:
    """One `ckpt run` of the application, its results in `directory`."""

    def __init__(self, directory: Path, options: argparse.Namespace, *flags: str) -> None:
        self.directory = directory
        self.job = directory / "job"
        application = [str(APPLICATION), "--out", str(directory), "--hours", str(options.hours)]
        application += ["--refine", str(options.refine)]
        command = [sys.executable, "-m", "ckpt", "run", "-n", str(options.ranks)]
        command += ["--job", str(self.job), *flags, "--", *application]
        print("  $ ckpt", *command[3:], flush=True)
        self.started = time.monotonic()
        self.wall_s = 0.0
        self.kills: list[tuple[int, int]] = []
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.watch = Watch(self.job / "events.jsonl", lambda: self.process.poll() is None)

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def finish(self, timeout_s: float) -> None:
        """Wait for the end; the job must have ended well."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"the job did not end within {timeout_s:.0f} s") from None
        self.wall_s = self.seconds()
        self.watch.read()
        if code != 0:
            raise Failed(f"ckpt run ended with exit code {code}")

    def stop(self) -> None:
        """For the way out after a failure: no process is left behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def kill(self, rank: int, why: str) -> None:
        pid = pid_of(self.watch.events, rank)
        print(f"  !! {self.seconds():5.1f} s: kill -9 {pid} (rank {rank}), {why}", flush=True)
        self.kills.append((rank, time.time_ns()))
        os.kill(pid, signal.SIGKILL)


def kill_half_way(run: Run, half_s: float, timeout_s: float) -> None:
    """Kill rank 2 half-way, once there is a checkpoint to go back to; wait until the job computes again."""
    run.watch.wait("a first commit", named("committed"), timeout_s=timeout_s)
    while run.seconds() < half_s:
        if not run.watch.alive():
            raise Failed("the job ended before it was half-way")
        run.watch.read()
        time.sleep(0.01)
    run.kill(2, "half-way")
    run.watch.wait("the restart", named("restarted"), timeout_s=timeout_s)


def kill_during_checkpoint(run: Run, timeout_s: float) -> int:
    """Kill rank 1 between the start of a round and its commit, and wait until the job computes again.

    Returns the number of the epoch that was under way. A round that wins the race is followed by another try.
    """
    for _ in range(TRIES):
        round_started = named("round-started")
        epoch = run.watch.wait("a checkpoint", round_started, timeout_s=timeout_s, fresh=True)["epoch"]
        run.kill(1, f"while checkpoint {epoch} is under way")
        run.watch.wait("the restart", named("restarted"), timeout_s=timeout_s)
        if epoch not in committed_epochs(run.watch.events):
            return int(epoch)
        print(f"     checkpoint {epoch} was committed before the signal arrived; once more", flush=True)
    raise Failed(f"{TRIES} checkpoints committed faster than a rank could be killed")


def committed_epochs(events: list[Event]) -> set[int]:
    return {event["epoch"] for event in events if event["event"] == "committed"}


# ---- what it cost ----------------------------------------------------------------------------------------


def costs(events: list[Event], kills: list[tuple[int, int]]) -> dict[str, list[float]]:
    """What checkpoints and restarts took, one value per occurrence, in ms and MB.

    `kills`: (rank, wall clock in ns) of every signal sent; from there it is counted until the event log says
    that the death was noticed, and that the ranks compute again.
    """
    names = ("commit_ms", "pause_ms", "image_mb", "noticed_ms", "restart_ms", "burnt")
    found: dict[str, list[float]] = {name: [] for name in names}
    for event in events:
        match event["event"]:
            case "committed":
                found["commit_ms"].append(float(event["ms"]))
            case "captured":
                found["pause_ms"].append(event["pause_ns"] / 1e6)
            case "voted":
                found["image_mb"].append(event["bytes_written"] / 1e6)
            case "round-aborted":
                found["burnt"].append(float(event["epoch"]))
            case _:
                pass
    for rank, killed_ns in kills:
        later = [event for event in events if event["ns"] >= killed_ns]
        died = next(
            (event for event in later if event["event"] == "rank-died" and event["rank"] == rank), None
        )
        again = next((event for event in later if event["event"] == "restarted"), None)
        if died is not None:
            found["noticed_ms"].append((died["ns"] - killed_ns) / 1e6)
        if again is not None:
            found["restart_ms"].append((again["ns"] - killed_ns) / 1e6)
    return found


def spread(values: list[float], unit: str) -> str:
    return f"{median(values):.1f} {unit}, at most {max(values):.1f} {unit}" if values else "-"


def table(plain_s: float, killed_s: float, cost: dict[str, list[float]]) -> Iterator[tuple[str, str]]:
    """Lines of (what, how much)."""
    yield "undisturbed run", f"{plain_s:.1f} s"
    yield "run with two kills", f"{killed_s:.1f} s"
    yield "checkpoints committed", str(len(cost["commit_ms"]))
    yield "checkpoints given up", str(len(cost["burnt"]))
    yield "command to commit", spread(cost["commit_ms"], "ms")
    yield "pause of a rank", spread(cost["pause_ms"], "ms")
    yield "written per rank and checkpoint", spread(cost["image_mb"], "MB")
    yield "kill to death noticed", spread(cost["noticed_ms"], "ms")
    yield "kill to computing again", spread(cost["restart_ms"], "ms")


def differences(expected: Path, found: Path, names: Iterable[str] = RESULTS) -> list[str]:
    """Which of the named files are missing or differ, each in words; empty when all are equal."""
    wrong = []
    for name in names:
        one, other = expected / name, found / name
        if not one.exists() or not other.exists():
            wrong.append(f"{name}: missing in {expected if not one.exists() else found}")
            continue
        left, right = one.read_bytes(), other.read_bytes()
        if left != right:
            pairs = enumerate(zip(left, right, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
            wrong.append(f"{name}: {len(left)} and {len(right)} bytes, first difference at byte {at}")
    return wrong


# ---- the demo --------------------------------------------------------------------------------------------


def demo(options: argparse.Namespace) -> None:
    """All of it; raises Failed when something is not as it should be."""
    root: Path = options.out
    runs: list[Run] = []
    for name in ("undisturbed", "killed-twice"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    try:
        print("1. undisturbed", flush=True)
        plain = Run(root / "undisturbed", options)
        runs.append(plain)
        plain.finish(options.timeout)

        print(f"\n2. a checkpoint every {options.every:g} s, and two kills", flush=True)
        killed = Run(root / "killed-twice", options, "--every", str(options.every))
        runs.append(killed)
        kill_half_way(killed, plain.wall_s / 2, options.timeout)
        burnt = kill_during_checkpoint(killed, options.timeout)
        killed.finish(options.timeout)
    finally:
        for run in runs:
            run.stop()

    print("\n3. compared byte for byte", flush=True)
    wrong = differences(plain.directory, killed.directory)
    for name in RESULTS:
        print(f"  {name:<12} {'differs' if any(line.startswith(name) for line in wrong) else 'equal'}")
    print("\nwhat it cost")
    for what, much in table(plain.wall_s, killed.wall_s, costs(killed.watch.events, killed.kills)):
        print(f"  {what:<32} {much}")
    print(
        f"  (checkpoint {burnt} was under way at the second kill; it was given up. Log: {killed.watch.path})"
    )
    if wrong:
        raise Failed("the results differ: " + "; ".join(wrong))
    print("\nThe results are equal, byte for byte.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    option = parser.add_argument
    option("--out", type=Path, default=Path("demo-output"), help="directory for results and jobs")
    option("--ranks", "-n", type=int, default=4, help="number of ranks (3 or more)")
    option("--every", type=float, default=3.0, metavar="S", help="seconds between checkpoints")
    option("--hours", type=float, default=2.0, help="simulated hours")
    option("--refine", type=int, default=5, help="fineness of the grid; the work grows with its cube")
    option("--timeout", type=float, default=900.0, metavar="S", help="give up when one part takes longer")
    options = parser.parse_args()
    if options.ranks < 3:
        parser.error("--ranks: the demo kills ranks 1 and 2")
    options.out = options.out.resolve()
    try:
        demo(options)
    except Failed as failure:
        print(f"\nFAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
