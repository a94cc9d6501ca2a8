"""Drives real jobs: starts `ckpt run`, reads the event log, kills ranks, compares results.

Everything is observed where users can see it too: the command line, the event log in the job directory and the output of
ranks.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ckpt.store.errors import StoreError

PATIENCE_S = 60.0
_LONGER, _LONGER_TRIES = 5, 6

Event = dict[str, Any]
T = TypeVar("T")


def ckpt_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ckpt", *map(str, arguments)]


def run_ckpt(
    *arguments: object, timeout_s: float = PATIENCE_S, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run one `ckpt` command to its end."""
    return subprocess.run(
        ckpt_command(*arguments),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        **options,
    )


def write_app(directory: Path, text: str, name: str = "app.py") -> Path:
    path = directory / name
    path.write_text(textwrap.dedent(text))
    return path


def drive(*arguments: str, out: Path, directory: Path | None = None) -> str:
    """Run `tests.system.image_driver`; its output is appended to `out`. Returns its standard error."""
    tests = Path(__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "11",
        "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests / "system")]),
    }
    with open(out, "ab") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "image_driver", *arguments],
            stdout=stream,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=directory,
            timeout=100,
            check=False,
        )
    said = done.stderr.decode()
    assert done.returncode == 0, f"{' '.join(arguments)}\n{said}"
    return said


class EndedEarly(AssertionError):
    """The job ended without an error before the awaited event: the program was too short on this machine."""


def environment() -> dict[str, str]:
    """The environment of this process. It can also be called in threads: pytest sets and removes PYTEST_CURRENT_TEST
    meanwhile, so that a plain copy of os.environ may fail."""
    return {name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None}


