"""The watch on a rank: samples of where it could be captured, and examinations in forked children. (driver)

A thread asks the interpreter for a check every `_PERIOD_S`; the thread does not ask again before the check has been made.
The check runs in the main thread between two instructions: it captures the stack and discards the result. This is a
*sample*. Its result is one of

    captured      an image of the program could have been taken here
    in_library    the program is inside a call of this library, which takes images when it waits
    refused       the stack cannot be captured here. Samples in a row with the same reason and place are one refusal; the
                  duration of the longest is kept

A sample is *late* if the check came more than `_LATE_S` after the request: the program was in a long call into C.

At the moments in `_EXAMINATIONS_S`, and every ten seconds after those, an *examination* is due: the rank forks, and the
child writes its findings. The examination takes place at the next sample with result `captured`, or, after `_PATIENCE_S`,
at any sample: then the child has no captured stack, only the variables of the program's frames. No examination takes place
while a module is being imported, since its variables are incomplete. A child that takes longer than `_CHILD_LIMIT_S` is
killed.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import takewhile
from types import FrameType
from typing import TYPE_CHECKING, Any

from ckpt.capture.places import is_library, library_caller, wake_main_thread
from ckpt.capture.threads import is_left_out
from ckpt.compat.children import tracker_in_use
from ckpt.doctor import surroundings
from ckpt.doctor.changes import Changes
from ckpt.image.files.descriptors import our_files
from ckpt.image.interface.library import merged
from ckpt.image.interface.registry import libraries
from ckpt.transport.wires import owned

if TYPE_CHECKING:
    from ckpt import image
    from ckpt.image.frames.stack import Stack
    from ckpt.rank.runtime import Runtime

__all__ = ["THREAD_NAME", "Watch", "directory_of", "examinations_due"]

THREAD_NAME = "ckpt-doctor"
_PERIOD_S = 0.01
_LATE_S = 0.25
_EXAMINATIONS_S = (0.05, 0.3, 1.0, 2.0, 4.0, 7.0)
_EXAMINATION_EVERY_S = 10.0
_CHILD_LIMIT_S = 30.0
_PATIENCE_S = 1.0
_REFUSALS_KEPT = 50
_IMPORTING = ("a module is being imported", "")
_DIRECTORY = "doctor"


def directory_of(runtime: Runtime) -> str:
    """Where the ranks write what they find."""
    directory = os.path.join(runtime.spec["job_dir"], _DIRECTORY)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return directory


class Watch:
    """Samples and examinations of one rank. The object is made before the program begins; `start` returns at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        directory = directory_of(runtime)
        self._file = os.open(
            os.path.join(directory, f"rank-{runtime.rank}.jsonl"),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
            0o600,
        )
        self._changes = Changes(directory, runtime.rank)
        self._own_descriptors = surroundings.descriptors()
        self._started_s = time.monotonic()
        self._asked_s = 0.0
        self._is_asked = False
        self._taken = self._captured = self._in_library = 0
        # (reason, place): number of samples, longest duration in seconds
        self._refused: dict[tuple[str, str], list[float]] = {}
        self._run: tuple[tuple[str, str], float] | None = None  # refusal of the last samples, and since when
        self._late: dict[str, Any] = {"samples": 0, "longest_s": 0.0, "where": ""}
        self._examinations = iter(_moments())
        self._next_s = next(self._examinations)
        self._child: tuple[int, float] | None = None

    def start(self) -> None:
        self._changes.watch()
        thread = threading.Thread(target=self._loop, name=THREAD_NAME, daemon=True)
        thread.start()
        owned.note_thread(thread)

    # ------------------------------------------------------------------ the thread

    def _loop(self) -> None:
        from ckpt.image.frames import _frames

        written_s = 0.0
        while self._runtime.finished_code is None:
            time.sleep(_PERIOD_S)
            now_s = time.monotonic()
            if not self._is_asked:
                self._is_asked, self._asked_s = True, now_s
                _frames.request(self._at_check)
                wake_main_thread()
            elif now_s - self._asked_s > max(_LATE_S, self._late["longest_s"]):
                self._late.update(longest_s=now_s - self._asked_s, where=self._runtime.imager.where())
            self._watch_child(now_s)
            if now_s - written_s > 0.2:
                written_s = now_s
                self._write_samples()
        self._write_samples()

    def _watch_child(self, now_s: float) -> None:
        if self._child is None:
            return
        pid, since_s = self._child
        try:
            done, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            done = pid  # the program's own os.wait() was faster
        if done:
            self._child = None
        elif now_s - since_s > _CHILD_LIMIT_S:
            os.kill(pid, signal.SIGKILL)
            self._write("trouble", text=f"an examination took more than {_CHILD_LIMIT_S:g} s")

    # ------------------------------------------------------------------ the check

    def _at_check(self) -> None:
        """Take a sample; start an examination that is due. Called in the main thread, between two instructions."""
        self._is_asked = False
        now_s = time.monotonic()
        self._taken += 1
        if now_s - self._asked_s > _LATE_S:
            self._late["samples"] += 1
        stack: Stack | None = None
        key = None
        if library_caller() is not None:
            self._in_library += 1
        else:
            stack, key = self._sample()
        self._count(key, now_s)
        overdue_s = now_s - self._started_s - self._next_s
        if overdue_s < 0 or self._child is not None or key == _IMPORTING:
            return
        others = self._stop_others(stack)
        if others is not None or overdue_s > _PATIENCE_S:
            self._next_s = next(self._examinations)
            self._examine(stack, others)

    def _sample(self) -> tuple[Stack | None, tuple[str, str] | None]:
        from ckpt import image

        try:
            stack = image.capture(at="check", skip=(Watch._sample.__code__, Watch._at_check.__code__))
        except image.Refused as refused:
            if _is_importing():
                return None, _IMPORTING
            return None, (refused.reason, refused.where)
        except image.ImageError as failure:
            return None, (str(failure), "")
        self._captured += 1
        return stack, None

    def _count(self, key: tuple[str, str] | None, now_s: float) -> None:
        if self._run is not None and self._run[0] != key:
            self._run = None
        if key is None or (key not in self._refused and len(self._refused) >= _REFUSALS_KEPT):
            return
        if self._run is None:
            self._run = (key, now_s)
        entry = self._refused.setdefault(key, [0, 0.0])
        entry[0] += 1
        entry[1] = max(entry[1], now_s - self._run[1])

    # ------------------------------------------------------------------ examinations

    def _examine(self, stack: Stack | None, others: image.StoppedThreads | None) -> None:
        """Fork a child that examines the program. The parent stops for about a millisecond, as for an image.

        ``stack``: the captured stack; ``None``: it cannot be captured here. ``others``: the program's other threads, which
        stand; ``None``: one of them cannot be captured here.
        """
        from ckpt import image
        from ckpt.image.frames import _frames

        runtime = self._runtime
        pids, descriptors = self._coming_back()  # asked here: in the child no thread counts as alive
        without = runtime.imager.taker.writers | pids
        found = {
            "children": surroundings.children(os.getpid(), without=without),
            "has_hooks": bool(runtime.hooks.after),
            "types": [f"{cls.__module__}.{cls.__qualname__}" for cls, _, _ in runtime.hooks.types],
            "threads": surroundings.threads(runtime, undeclared=(THREAD_NAME,)),
        }
        try:
            libraries.copied_maps()  # what is named there is copied
            libraries.copy_out(is_writing=True, available=lambda: None)
            prepared = image.prepare(
                stack, {"ckpt.registered": runtime.registered, "ckpt.hooks": runtime.hooks}
            )
            pid = image.fork(prepared.noted, others)
        except Exception as failure:  # for example a file that cannot be flushed, or no memory for a fork
            pid = -1
            self._write("trouble", **trouble(failure))
        if pid:
            libraries.let_copies_go()
            if others is not None:
                others.go_on()
            self._child = None if pid < 0 else (pid, time.monotonic())
            return
        try:
            gc.disable()
            _frames.pdeathsig(signal.SIGKILL)
            self._examine_in_child(prepared, stack, found, {*our_files(), *descriptors})
        except BaseException as failure:
            self._write("trouble", **trouble(failure))
        finally:
            os._exit(0)

    def _coming_back(self) -> tuple[set[int], set[int]]:
        """Child processes and descriptors that are started and opened anew after a restart."""
        registered = {process.pid for process, _ in self._runtime.hooks.children}
        return merged((libraries.coming_back(), tracker_in_use(), (registered, set())))

    def _stop_others(self, stack: Stack | None) -> image.StoppedThreads | None:
        """Stop the program's other threads; None: one of them cannot be captured here, and none stops."""
        from ckpt import image

        if stack is None:
            return None
        others = image.StoppedThreads(
            stack, self._find_others, image.refuse_transient, image.LeftOut(is_left_out, image.refuse_running)
        )
        try:
            image.refuse_transient(stack)
            others.stop()
        except image.ImageError:
            return None
        return others

    def _find_others(self) -> list[threading.Thread]:
        return [each for each in self._runtime.threads.others() if isinstance(each, threading.Thread)]

    def _examine_in_child(
        self, prepared: Any, stack: Stack | None, found: dict[str, Any], ours: set[int]
    ) -> None:
        from ckpt.image import trial

        runtime = self._runtime
        job = os.path.realpath(runtime.spec["job_dir"])
        now = surroundings.descriptors().items()
        own = self._own_descriptors | {
            fd: target for fd, target in now if fd in ours or surroundings.is_below(target, job)
        }
        with_sockets = runtime.size == 1
        raw = surroundings.raw_descriptors(own, with_sockets=with_sockets)
        t_s = self._write("surroundings", **found, descriptors=raw)
        seen = [] if stack is not None else list(_program_frames(trial.SeenFrame))
        report, findings = trial.examine(prepared, live=runtime.live, seen=seen)
        self._write(
            "examination",
            t_s=t_s,
            captured=stack is not None,
            findings=[finding.as_dict() for finding in findings],
            variables=report.variables,
            left_out=report.left_out,
            stream_bytes=report.stream_bytes,
            buffer_bytes=report.buffer_bytes,
            stack=report.stack,
        )

    # ------------------------------------------------------------------ writing

    def _write_samples(self) -> None:
        refused = [
            {"reason": reason, "where": where, "samples": int(entry[0]), "longest_s": round(entry[1], 3)}
            for (reason, where), entry in list(self._refused.items())
        ]
        self._write(
            "samples",
            taken=self._taken,
            captured=self._captured,
            in_library=self._in_library,
            refused=refused,
            late=self._late,
            appended=self._changes.appended(),
        )

    def _write(self, kind: str, **fields: Any) -> float:
        """Append one line; returns its `t_s` (seconds since the start): now, unless given.

        The lines of one examination have the same `t_s`.
        """
        t_s: float = fields.pop("t_s", None) or round(time.monotonic() - self._started_s, 3)
        line = {"kind": kind, "t_s": t_s, **fields}
        os.write(self._file, json.dumps(line, default=str).encode() + b"\n")
        return t_s


