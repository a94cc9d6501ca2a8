"""kill -9 at random moments of random processes, again and again, until the job is through: the same result.

`make test` does a few with the seed of the commit, `make soak` thousands. One line repeats a run:

    CKPT_SEED=7 CKPT_KILLS=12 python -m pytest tests/system/kills/test_random_kills.py -m 'soak or not soak'
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.apps import RING
from tests.system.support import Job, write_app

pytestmark = pytest.mark.system

RANKS = 3
STEPS, PAUSE_S, EVERY_S = 1000, 0.002, 0.15
SEED = seed_of_the_commit()


class Ordeal:
    """One job, disturbed until it has been `most` times, or is through: killed, or here and there stopped for a while."""

    longest_stall_s = 2.0

    def __init__(self, directory: Path, choose: random.Random, mean_s: float, stalls: float) -> None:
        directory.mkdir()
        self.directory = directory
        self.choose = choose
        self.mean_s = mean_s
        self.stalls = stalls
        """How often somebody is only stopped for a while, instead."""
        self.app = write_app(directory, RING)
        self.kills = {"rank": 0, "agent": 0, "controller": 0}
        self.stalled = 0

    def start(self, *more: object, env: dict[str, str] | None = None) -> Job:
        return Job(
            self.directory / "job",
            *("--resume", "auto", "-n", RANKS, "--every", EVERY_S, "--keep", 2, "--max-restarts", 10_000),
            *("--", self.app, STEPS, PAUSE_S, *more),
            env=env,
        )

    def disturbances(self) -> int:
        """Those that count."""
        return sum(self.kills.values())

    def disturb(self, job: Job) -> None:
        if self.choose.random() < self.stalls:
            self.stall_somebody(job)
        else:
            self.kill_somebody(job)

    def run(self, most: int) -> str:
        """To the end; rank 0's output. It goes on beyond its middle when it has been disturbed enough."""
        job = self.start()
        try:
            while True:
                rest_s = min(self.choose.expovariate(1 / self.mean_s), 5 * self.mean_s)
                if self.disturbances() >= most:
                    job.go()
                try:
                    code = job.process.wait(rest_s if self.disturbances() < most else 120)
                except subprocess.TimeoutExpired:
                    assert self.disturbances() < most, f"it does not end\n{job.report()}"
                    self.disturb(job)
                    continue
                if code == 0:
                    return job.output(0)
                assert code == -signal.SIGKILL, f"exit code {code}\n{job.report()}"
                job = self.start()
        finally:
            job.close()

    def somebody(self, job: Job) -> tuple[str, int] | None:
        """What is chosen, and its process; None: there is none just now."""
        who = self.choose.choices(("rank", "agent", "controller"), (8, 1, 2))[0]
        if who == "controller":
            return who, job.process.pid
        started = job.events("rank-started" if who == "rank" else "agent-started")
        if not started:
            return None
        pid = self.choose.choice(started[-RANKS:])["pid"] if who == "rank" else started[-1]["pid"]
        try:
            mine = b"controller" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            mine = False  # it is dead already, and its successor has not been announced
        return (who, pid) if mine else None

    def kill_somebody(self, job: Job) -> None:
        found = self.somebody(job)
        if found is not None and self._signal(found[1], signal.SIGKILL):
            self.kills[found[0]] += 1

    def stall_somebody(self, job: Job) -> None:
        found = self.somebody(job)
        if found is not None and self._signal(found[1], signal.SIGSTOP):
            time.sleep(self.choose.uniform(0.02, self.longest_stall_s))
            self._signal(found[1], signal.SIGCONT)
            self.stalled += 1

    @staticmethod
    def _signal(pid: int, sig: int) -> bool:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            return False
        return True


def undisturbed(tmp_path: Path) -> str:
    job = Job(tmp_path / "undisturbed", "-n", RANKS, "--", write_app(tmp_path, RING), STEPS, PAUSE_S)
    try:
        assert job.finish(timeout_s=120) == 0, job.report()
        return job.output(0)
    finally:
        job.close()


def many_kills(tmp_path: Path, wanted: int, mean_s: float, stalls: float = 0.0) -> dict[str, int]:
    """How many there were, by what was killed."""
    expected = undisturbed(tmp_path)
    assert "result" in expected
    total = {"rank": 0, "agent": 0, "controller": 0}
    jobs = stalled = 0
    began = time.monotonic()
    while sum(total.values()) < wanted:
        ordeal = Ordeal(tmp_path / f"ordeal-{jobs}", random.Random(f"{SEED}/{jobs}"), mean_s, stalls)
        output = ordeal.run(min(wanted - sum(total.values()), 60))
        assert output == expected, f"seed {SEED}, job {jobs}"
        for who, count in ordeal.kills.items():
            total[who] += count
        stalled += ordeal.stalled
        jobs += 1
    print(
        f"{sum(total.values())} kills {total}, {stalled} stalls in {jobs} jobs, {time.monotonic() - began:.0f} s; "
        f"seed {SEED}; again with CKPT_SEED={SEED} CKPT_KILLS={wanted}"
    )
    return {**total, "stalls": stalled, "jobs": jobs}


@pytest.mark.rotate(2)
@pytest.mark.timeout(300)
def test_a_few_random_kills(tmp_path: Path) -> None:
    many_kills(tmp_path, 10, 0.7)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("share", "mean_s", "stalls"), [(0.7, 0.5, 0.0), (0.2, 2.0, 0.0), (0.1, 0.5, 0.5)], ids=str
)
def test_thousands_of_random_kills(
    tmp_path: Path, share: float, mean_s: float, stalls: float, soaked: Callable[..., None]
) -> None:
    """Half a second apart, two seconds apart, and with as many processes that stand still for up to two seconds."""
    wanted = int(int(os.environ.get("CKPT_KILLS", "3100")) * share)
    found = many_kills(tmp_path, wanted, mean_s, stalls)
    soaked("kills", wanted, **found, **{f"every {mean_s} s": wanted})
