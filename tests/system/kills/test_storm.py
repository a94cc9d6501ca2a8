"""A storm: everything that a job consists of is killed and stopped at random, again and again, also while it restarts.

CKPT_STORM_SECONDS: how long (600); CKPT_SEED: which storm. The program checks every message against what it must be, and
writes lines whose every byte is known; so whatever is lost, repeated or mixed up is seen.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import Job, ckpt_command, environment, write_app

RANKS = 3
SECONDS = float(os.environ.get("CKPT_STORM_SECONDS", "600"))
_END_PATIENCE_S = 180.0

pytestmark = [pytest.mark.system, pytest.mark.nightly, pytest.mark.timeout(SECONDS + 600)]

PROGRAM = """
    import os, random, subprocess, sys, time
    import ckpt

    comm = ckpt.enable()
    rank, size = comm.rank, comm.size
    ballast = bytearray(4 << 20)

    def values():
        # what every rank holds, step by step
        held = list(range(size))
        while True:
            yield held
            left = held[-1:] + held[:-1]
            held = [(a * 31 + b) % 1000003 for a, b in zip(held, left)]

    expected = values()
    next(expected)
    x, step = rank, 0
    random.seed(7)
    with open(f"lines-{rank}", "w") as lines:
        while True:
            request = comm.isend((step, x), (rank + 1) % size, tag=3)
            other, y = comm.recv(source=(rank - 1) % size, tag=3)
            request.wait()
            assert other == step, (other, step)
            x = (x * 31 + y) % 1000003
            step += 1
            assert x == next(expected)[rank], (step, x)
            ballast[random.randrange(len(ballast))] ^= 1
            if step % 20 == 0:
                lines.write(f"{step} {x}\\n")
                print(step, x)
            if step % 50 == 0:
                if comm.allreduce(int(os.path.exists(os.environ["CKPT_TEST_GO"])), min):
                    break
            if step % 400 == 0 and rank == 0:
                assert subprocess.run(["sh", "-c", "exit 5"]).returncode in (5, -9)
            time.sleep(0.001)
    drawn = sum(ballast)
    print("end", step, x, drawn)