def examinations_due(after_s: float) -> int:
    """How many examinations are due in a rank's first `after_s` seconds.

    Each examination leaves a line of kind "examination" or "trouble".
    """
    return sum(1 for _ in takewhile(lambda moment_s: moment_s <= after_s, _moments()))


def _moments() -> Iterator[float]:
    yield from _EXAMINATIONS_S
    moment = _EXAMINATIONS_S[-1]
    while True:
        moment += _EXAMINATION_EVERY_S
        yield moment


def _is_importing() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def trouble(failure: BaseException) -> dict[str, Any]:
    """Of a line of this kind. What refuses an image says all that there is to be said."""
    from ckpt import image

    is_known = isinstance(failure, image.ImageError)
    return {
        "text": f"{failure}" if is_known else f"{type(failure).__name__}: {failure}",
        "is_known": is_known,
    }


def _program_frames(make: Any) -> Iterator[Any]:
    """The program's frames of the stack with their variables, outermost first, for a stack that cannot be captured.

    ``make``: called with the qualified name of the function and a dictionary of its variables.
    """
    from ckpt.image.frames.running import BASES

    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in BASES:
        if not is_library(frame):
            found.append(frame)
        frame = frame.f_back
    for frame in reversed(found):
        if frame.f_locals is not frame.f_globals:
            yield make(frame.f_code.co_qualname, dict(frame.f_locals))