class Job:
    """A job under `ckpt run`, in the background."""

    def __init__(
        self,
        directory: Path,
        *arguments: object,
        env: dict[str, str] | None = None,
        verb: str = "run",
        within: tuple[str, ...] = (),
    ) -> None:
        """`within`: a command that executes the one after it."""
        self.directory = directory
        self.stdout_path = directory.parent / f"{directory.name}.stdout"
        self.stderr_path = directory.parent / f"{directory.name}.stderr"
        self._go = directory.parent / f"{directory.name}.go"
        with self.stdout_path.open("ab") as out, self.stderr_path.open("ab") as err:
            command = (
                ckpt_command("run", "--job", directory, *arguments)
                if verb == "run"
                else ckpt_command(verb, *arguments)
            )
            self.process = subprocess.Popen(
                [*within, *command],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env={**environment(), "CKPT_TEST_GO": str(self._go), **(env or {})},
                cwd=directory.parent,
            )

    # -- what happened

    def events(self, name: str | None = None, **fields: object) -> list[Event]:
        pieces = [self.directory / name for name in ("events.1.jsonl", "events.jsonl")]
        text = "".join(piece.read_text() for piece in pieces if piece.exists())
        found = []
        for line in text.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line may be half written while we look
            if name in (None, event["event"]) and all(event.get(k) == v for k, v in fields.items()):
                found.append(event)
        return found

    def wait_event(
        self, name: str, count: int = 1, *, timeout_s: float = PATIENCE_S, **fields: object
    ) -> Event:
        return self.wait_for(
            lambda: self.events(name, **fields)[count - 1 : count], f"{count} × {name}", timeout_s
        )[0]

    def wait_for(self, look: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            if self.process.poll() is not None:
                found = look()
                if found:
                    return found
                failure = EndedEarly if self.process.returncode == 0 else AssertionError
                raise failure(f"the job ended ({self.process.returncode}) before: {what}\n{self.report()}")
            time.sleep(0.01)
        raise AssertionError(f"not within {timeout_s} s: {what}\n{self.report()}")

    def report(self) -> str:
        tail = "\n".join(json.dumps(event)[:300] for event in self.events()[-25:])
        outputs = [
            f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted((self.directory / "output").glob("*"))
            if path.is_file()
        ]
        return (
            f"--- events\n{tail}\n--- stderr\n{self.stderr[-3000:]}\n--- stdout\n{self.stdout[-1500:]}\n"
            + "\n".join(outputs)
        )

    @property
    def stdout(self) -> str:
        return self.stdout_path.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    def output(self, rank: int) -> str:
        path = self.directory / "output" / f"rank-{rank}.out"
        return path.read_text() if path.exists() else ""

    # -- what we do to it

    def pid(self, rank: int) -> int:
        """The process of a rank, newest incarnation."""
        return int(self.events("rank-started", rank=rank)[-1]["pid"])

    def kill_rank(self, rank: int, sig: int = signal.SIGKILL) -> int:
        pid = self.pid(rank)
        os.kill(pid, sig)
        return pid

    def go(self) -> None:
        """Half-way the programs of :mod:`tests.system.apps` wait until this is called."""
        self._go.touch()

    def finish(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit code, when the job has gone on to its end."""
        self.go()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end within {timeout_s} s\n{self.report()}") from None

    def close(self) -> None:
        """End all processes that are left of the job: controller, agent, ranks; and remove their sockets."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for event in self.events():
            if event["event"] in ("rank-started", "agent-started") and "pid" in event:
                try:
                    command = Path(f"/proc/{event['pid']}/cmdline").read_bytes()
                except OSError:
                    continue
                if b"controller" in command or b"ckpt" in command:
                    try:
                        os.kill(event["pid"], signal.SIGKILL)
                    except ProcessLookupError:
                        continue
        if self.events("job-started") and (sockets := self.runtime_directory()):
            shutil.rmtree(sockets, ignore_errors=True)  # what an undisturbed job removes itself

    def runtime_directory(self) -> Path | None:
        """The directory of its sockets; None: nothing runs."""
        from ckpt.store import JobDirectory

        try:
            location = JobDirectory.open(self.directory).record().location
        except StoreError:
            return None
        return None if location is None else Path(location.runtime)


def long_enough(loops: int, attempt: Callable[[int], T]) -> T:
    """The result of `attempt(loops)`. As long as the program ends too early for this machine (EndedEarly), it is tried
    again with five times as many loops."""
    for turn in range(_LONGER_TRIES):
        try:
            return attempt(loops * _LONGER**turn)
        except (EndedEarly, ProcessLookupError):  # the latter: it has ended when it was to be killed
            if turn == _LONGER_TRIES - 1:
                raise
    raise AssertionError("unreachable")


def same_after_kills(
    start: Callable[..., Job], program: Path, kills: int, *, more_loops: int = 1, every: float = 0.1
) -> None:
    """The program, given the number of its loops, prints the same with so many kills as without. Each goes on from an
    image. `more_loops`: how many more than kills."""

    def attempt(scale: int) -> None:
        plain = [sys.executable, program, str(scale)]
        began_s = time.monotonic()
        expected = subprocess.run(plain, capture_output=True, text=True, check=True, timeout=300).stdout
        takes_s = time.monotonic() - began_s
        job = start(program, scale, ranks=1, every=every, max_restarts=2 * kills, name=f"job-{scale}")
        for kill in range(kills):
            job.wait_event("committed", len(job.events("committed")) + 1)
            job.kill_rank(0)
            job.wait_event("restarted", kill + 1)
        # one that was made longer may have minutes of its work left behind the last kill
        assert job.finish(PATIENCE_S + 3 * takes_s) == 0, job.report()
        assert job.output(0) == expected
        assert all(event["from_epoch"] for event in job.events("restarting")), job.report()
        assert not job.events("line-unusable") and not job.events("starting-over"), job.report()

    long_enough(kills + more_loops, attempt)


def jobs_fixture(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Body of the `start` fixture: start(app, ranks=…, every=…, …) -> Job; all are ended afterwards."""
    started: list[Job] = []

    def start(
        app: Path | str | None,
        *arguments: object,
        ranks: int = 4,
        name: str = "job",
        env: dict[str, str] | None = None,
        within: tuple[str, ...] = (),
        **options: object,
    ) -> Job:
        flags: list[object] = ["-n", ranks]
        for option, value in options.items():
            flags.append("--" + option.replace("_", "-"))
            if value is not True:
                flags.append(value)
        if app is not None:
            flags += ["--", app, *arguments]
        job = Job(tmp_path / name, *flags, env=env, within=within)
        started.append(job)
        return job

    yield start
    for job in started:
        job.close()