"""


class Storm:
    """One job, its controllers, and what is done to them. `done`: how often what."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.app = write_app(directory, PROGRAM)
        self.options = ["-n", RANKS, "--every", 0.3, "--max-restarts", 1_000_000, "--", self.app]
        self.job = Job(directory / "job", *self.options)
        self.controllers = [self.job.process]
        self.codes: Counter[int] = Counter()
        self.done: Counter[str] = Counter()
        self.stopped: list[tuple[float, int]] = []

    # -- who is there

    def agent(self) -> int | None:
        found = self.job.events("agent-started")
        return int(found[-1]["pid"]) if found else None

    def ranks(self) -> list[int]:
        agent = self.agent()
        return children(agent) if agent else []

    def grandchildren(self) -> list[int]:
        """Of which there are none most of the time."""
        deadline = time.monotonic() + 0.4
        while not (found := [pid for rank in self.ranks() for pid in children(rank)]):
            if time.monotonic() > deadline:
                break
            time.sleep(0.002)
        return found

    def living_controllers(self) -> list[subprocess.Popen[bytes]]:
        for process in self.controllers:
            if process.poll() is not None:
                self.codes[process.returncode] += 1
        self.controllers = [process for process in self.controllers if process.returncode is None]
        return self.controllers

    # -- what is done

    def start_controllers(self, count: int) -> None:
        with self.job.stdout_path.open("ab") as out, self.job.stderr_path.open("ab") as err:
            for _ in range(count):
                command = ckpt_command("run", "--resume", "auto", "--job", self.job.directory, *self.options)
                if self.random.random() < 0.3 and self.job.events("committed"):
                    command = ckpt_command("restart", self.job.directory)
                self.controllers.append(
                    subprocess.Popen(
                        command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=self.job.directory.parent,
                        env={**environment(), "CKPT_TEST_GO": str(self.job._go)},
                    )
                )  # fmt: skip

    def step(self) -> None:
        """Something happens to somebody."""
        if not self.living_controllers():
            self.start_controllers(self.random.choice((1, 1, 2)))
            self.done["controllers started"] += 1
        what, look = self.random.choice(
            [("rank", self.ranks)] * 6
            + [("image child or subprocess", self.grandchildren)] * 3
            + [("agent", lambda: [self.agent()])]
            + [("controller", lambda: [process.pid for process in self.controllers])] * 2
        )
        targets = [pid for pid in look() if pid is not None and mine(pid)]
        if not targets:
            return
        pid = self.random.choice(targets)
        how = self.random.choice(["kill", "kill", "stop", "terminate" if what == "controller" else "kill"])
        self.done[f"{how} {what}"] += 1
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}[how]
        if send(pid, number) and how == "stop":
            self.stopped.append((time.monotonic() + self.random.uniform(0.05, 1.5), pid))

    def pause(self, seconds: float) -> None:
        """Meanwhile those whose time is over go on."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end or (self.stopped and seconds == 0):
            for due, pid in list(self.stopped):
                if now >= due or seconds == 0:
                    send(pid, signal.SIGCONT)
                    self.stopped.remove((due, pid))
            time.sleep(min(0.01, max(0.0, end - now)))

    def blow(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(self.random.choice((1, 1, 1, 2, 4))):  # several at once: during a restart, too
                self.step()
                self.pause(self.random.choice((0.001, 0.02, 0.1)))
            self.pause(self.random.uniform(0.05, 3.0))
        self.pause(0)

    def calm(self) -> int:
        """Let it come to its end; the exit code of the controller that has brought it there."""
        self.job.go()
        deadline = time.monotonic() + _END_PATIENCE_S
        while time.monotonic() < deadline:
            before = self.living_controllers()
            if not before:
                finished = self.job.events("job-finished")
                if finished and finished[-1].get("kind", "finished") == "finished":
                    return int(finished[-1]["exit_code"])
                self.start_controllers(1)
            time.sleep(0.05)
        raise AssertionError(f"the job did not end within {_END_PATIENCE_S} s\n{self.job.report()}")

    def left(self) -> list[str]:
        """Processes that belong to the job, by the marks of its agents."""
        marks = [event["mark"].encode() for event in self.job.events("agent-started")]
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "environ").read_bytes()
                    command = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if any(mark in words for mark in marks) or str(self.job.directory).encode() in command:
                    found.append(f"{entry.name}: {command!r}")
        return found

    def close(self) -> None:
        self.pause(0)
        for process in self.controllers:
            process.kill()
            process.wait()
        for pid in (int(line.partition(":")[0]) for line in self.left()):
            send(pid, signal.SIGKILL)
        self.job.close()


def children(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def mine(pid: int) -> bool:
    """A number in the log may be another process's by now."""
    try:
        return b"CKPT_TEST_GO=" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def lines_of(rank: int, steps: int) -> str:
    """What the program must have written."""
    held, found = list(range(RANKS)), []
    for step in range(1, steps + 1):
        left = held[-1:] + held[:-1]
        held = [(a * 31 + b) % 1000003 for a, b in zip(held, left, strict=True)]
        if step % 20 == 0:
            found.append(f"{step} {held[rank]}\n")
    return "".join(found)


def drawn(steps: int) -> int:
    chance, ballast = random.Random(7), bytearray(4 << 20)
    for _ in range(steps):
        ballast[chance.randrange(len(ballast))] ^= 1
    return sum(ballast)


def test_a_storm_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    seed = seed_of_the_commit()
    storm = Storm(tmp_path, seed)
    try:
        storm.job.wait_event("running")
        storm.blow(SECONDS)
        assert storm.calm() == 0, storm.job.report()
        print(f"seed {seed}:", dict(storm.done), "codes", dict(storm.codes), file=sys.stderr)
        assert set(storm.codes) <= {0, 11, 143, -9, -15}, (storm.codes, storm.job.report())
        for rank in range(RANKS):
            *lines, end = storm.job.output(rank).splitlines(keepends=True)
            steps = int(end.split()[1])
            assert end.split()[::3] == ["end", str(drawn(steps))], end
            assert "".join(lines) == lines_of(rank, steps)
            assert (tmp_path / f"lines-{rank}").read_text() == lines_of(rank, steps)
        assert not storm.left()
        assert storm.job.events("committed")
    finally:
        storm.close()
