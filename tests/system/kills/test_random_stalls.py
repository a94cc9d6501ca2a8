"""A job that is starved at random: processes stopped, the interpreter lock held, clocks moved, and kills between them.

Each of these has tests of its own (test_stalls.py), where it meets a job that is otherwise left in peace. Here they come at
random moments and overlap: a rank is killed while it holds its lock, a clock jumps while a controller stands still. The
result is the same, and the job ends. `make test` does a few with the seed of the commit. One line repeats a run:

    CKPT_SEED=7 CKPT_STALLS=40 python -m pytest tests/system/kills/test_random_stalls.py -m 'soak or not soak'
"""

from __future__ import annotations

import os
import random
import re
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.apps import RING
from tests.system.kills.test_random_kills import RANKS, Ordeal, undisturbed
from tests.system.support import Job, write_app

pytestmark = pytest.mark.system

SEED = seed_of_the_commit()
KINDS = {"stop": 4, "hold": 3, "clock": 3, "kill": 2}
"""What is done to a job, and how often beside the others."""

AWAY = """
    import ctypes, os

    def away(name):
        # What C code does that keeps the interpreter lock: nothing of Python runs meanwhile.
        if os.path.exists(name):
            microseconds = int(open(name).read() or 0)
            os.unlink(name)
            ctypes.PyDLL(None).usleep(microseconds)
"""
STARVED_RING = AWAY + re.sub(
    r"^( +)(x = )?step\(i, x\)\n", r"\g<0>\1away(f'{sys.argv[3]}.{comm.rank}')\n", RING, flags=re.M
)


class Starving(Ordeal):
    """Disturbed in all the ways that KINDS names."""

    longest_stall_s = 5.0

    def __init__(
        self, directory: Path, choose: random.Random, clock_library: Path, longest_hold_s: float
    ) -> None:
        super().__init__(directory, choose, mean_s=0.5, stalls=0.0)
        self.app = write_app(directory, STARVED_RING)
        self.hold = directory / "hold"
        self.longest_hold_s = longest_hold_s
        self.clock = directory / "clock"
        self.clock.write_bytes(bytes(8))
        self.clock_library = clock_library
        self.done: Counter[str] = Counter()

    def start(self, *more: object, env: dict[str, str] | None = None) -> Job:
        environment = {"LD_PRELOAD": str(self.clock_library), "CKPT_TEST_CLOCK": str(self.clock)}
        return super().start(self.hold, *more, env={**environment, **(env or {})})

    def disturbances(self) -> int:
        return self.done.total()

    def disturb(self, job: Job) -> None:
        (kind,) = self.choose.choices(list(KINDS), list(KINDS.values()))
        getattr(self, f"_{kind}")(job)
        self.done[kind] += 1

    def _stop(self, job: Job) -> None:
        self.stall_somebody(job)

    def _kill(self, job: Job) -> None:
        self.kill_somebody(job)

    def _hold(self, job: Job) -> None:
        """At the next step of a rank; it may be killed or stopped meanwhile."""
        target = Path(f"{self.hold}.{self.choose.randrange(RANKS)}")
        held_s = min(self.longest_hold_s, 0.05 * 10 ** self.choose.uniform(0, 2.8))
        new = target.with_suffix(".new")
        new.write_text(str(int(held_s * 1e6)))
        new.replace(target)

    def _clock(self, job: Job) -> None:
        """The wall clock of all processes, by up to some weeks from the truth."""
        with self.clock.open("r+b") as file:  # in place: the processes have it mapped
            file.write(struct.pack("<q", self.choose.randint(-3_000_000, 3_000_000)))


def starve(tmp_path: Path, clock_library: Path, wanted: int, longest_hold_s: float) -> Counter[str]:
    """How much there was of each kind."""
    expected = undisturbed(tmp_path)
    assert "result" in expected
    total: Counter[str] = Counter()
    jobs, began = 0, time.monotonic()
    while total.total() < wanted:
        ordeal = Starving(
            tmp_path / f"starving-{jobs}", random.Random(f"{SEED}/{jobs}"), clock_library, longest_hold_s
        )
        output = ordeal.run(min(wanted - total.total(), 40))
        assert output == expected, f"seed {SEED}, job {jobs}"
        total += ordeal.done
        jobs += 1
    print(
        f"{dict(total)} in {jobs} jobs, {time.monotonic() - began:.0f} s; "
        f"seed {SEED}; again with CKPT_SEED={SEED} CKPT_STALLS={wanted}"
    )
    return total


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_few_random_stalls(tmp_path: Path, clock_library: Path) -> None:
    starve(tmp_path, clock_library, 10, longest_hold_s=2)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_hundreds_of_random_stalls(tmp_path: Path, clock_library: Path, soaked: Callable[..., None]) -> None:
    """Locks are held for up to 30 s."""
    wanted = int(os.environ.get("CKPT_STALLS", "500"))
    found = starve(tmp_path, clock_library, wanted, longest_hold_s=30)
    soaked("starved", wanted, **found)
