"""One program three ways: under `mpiexec`, under `ckpt run`, and under `ckpt run` while random ranks are killed.

Every rank's standard output is kept by itself, so that nothing of how outputs interleave is compared, and all of the rest
is, but for the times a program prints (`Program.times`).

Kills: each strikes a random rank at a random moment. In the first two attempts the moment is counted from the first commit
of the incarnation it ends, so that most restarts go on from a checkpoint; programs too short for that are killed wherever
they are. When a job was through before its second kill, it is run again, with kills ever earlier. Same seed, same choices;
the moments are real.

With `replicas` the second way is ``ckpt run --redundancy N``, and the third one the same while one replica is killed. No
replica may be called wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.programs.catalogue import Program
from tests.programs.fetch import Place

ROOT = Path(__file__).parents[2]
SCENARIOS = Path(__file__).parent / "scenarios"
KILLS = 2
_ATTEMPTS = 6
_AFTER_COMMIT = 2
_ATTEMPTS_OF_MPI = 3
"""MPICH sometimes ends with an error when its ranks leave at different times."""
_PATIENCE_S = 180

Outputs = list[str]
"""What every rank printed, times masked."""


@dataclass
class Outcome:
    """What came of one program; `resumed`: epochs the restarts went on from, 0 for the beginning."""

    program: str
    real_s: float = 0.0
    ours_s: float = 0.0
    kills: int = 0
    resumed: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class RealMpiFailed(Exception):
    """The program fails under the real MPI: there is nothing to compare with (MPICH kills some at their end)."""


class Bench:
    """Runs one program in directories of its own below `directory`."""

    def __init__(
        self, program: Program, place: Place, directory: Path, seed: int, replicas: Sequence[str] = ()
    ) -> None:
        """`replicas`: options of `ckpt run`, such as ``--redundancy 3``."""
        self.program, self.place, self.directory, self.seed = program, place, directory, seed
        self.replicas = replicas
        self.argv = [part.format(demo=place.demo, here=SCENARIOS) for part in program.command]

    def run(self) -> Outcome:
        """All three."""
        outcome = Outcome(self.program.name)
        real, outcome.real_s = self.under_mpi()
        for rank, text in enumerate(real):
            if "Traceback" in text:
                outcome.failures.append(f"under the real MPI, rank {rank} failed: {text[-500:]}")
        if not any(real) and not self.program.silent:
            outcome.failures.append("it prints nothing")
        job = self.start("plain", *self.replicas)
        self.finish(job, "plain", outcome)
        outcome.ours_s = job.seconds
        self.compare("under ckpt run", real, job, outcome)
        if not outcome.failures:
            (self.with_a_replica_killed if self.replicas else self.with_kills)(real, outcome)
        return outcome

    # ------------------------------------------------------------------ real MPI

    def under_mpi(self) -> tuple[Outputs, float]:
        """Outputs and seconds under the fetched MPI library. RealMpiFailed when it fails there."""
        for attempt in range(_ATTEMPTS_OF_MPI):
            code, outputs, seconds, complaint = self.once_under_mpi(self.fresh(f"mpi-work-{attempt}"))
            if code == 0:
                return outputs, seconds
        raise RealMpiFailed(
            f"{self.program.name} under {self.place.library}: exit code {code}: {complaint}\n{outputs}"
        )

    def once_under_mpi(self, work: Path) -> tuple[int, Outputs, float, str]:
        """Exit code, outputs, seconds, and what mpiexec said."""
        each = ["sh", "-c", 'exec "$@" >"../mpi-$PMI_RANK.out" 2>"../mpi-$PMI_RANK.err"', "sh"]
        module = ["-m", self.program.module] if self.program.module else []
        command = [self.place.mpiexec, "-n", str(self.program.ranks), *each, self.place.python, *module]
        began = time.monotonic()
        done = subprocess.run(
            [*map(str, command), *self.argv],
            cwd=work,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
        seconds = time.monotonic() - began
        outputs = [self.output(self.directory, f"mpi-{rank}") for rank in range(self.program.ranks)]
        return done.returncode, outputs, seconds, (done.stdout + done.stderr)[-1500:]

    # ------------------------------------------------------------------ ours

    def start(self, name: str, *flags: str) -> Job:
        work = self.fresh(name)
        command = [str(self.place.python), "-m", "ckpt", "run", "-n", str(self.program.ranks)]
        command += ["--job", str(self.directory / f"job-{name}"), *flags]
        command += ["-m", self.program.module] if self.program.module else ["--"]
        environment = {**self.environment(), "PYTHONPATH": str(ROOT)}
        log = self.directory / f"{name}.log"
        return Job(self.directory / f"job-{name}", [*command, *self.argv], work, environment, log)

    def finish(self, job: Job, what: str, outcome: Outcome) -> None:
        code = job.wait(_PATIENCE_S * (4 if self.replicas else 1))
        if code != 0:
            outcome.failures.append(
                f"{what}: exit code {code}\n{job.log.read_text(errors='replace')[-1500:]}"
            )

    def compare(self, what: str, real: Outputs, job: Job, outcome: Outcome) -> None:
        outcome.failures += [f"{what}: {event}" for event in job.events("replica-differs")]
        for rank, expected in enumerate(real):
            got = self.output(job.directory / "output", f"rank-{rank}")
            if got != expected:
                outcome.failures.append(
                    f"{what}: rank {rank} printed\n{got[-700:]}\n--- and not\n{expected[-700:]}"
                )

    def with_a_replica_killed(self, real: Outputs, outcome: Outcome) -> None:
        choose, what = (
            random.Random(f"{self.seed}/{self.program.name}"),
            f"a replica killed, seed {self.seed}",
        )
        for attempt in range(_ATTEMPTS):
            job = self.start(f"killed-{attempt}", *self.replicas)
            try:
                self.kill_a_replica(job, choose, choose.uniform(0.02, 0.6) * outcome.ours_s / 2**attempt)
                self.finish(job, what, outcome)
            finally:
                job.close()
            self.compare(what, real, job, outcome)
            outcome.kills = len(job.events("replica-lost"))
            if outcome.kills or outcome.failures or self.program.brief:
                return
        outcome.failures.append(f"it was through before the kill, {_ATTEMPTS} times")

    def kill_a_replica(self, job: Job, choose: random.Random, after_s: float) -> None:
        """Kill one process, so long after the job has begun to run."""
        deadline = time.monotonic() + _PATIENCE_S
        while not job.events("running", "job-finished") and time.monotonic() < deadline:
            time.sleep(0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(after_s)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(choose.choice(job.events("rank-started"))["pid"], signal.SIGKILL)

    def with_kills(self, real: Outputs, outcome: Outcome) -> None:
        choose = random.Random(f"{self.seed}/{self.program.name}")
        span_s = outcome.ours_s
        for attempt in range(_ATTEMPTS):
            # A rank that no image can hold delays the others until its round is given up: not for long.
            job = self.start(f"killed-{attempt}", "--every", "0.3", "--timeout", "5")
            try:
                kills = sum(
                    self.kill(job, choose, number, span_s, committed=attempt < _AFTER_COMMIT)
                    for number in range(1, KILLS + 1)
                )
                self.finish(job, f"with {kills} kills, seed {self.seed}", outcome)
            finally:
                job.close()
            self.compare(f"with {kills} kills, seed {self.seed}", real, job, outcome)
            outcome.kills = max(outcome.kills, kills)
            resumed = [int(event["from_epoch"] or 0) for event in job.events("restarting")]
            outcome.resumed += resumed
            if kills == KILLS or outcome.failures:
                return
            span_s /= 3
        outcome.failures.append(f"it was through before the second kill, {_ATTEMPTS} times")

    def kill(self, job: Job, choose: random.Random, number: int, span_s: float, *, committed: bool) -> bool:
        """Kill a rank of the `number`-th incarnation; False when the job was through before that."""
        ranks = self.program.ranks
        victim, after_s = choose.randrange(ranks), choose.uniform(0.02, 0.6 / number) * span_s
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if len(job.events("rank-started")) >= number * ranks and (not committed or job.has_committed()):
                break
            if job.process.poll() is not None:
                return False
            time.sleep(0.01)
        try:
            job.process.wait(after_s)
        except subprocess.TimeoutExpired:
            pass
        else:
            return False
        started = [event for event in job.events("rank-started") if event["rank"] == victim]
        try:
            os.kill(started[number - 1]["pid"], signal.SIGKILL)
        except ProcessLookupError:
            return False
        return self.died(job, number, deadline)

    def died(self, job: Job, number: int, deadline: float) -> bool:
        """Whether the kill met the rank before it had ended by itself."""
        while time.monotonic() < deadline:
            if len(job.events("restarting")) >= number:
                return True
            if job.process.poll() is not None:
                return len(job.events("restarting")) >= number
            time.sleep(0.01)
        return False

    # ------------------------------------------------------------------ both

    def fresh(self, name: str) -> Path:
        work = self.directory / name
        work.mkdir(parents=True)
        return work

    def environment(self) -> dict[str, str]:
        """The same for both: one computing thread a rank, one hash seed, no compiled files in the cache."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV_"))}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        return {**own, **threads, "PYTHONHASHSEED": "7", "PYTHONUNBUFFERED": "", "MPLBACKEND": "Agg"}

    def output(self, directory: Path, stem: str) -> str:
        text = (directory / f"{stem}.out").read_text(errors="replace")
        if self.program.stderr_too:
            text += "--- standard error\n" + (directory / f"{stem}.err").read_text(errors="replace")
        return re.sub(self.program.times, "<time>", text, flags=re.MULTILINE) if self.program.times else text


class Job:
    """A job under `ckpt run`, in the background."""

    def __init__(
        self, directory: Path, command: list[str], work: Path, environment: dict[str, str], log: Path
    ) -> None:
        self.directory, self.log = directory, log
        self.began = time.monotonic()
        self.seconds = 0.0
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def wait(self, timeout_s: float) -> int | str:
        """Its exit code."""
        try:
            code: int | str = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = f"none within {timeout_s:.0f} s"
            self.close()
        self.seconds = time.monotonic() - self.began
        return code

    def events(self, *names: str) -> list[dict[str, Any]]:
        path = self.directory / "events.jsonl"
        if not path.exists():
            return []
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [event for event in map(json.loads, whole) if event["event"] in names]

    def has_committed(self) -> bool:
        """Whether there has been a commit since the last restart."""
        events = self.events("committed", "restarting")
        return bool(events) and events[-1]["event"] == "committed"

    def close(self) -> None:
        """End what is left of it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
