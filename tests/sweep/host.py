"""The other end of a rank's control channel: stands for agent and controller of a one-rank job, so that one process can
take many images of one run and resume every one of them.

    python -c "from tests.sweep import host; host.main()" < {"verb": …}          prints one JSON object

    verb      keys                                       result
    images    directory, argv, moments or places         {"code", "images", "failed", …}
    resume    directory, epoch, attempt, …               the same, from an image
    refusals  directory, argv, every or interval_s       {"code", "checks", "tries", "refused_tries", "reasons", "longest"}

Everything below is the product's: the rank is forked by the agent's own function from a process that has preloaded what
ranks need; ``ckpt.rank.boot.run_rank`` makes it a rank; :class:`ckpt.capture.imager.Imager` takes images into the store in
forked children, each committed here by the store's own functions; a resumed rank goes through ``run_rank`` again, after the
files have been put back with ``puts_back`` (then images are resumed the newest first). Only *when* images are taken is ours.
``moments`` are seconds from the rank's start, when a checkpoint is commanded as a controller does it. ``places`` are numbers
of checks of the interpreter (the moments between two instructions at which it looks for pending calls), counted from the
program's start; slower, but the same every time. An image that is refused there is tried again at the checks that follow, as
in the product.

In the rank nothing of this module is left in ``sys.modules``: whatever a user's process has there would be part of an image.
"""

from __future__ import annotations

import _thread
import functools
import json
import os
import select
import shutil
import signal
import sys
import time
from collections import Counter
from typing import Any

from ckpt import image
from ckpt.controller.launch.forked import BUFFER_BYTES, ForkedRank, fork_rank
from ckpt.controller.supervision import messages
from ckpt.image.frames import _frames
from ckpt.rank import boot
from ckpt.rank.runtime import Runtime
from ckpt.store import ControlFile, JobDirectory, RankEntry, write_control
from ckpt.store.disk.privacy import make_runtime_directory
from ckpt.undo.restart.restoring import undo
from ckpt.undo.selection.patterns import AUTO

try:
    import ticks  # built by tests.sweep.fetch for this interpreter
except ImportError:
    ticks = None

_PATIENCE_S = 300.0
"""For a run; three times as long for one that hardly gets a processor."""
_LOCK_S = 0.5
_CHECKS_LATER = 97
_TRIES_OF_LENGTH = 256
"""Of a slow program: after a refusal has lasted n checks, the next try is n divided by this later."""


class Places:
    """In the rank: takes an image at each of the checks whose numbers are given."""

    def __init__(self, places: list[int], runtime: Runtime) -> None:
        self.places = sorted(places)
        self.number = 0
        self.asked = 0  # the epoch that is wanted, and not yet taken
        self.runtime = runtime
        self.refused: Counter[str] = Counter()

    def start(self) -> None:
        if self.places:
            ticks.start(self.at_check, self.places[0])

    def at_check(self, number: int) -> int:
        if not self.places or number < self.places[0]:
            return self.places[0] if self.places else -1
        self.number = number
        _frames.request(self.take)
        return number + 1

    def take(self) -> None:
        runtime, imager = self.runtime, self.runtime.imager
        if self.asked and imager.epoch >= self.asked:
            self.taken()  # by a check that the helper thread has asked for
            return
        if imager.wanted == imager.epoch:
            self.asked = imager.epoch + 1
            imager.want(self.asked)
        # The helper thread may have it, and be waiting for the interpreter: a short program would be through meanwhile.
        if not runtime.lock.acquire(timeout=_LOCK_S):
            return
        try:
            if not imager.take("check"):
                self.refused[str(imager.search.reason)] += 1
                return
        finally:
            runtime.lock.release()
        self.taken()

    def taken(self) -> None:
        runtime, imager = self.runtime, self.runtime.imager
        self.asked = 0
        self.places = [place for place in self.places if place > self.number]
        runtime.control.send({"m": "event", "event": "place", "epoch": imager.epoch, "check": self.number})
        while imager.taker.is_writing:  # one round at a time, as a controller has it
            imager.taker.reap()
            time.sleep(0.0005)

    def end(self) -> None:
        self.places.clear()
        self.runtime.control.send(
            {"m": "event", "event": "end", "checks": ticks.count(), "refused": dict(self.refused)}
        )


