"""The trial of `ckpt doctor`: runs the program for some seconds, takes images, restores each one, and collects the facts.

The trial uses a job of its own in a temporary directory, and the `ckpt` command itself: `run` (with the rank of
`ckpt.doctor`, no restarts, all checkpoints kept), `checkpoint` at a few moments, and `stop`; then, for each checkpoint,
`restart` and `stop`. The newest one is restored first, because with `--files off` a restart cuts files back to the length
they had. Before the first `stop`, the trial waits until the ranks have made the examinations that were due in the time, at
most `_EXAMINED_LIMIT_S`: otherwise a program that was never examined would be reported as healthy. A restored program runs
until it ends, until each rank has printed more than in the first run, or for as long as the first run ran after the image
(and `_RESTORED_LONGER_S`). Then the output of both runs is compared, and a restored program that printed nothing, where the
first run went on printing, is a failure.

If a restored run differs, the program is restored once more from the same image, to tell lost state from chance. Files of
the program are compared too, if the program ends by itself (`ckpt.controller.doctor.compare`). At the end all processes are
ended, and the temporary directory is removed. Other effects of the program outside are not undone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.controller.doctor.compare import (
    MovedFiles,
    Outputs,
    contents,
    is_laid_out_anew,
    judge,
    judge_files,
    present,
    put_back,
    written,
)
from ckpt.controller.doctor.facts import OUTPUT_BYTES, tail
from ckpt.controller.doctor.files import FilesOfTrial
from ckpt.controller.errors import LaunchFailed, NoSuchJob
from ckpt.controller.launch.whereabouts import location_of, runtime_of
from ckpt.controller.service.clients import ask
from ckpt.controller.supervision.history import summarise
from ckpt.transport.records import dataclass

if TYPE_CHECKING:
    from ckpt.store import JobDirectory

_ENTRIES = ("ckpt.doctor.rank:run_rank", "ckpt.doctor.rank:run_restored_rank")
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 20.0
_EXAMINED_LIMIT_S = 30.0
_FIRST_IMAGE_S = 0.1
_POLL_S = 0.02
_RESTORED_LONGER_S = 1.0


@dataclass(frozen=True)
class Options:
    """Options of a trial: the program's words, how long it runs (seconds), the number of images, the number of ranks,
    which files restarts put back (as in `ckpt run`), and how many bytes of copies are kept for that."""

    program: Sequence[str]
    seconds: float = 3.0
    images: int = 3
    ranks: int = 1
    files: Sequence[str] = ("auto",)
    files_limit: int | None = None


def try_program(options: Options) -> dict[str, Any]:
    """The facts, in the form for `ckpt.controller.doctor.report`. Raises LaunchFailed when the program cannot be started."""
    from ckpt.image import available

    supported, why = available()
    if not supported:
        return {"program": list(options.program), "unsupported": why}
    directory = tempfile.mkdtemp(prefix="ckpt-doctor-")
    trial = _Trial(options, directory)
    try:
        return trial.run()
    finally:
        trial.close()
        shutil.rmtree(directory, ignore_errors=True)


class _Trial:
    """One trial in one temporary directory."""

    def __init__(self, options: Options, directory: str) -> None:
        self.options = options
        self.directory = directory
        self.job_path = os.path.join(directory, "job")
        self.job: JobDirectory | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.files: dict[str, bytes] = {}
        """Files under the working directory as the first run left them; empty if that run did not end with code 0."""
        self.moved_files = MovedFiles(os.getcwd(), os.path.join(directory, "moved"))
        self.present: set[str] = set()
        self.first_sizes: dict[int, int] = {}
        self.not_compared: list[str] = []

    def run(self) -> dict[str, Any]:
        options = self.options
        started_s = time.monotonic()
        since_ns = time.time_ns()
        self._start(
            "run", "-n", options.ranks, "--job", self.job_path, "--keep", 1_000_000, "--max-restarts", 0,
            "--timeout", max(options.seconds, 2.0), "--image-mode", "fork",
            *self._files_options(), "--entry", _ENTRIES[0], "--", *options.program,
        )  # fmt: skip
        self._wait(lambda: bool(self._events("running")), _START_LIMIT_S)
        if self.job is None:
            raise LaunchFailed(f"the program could not be started: {self._stderr()}")
        images = list(self._take_images())
        self._wait(self._is_examined, _EXAMINED_LIMIT_S)
        ended = self._ended()
        ran_s = time.monotonic() - started_s
        code = self._stop()
        done, processes = self._files_of_trial(), self._events("process-started")
        not_undone, left_files = done.not_undone(), done.notes()
        first, self.first_sizes = self._outputs(), self._output_sizes()
        error = self._error()
        if ended and code == 0:
            self.files, self.not_compared = written(os.getcwd(), since_ns, done.changed())
            self.present = present(os.getcwd())
        restarts = [
            self._examine(image, ran_s, first, code if ended else None)
            for image in sorted((i for i in images if i["ok"]), key=lambda image: -image["epoch"])
        ]
        put_back(os.getcwd(), self.files)
        return {
            "program": list(options.program),
            "unsupported": "",
            "ran_s": round(ran_s, 2),
            "ended_by_itself": ended,
            "exit_code": code,
            "error": error,
            "images": images,
            "restarts": restarts,
            "not_compared": self.not_compared,
            "laid_out_anew": sorted(name for name, data in self.files.items() if is_laid_out_anew(data)),
            "files": "auto" if done.is_on else "off",
            "not_undone": not_undone,
            "left_files": left_files,
            "processes": [{name: each.get(name, "") for name in ("command", "where")} for each in processes],
            "cut_outputs": [rank for rank, size in self.first_sizes.items() if size > OUTPUT_BYTES],
            "ranks": self._lines_of_ranks(),
        }

    # ---- processes ---------------------------------------------------------------------------------------

    def _start(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "ckpt", *map(str, arguments)]
        with open(os.path.join(self.directory, "stderr"), "wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )

    def _ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def _wait(self, is_there: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `is_there()` is true, the process has ended, or `limit_s` has passed; returns `is_there()`."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if is_there():
                return True
            if self._ended():
                return is_there()
            time.sleep(_POLL_S)
        return False

    def _stop(self) -> int:
        """End the job: ask its controller, then kill the command. Returns the exit code."""
        assert self.process is not None
        if not self._ended() and self.job is not None:
            with contextlib.suppress(NoSuchJob, TimeoutError, OSError):
                ask(runtime_of(self.job), {"do": "stop"}, _STOP_LIMIT_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(_STOP_LIMIT_S)
        self.process.kill()
        return self.process.wait()

    def close(self) -> None:
        """End all processes of the trial, move files back, and remove the directory with the sockets."""
        if self.process is not None and not self._ended():
            self._stop()
        self.moved_files.move_back()
        self._open_job()
        if self.job is None:
            return
        from ckpt.controller.launch.local import fence_survivor

        history = summarise(self.job.events.read().events)
        location, _ = location_of(self.job)
        runtime_directory = "" if location is None else location.runtime
        with contextlib.suppress(OSError):
            agent = [] if history.agent is None else [history.agent]
            marks = [each.mark for each in agent]
            fence_survivor(runtime_directory, 1 << 30, [*agent, *history.processes], marks)
        shutil.rmtree(runtime_directory, ignore_errors=True)

    # ---- the first run -----------------------------------------------------------------------------------

    def _take_images(self) -> Iterator[dict[str, Any]]:
        """Take checkpoints at moments spread evenly over the time of the trial, until the program ends."""
        options = self.options
        begun_s = time.monotonic()
        last = max(1, options.images)
        moments = [
            _FIRST_IMAGE_S + index * (options.seconds - _FIRST_IMAGE_S) / last for index in range(last)
        ]
        for moment in moments:
            self._wait(lambda until=begun_s + moment: time.monotonic() >= until, options.seconds)  # type: ignore[misc]
            if self._ended():
                return
            image = self._take_image()
            if image is not None:
                yield {"t_s": round(time.monotonic() - begun_s, 2), **image}
        self._wait(lambda: time.monotonic() - begun_s >= options.seconds, options.seconds)

    def _take_image(self) -> dict[str, Any] | None:
        """Take one checkpoint; None: the program has ended meanwhile."""
        assert self.job is not None
        limit_s = max(self.options.seconds, 2.0) + _STOP_LIMIT_S
        try:
            answer = ask(runtime_of(self.job), {"do": "checkpoint", "wait": True}, limit_s)
        except NoSuchJob:
            return None
        except TimeoutError:
            return {"ok": False, "reason": "the controller did not answer"}
        if answer["ok"] and "epoch" in answer:
            return {"ok": True, "epoch": answer["epoch"], "ms": answer["ms"], "bytes": answer["bytes"]}
        # A job that ends answers its last request with a failure, which says nothing about images.
        if self._wait(self._ended, 1.0) and not self._events("round-aborted", epoch=answer.get("epoch")):
            return None
        return {"ok": False, "reason": str(answer.get("reason"))}

    def _is_examined(self) -> bool:
        """Has every rank made the examinations that are due in the time of the trial?

        On a slow machine, or in a program with many objects, examinations come later.
        """
        from ckpt.doctor.watch import examinations_due

        due = examinations_due(self.options.seconds)
        return all(
            sum(line["kind"] in ("examination", "trouble") for line in lines) >= due
            for lines in self._lines_of_ranks().values()
        )

    # ---- life after an image -----------------------------------------------------------------------------

    def _examine(
        self, image: dict[str, Any], ran_s: float, first: dict[int, bytes], first_code: int | None
    ) -> dict[str, Any]:
        """Restore the program from one image, let it run, and compare; do so a second time if there is a difference.

        `ran_s`: how long the first run took; `first`: its output by rank; `first_code`: its exit code, None if stopped.
        """
        result, outputs, files = self._restore(image, ran_s, first_code)
        whole = result["ended"] and first_code == 0
        self._compare(result, first, outputs, None, files, None, whole=whole)
        if result["ok"] and result["unsure"]:
            again, outputs_again, files_again = self._restore(image, ran_s, first_code)
            whole = whole and again["ended"]
            self._compare(result, first, outputs, outputs_again, files, files_again, whole=whole)
        return result

    def _compare(
        self, result: dict[str, Any], first: Outputs, once: Outputs, twice: Outputs | None,
        files: Outputs, files_twice: Outputs | None, *, whole: bool,
    ) -> None:  # fmt: skip
        alike, unsure = judge(first, once, twice, whole=whole)
        also: list[str] = []
        if whole and alike is None:
            alike, unsure_file, also = judge_files(self.files, files, files_twice)
            unsure = unsure or unsure_file
        result.update(differs=alike, unsure=unsure, also=also)

    def _restore(
        self, image: dict[str, Any], ran_s: float, first_code: int | None
    ) -> tuple[dict[str, Any], dict[int, bytes], Outputs]:
        """Restart from one image and let the program run: (result, its output by rank, contents of its files)."""
        put_back(os.getcwd(), self.files)
        since_ns = time.time_ns()
        epoch = image["epoch"]
        self._start("restart", f"{self.job_path}@{epoch}", "--max-restarts", 0, "--entry", _ENTRIES[1])
        before = len(self._events("restarted"))
        begun_s = time.monotonic()
        came_up = self._wait(lambda: len(self._events("restarted")) > before, _START_LIMIT_S)
        up_s = time.monotonic()
        at_first = self._output_sizes()
        limit_s = max(0.0, ran_s - image["t_s"]) + _RESTORED_LONGER_S
        if came_up:
            self._wait(self._has_printed, limit_s)
        ended = self._ended()
        code = self._stop()
        now, sizes = self._outputs(), self._output_sizes()
        result = {
            "epoch": epoch,
            "ok": True,
            "reason": "",
            "restored_ms": round((up_s - begun_s) * 1000, 1),
            "ended": ended,
            "differs": None,
            "unsure": None,
            "also": [],
        }
        silent = [rank for rank, size in sizes.items() if size <= at_first[rank] < self.first_sizes[rank]]
        if silent and not ended:
            text = f"rank {silent[0]} printed nothing for {limit_s:.1f} s, where the first run had gone on printing"
            result.update(ok=False, reason=text)
        if not came_up or (ended and code != 0 and code != first_code):
            result.update(ok=False, reason=self._error() or f"it ended with exit code {code}")
        is_compared = ended and self.present
        made = {}
        if is_compared:
            made = written(os.getcwd(), since_ns, self._files_of_trial().changed(), self.present)[0]
        files = {**contents(os.getcwd(), self.files), **made}
        self.moved_files.move_away(made)
        return result, now, files

    def _has_printed(self) -> bool:
        """Has every rank printed more bytes than in the first run?"""
        return all(size > self.first_sizes[rank] for rank, size in self._output_sizes().items())

    # ---- files of the trial's job ------------------------------------------------------------------------

    def _open_job(self) -> None:
        if self.job is None and os.path.exists(os.path.join(self.job_path, "job.json")):
            from ckpt.store import JobDirectory

            self.job = JobDirectory.open(self.job_path)

    def _files_of_trial(self) -> FilesOfTrial:
        return FilesOfTrial(self.job, self.options.files, self._events)

    def _files_options(self) -> list[object]:
        words: list[object] = [part for word in self.options.files for part in ("--files", word)]
        return (
            words if self.options.files_limit is None else [*words, "--files-limit", self.options.files_limit]
        )

    def _events(self, name: str, **fields: object) -> list[Any]:
        self._open_job()
        if self.job is None:
            return []
        events = self.job.events.read().events
        return [
            event
            for event in events
            if event.get("event") == name and all(event.get(key) == value for key, value in fields.items())
        ]

    def _outputs(self) -> dict[int, bytes]:
        return {rank: self._read_output(rank, "out") for rank in range(self.options.ranks)}

    def _read_output(self, rank: int, stream: str) -> bytes:
        assert self.job is not None
        try:
            with open(self.job.output_path(rank, stream), "rb") as file:
                return file.read(OUTPUT_BYTES)
        except FileNotFoundError:
            return b""

    def _output_sizes(self) -> dict[int, int]:
        return {rank: self._output_size(rank) for rank in range(self.options.ranks)}

    def _output_size(self, rank: int) -> int:
        assert self.job is not None
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(self.job.output_path(rank, "out"))
        return 0

    def _error(self) -> str:
        """The last lines of the newest failure: a rank's traceback, or else the controller's standard error."""
        failed = self._events("rank-failed")
        text = failed[-1].get("traceback", "") if failed else ""
        return tail(text or self._stderr())

    def _stderr(self) -> str:
        with open(os.path.join(self.directory, "stderr"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def _lines_of_ranks(self) -> dict[int, list[dict[str, Any]]]:
        found: dict[int, list[dict[str, Any]]] = {}
        for rank in range(self.options.ranks):
            path = os.path.join(self.job_path, "doctor", f"rank-{rank}.jsonl")
            try:
                with open(path, encoding="utf-8") as file:
                    found[rank] = [json.loads(line) for line in file if line.endswith("\n")]
            except FileNotFoundError:
                found[rank] = []
        return found