class Refusals:
    """In the rank: tries a capture at every n-th check, or at intervals; where one is refused, at every check until one
    is not (at intervals: the longer it lasts the less often).

    Counting checks makes a program of hundreds of millions of them many times slower: at intervals only those of a refusal
    are counted. Times are of computing, the program's own: what is spent here is taken off.
    """

    def __init__(self, every: int | None, interval_s: float | None, runtime: Runtime) -> None:
        self.every, self.interval_s = every, interval_s
        self.runtime = runtime
        self.tries = self.refused_tries = self.row = self.next = self.number = 0
        self.reasons: Counter[str] = Counter()
        self.spent_ns = self.row_began_ns = 0
        self.longest = {"checks": 0, "ns": 0, "reason": ""}
        self.reason = ""
        self.step = 1  # checks from one try of a refusal to the next
        self.counts_checks = False  # with interval_s: from a try on until the refusal, if it is one, is over

    def start(self) -> None:
        if self.every is not None:
            ticks.start(self.at_check, self.every)
        else:
            _thread.start_new_thread(self.at_intervals, ())

    def at_check(self, number: int) -> int:
        if number < self.next:
            return self.next
        # The interpreter's end makes all calls that are queued, new ones too
        if self.runtime.finished_code is not None:
            return -1
        self.number = number
        _frames.request(self.timed_try)
        self.next = (number // self.every + 1) * self.every
        return number + 1  # one_try has been called by then, and has said whether that is soon enough

    def at_intervals(self) -> None:
        while True:
            time.sleep(self.interval_s)
            if not self.counts_checks:
                self.counts_checks = True
                _frames.request(self.count_checks)

    def count_checks(self) -> None:
        """The program lets go of the interpreter at few places, and is there now: the try comes some checks later."""
        ticks.start(self.at_check_after_interval, _CHECKS_LATER)

    def at_check_after_interval(self, number: int) -> int:
        is_first = number == _CHECKS_LATER
        self.counts_checks = is_first or self.row > 0
        if not self.counts_checks:
            self.step = 1
            return -1
        _frames.request(functools.partial(self.try_now, is_first))
        self.step = 1 + self.row // _TRIES_OF_LENGTH
        return number + self.step

    def timed_try(self) -> None:
        self.try_now(self.number % self.every == 0)
        if self.row:
            self.next = 0

    def try_now(self, counts: bool = False) -> None:
        began_ns = time.thread_time_ns()
        self.one_try(began_ns - self.spent_ns, counts)
        self.spent_ns += time.thread_time_ns() - began_ns

    def one_try(self, now_ns: int, counts: bool) -> None:
        self.tries += counts
        try:
            image.capture(at="check")
        except image.Refused as refusal:
            if counts:
                self.refused_tries += 1
                self.reasons[refusal.reason] += 1
            if not self.row:
                self.row_began_ns, self.reason = now_ns, f"{refusal.reason} ({refusal.where})"
            self.row += self.step
            return
        self.end_row(now_ns)

    def end_row(self, now_ns: int) -> None:
        if self.row > self.longest["checks"]:
            self.longest = {"checks": self.row, "ns": now_ns - self.row_began_ns, "reason": self.reason}
        self.row = 0

    def end(self) -> None:
        self.end_row(time.thread_time_ns() - self.spent_ns)
        self.runtime.control.send(
            {
                "m": "event",
                "event": "end",
                "checks": None if self.every is None else ticks.count(),
                "tries": self.tries,
                "refused_tries": self.refused_tries,
                "reasons": dict(self.reasons),
                "longest": self.longest,
            }
        )


# ---------------------------------------------------------------------- the rank


def _watched(make: Any, watch: Any) -> Any:
    """``ckpt.rank.boot``'s maker of the function that runs the program, with ``watch`` started just before it."""

    def maker(runtime: Runtime, job: Any) -> Any:
        run = make(runtime, job)
        if watch is None:
            return run
        watcher = watch(runtime)

        def begin() -> object:
            watcher.start()
            try:
                return run()
            finally:
                watcher.end()

        return begin

    return maker


def _entry(watch: Any) -> Any:
    def become_rank(spec: dict[str, Any], control_fd: int) -> Any:
        boot._fresh, boot._resumed = _watched(boot._fresh, watch), _watched(boot._resumed, watch)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        sys.modules["__main__"].__dict__.clear()
        boot.run_rank(spec, control_fd)

    return become_rank


# ---------------------------------------------------------------------- agent and controller


class Host:
    """One job of one rank, whose process is forked from here."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.moments: list[float] = sorted(task.get("moments", ()))
        self.epoch = task.get("epoch") or 0
        self.is_idle = True  # no round is open
        self.decided = 0  # the newest epoch that was voted for or failed
        self.began = self.stopped = 0.0
        self.path = os.path.join(task["directory"], "job")

    def run(self, *, resume: int | None, attempt: int, watch: Any) -> dict[str, Any]:
        if os.path.isdir(self.path):
            job = JobDirectory.open(self.path)
        else:
            job = JobDirectory.create(
                self.path, command=self.task["argv"], size=1, hash_seed=int(os.environ["PYTHONHASHSEED"])
            )
        spec = {
            "rank": 0,
            "size": 1,
            "local_rank": 0,
            "local_size": 1,
            "job_id": job.job_id,
            "job_dir": job.path,
            "runtime_dir": make_runtime_directory(),
            "argv": self.task.get("argv"),
            "incarnation": attempt,
            "restarts": attempt,
            "resume": resume,
            "epoch": resume or 0,
            "options": {"mpi4py": False, **self.files(job, resume)},
        }
        rank = fork_rank(spec, _entry(watch), lambda: None)
        try:
            return self.attend(job, rank)
        finally:
            rank.close()
            shutil.rmtree(spec["runtime_dir"], ignore_errors=True)

    def files(self, job: JobDirectory, resume: int | None) -> dict[str, Any]:
        """Options of a rank whose changes of files are recorded, and that finds them as they were at its image."""
        if not self.task.get("puts_back"):
            return {}
        recorded = {"files": AUTO, "files_directory": os.getcwd()}
        if resume is None:
            return recorded
        restored = undo(job.path, job.key, resume, highest=self.task["highest"], from_start=True)
        paths = [problem.path for problem in restored.problems]
        chosen = [list(each) for each in restored.chosen]
        return {
            **recorded,
            "files_put_back": "" not in paths,
            "files_problems": paths,
            "files_recorded": chosen,
        }

    def attend(self, job: JobDirectory, rank: ForkedRank) -> dict[str, Any]:
        """Do an agent's and a controller's part until the rank has ended."""
        result: dict[str, Any] = {"images": [], "failed": [], "refused": {}}
        poll = select.poll()
        poll.register(rank.control, select.POLLIN)
        poll.register(rank.pidfd, select.POLLIN)
        buffer = bytearray(BUFFER_BYTES)
        deadline = time.monotonic() + _PATIENCE_S
        last_deadline = deadline + 2 * _PATIENCE_S
        while rank.is_alive:
            wait_s = deadline - time.monotonic()
            if wait_s <= 0 and deadline < last_deadline and computed_s(rank.pid) < _PATIENCE_S / 2:
                deadline = last_deadline  # it hardly got a processor
            elif wait_s <= 0:
                os.kill(rank.pid, signal.SIGKILL)
                result["failed"].append(f"not finished within {_PATIENCE_S} s")
                deadline = time.monotonic() + _PATIENCE_S
            elif self.is_idle and self.moments and self.began:
                wait_s = min(wait_s, self.began + self.moments[0] - time.monotonic())
                if wait_s <= 0:
                    self.moments.pop(0)
                    self.is_idle = False
                    self.epoch += 1
                    rank.send(messages.encode(messages.checkpoint(self.epoch, "fork")))
                    wait_s = _PATIENCE_S
            events = dict(poll.poll(max(0.0, 1000 * wait_s)))
            while data := rank.receive(buffer):
                self.hear(job, rank, messages.parse_rank(messages.decode(data)), result)
            if rank.pidfd in events:
                rank.status = os.waitstatus_to_exitcode(os.waitpid(rank.pid, 0)[1])
        result["code"] = rank.status
        result["wanted"] = len(result["images"]) + len(result["failed"]) + (not self.is_idle)
        return result

    def stop(self, rank: ForkedRank) -> None:
        """The program stands still while its image is written: else a short one would have ended before the next."""
        self.stopped = time.monotonic()
        os.kill(rank.pid, signal.SIGSTOP)

    def go_on(self, rank: ForkedRank) -> None:
        if self.stopped:
            self.began += time.monotonic() - self.stopped
            self.stopped = 0.0
            os.kill(rank.pid, signal.SIGCONT)
        self.is_idle = True

    def hear(
        self, job: JobDirectory, rank: ForkedRank, packet: dict[str, Any], result: dict[str, Any]
    ) -> None:
        match packet["m"]:
            case "hello":
                rank.send(messages.encode(messages.table({0: (rank.incarnation, packet["address"])})))
                self.began = time.monotonic()
            case "captured":
                result["waited_ns"] = max(result.get("waited_ns", 0), packet["waited_ns"])
                # where places are given it waits by itself; the child's vote may have overtaken this
                if "places" not in self.task and packet["epoch"] > self.decided:
                    self.stop(rank)
            case "refused":
                result["refused"][packet["reason"]] = result["refused"].get(packet["reason"], 0) + 1
            case "voted":
                self.decided = packet["epoch"]
                self.go_on(rank)
                commit(job, packet, rank.incarnation)
                result["images"].append({"epoch": packet["epoch"], "bytes": packet["bytes_raw"]})
            case "failed":
                self.decided = packet["epoch"]
                self.go_on(rank)
                result["failed"].append(f"{packet['reason']} ({packet.get('where')})")
            case "finished":
                result["wall_s"] = time.monotonic() - self.began
                self.moments.clear()
                rank.send(messages.encode(messages.release()))
            case "error":
                result["error"] = packet.get("traceback")
            case "event" if packet["event"] == "place":
                result.setdefault("places", {})[packet["epoch"]] = packet["check"]
            case "event" if packet["event"] == "end":
                result.update({key: packet[key] for key in packet if key not in ("m", "event")})


def computed_s(pid: int) -> float:
    """Processor time that the process has had, in seconds (proc(5), stat)."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def commit(job: JobDirectory, vote: dict[str, Any], attempt: int) -> None:
    """Make the vote of the only rank a committed line."""
    entry = RankEntry(
        rank=0,
        incarnation=attempt,
        label=(vote["label"][0], vote["label"][1]),
        manifest=os.path.relpath(os.path.join(job.path, vote["manifest"]), job.path),
        digest=vote["digest"],
        bytes_raw=vote["bytes_raw"],
        bytes_written=vote["bytes_written"],
        vectors={},
    )
    write_control(
        job,
        ControlFile(
            epoch=vote["epoch"], previous=vote["label"][0], incarnation=attempt, generation=0, ranks=[entry]
        ),
    )


def main() -> None:
    """One line of JSON in, one out, until the input ends."""
    boot.preload()
    for line in sys.stdin:
        task = json.loads(line)
        host = Host(task)
        watch: Any = None
        if task["verb"] == "refusals":
            watch = functools.partial(Refusals, task.get("every"), task.get("interval_s"))
        elif "places" in task:
            watch = functools.partial(Places, task["places"])
        result = host.run(resume=task.get("epoch"), attempt=task.get("attempt", 0), watch=watch)
        print(json.dumps(result), flush=True)
