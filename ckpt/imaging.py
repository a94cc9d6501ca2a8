"""★ Takes the images of one rank: when one is wanted, how it is captured, and who writes it.

::

    idle ──want(e)──▶ wanted ──captured──▶ writing (the child) ──▶ idle
                        │  ▲
             refused    └──┘  tried again at the next place; named, counted, bounded
                        └──abort(e) / own time limit──▶ idle, label e taken without an image

Rules (``PROTOCOL``: what makes the cut consistent)

- An image is taken *before* any frame of its epoch is processed: the endpoint holds such frames until
  :meth:`Endpoint.advance`.
- A rank that never voted for an epoch may take its label without an image, since a line needs every rank's vote. That is
  what an aborted round, a failed image and the rank's own time limit do, so that a program that cannot be captured
  never hangs the others.
- Freeze, port state, fork and thaw happen under the port's lock; the pause is only that. The child pickles, compresses,
  writes, syncs and votes; it touches no socket but the control channel, runs no finalizer and ends with ``os._exit``.
- Where fork cannot be used (no memory for it, or the user says so) the image is written synchronously, with the
  port frozen: the peers are told by its negative acks. Which mode was used is part of the report.

Two places lead here: the main thread blocked in the library (``at="call"``) and a pending call at the interpreter's
own check between two instructions (``at="check"``), queued by the helper thread. A check that finds the main
thread inside the library does nothing: the library gets there by itself.

Not here: what an image contains (:mod:`ckpt.image`), how it becomes durable (:mod:`ckpt.store`).
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import time
from collections import deque
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ckpt.image.stack import Stack
    from ckpt.runtime import Runtime

__all__ = ["Imager"]

_REPORT_AFTER_NS = 100_000_000
_REPORT_EVERY_NS = 1_000_000_000
_IMMEDIATE_RETRIES = 1600  # some 50 different checks; then the helper's next tick asks again
_OWN_LIMIT_NS = 120_000_000_000
_RETRY_NS = 2_000_000
_HEAD_START_S = 0.003
"""The child waits this long: the program's first steps fault on pages shared with it, and a child that works on the same
memory meanwhile makes each of them slower (1 GB in 4 KiB pages: pause 24 ms without, 22 ms with)."""
_REHEARSAL_LONGEST_NS = 3_000_000


class Imager:
    """The images of one rank. All methods but :meth:`tick` and :meth:`where` are called under the runtime's lock."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.epoch: int = runtime.spec["epoch"]
        self.wanted = self.epoch
        self.refusals = 0
        self.refused_longest_ns = 0
        self.pauses_ns: list[int] = []
        self.mode: str = runtime.spec.get("options", {}).get("image_mode") or "fork"
        self.limit_ns: int = int(runtime.spec.get("options", {}).get("image_limit_ns") or _OWN_LIMIT_NS)
        self._wanted_since_ns = 0
        self._reported_ns = 0
        self._tries = 0
        self._place = (0, 0)  # frame and instruction of the last check that was looked at
        self._check_queued = False
        self._cold = False  # forked, and not rehearsed since
        self._children: dict[int, int] = {}  # pid of an image child -> its epoch
        self._lost: deque[tuple[int, int]] = (
            deque()
        )  # (epoch, wait status) of children that died without a vote
        self._harmless_threads: set[str] = set(runtime.spec.get("options", {}).get("harmless_threads", ()))

    # ------------------------------------------------------------------ wanting

    def want(self, epoch: int, reason: str, *, mode: str | None = None) -> None:
        """An image of ``epoch`` is due; taken at the next place where the program can be captured."""
        if mode is not None:
            self.mode = mode
        if epoch <= self.wanted:
            return
        if self.wanted == self.epoch:
            self._wanted_since_ns = time.monotonic_ns()
            self._reported_ns = 0
            self._tries = 0
        self.wanted = epoch
        assert self._runtime.port is not None
        self._runtime.port.attentive = True
        if threading.current_thread() is not threading.main_thread():
            self._queue_check()  # the main thread is in the library if it hears of it itself, and waits there next

    def abort(self, epoch: int) -> None:
        """No line of ``epoch`` will ever commit: its frames may be processed without an image."""
        if self.epoch < epoch <= self.wanted and epoch == self.wanted:
            self._pass_over()

    def abandon(self) -> None:
        """There is no controller: a round that this rank has not voted in can never commit."""
        if self.wanted > self.epoch:
            self._pass_over()

    def _pass_over(self) -> None:
        port = self._runtime.port
        assert port is not None
        self.epoch = self.wanted
        port.advance(self.epoch)

    def wait_limit_ns(self) -> int | None:
        """How long a blocked call may wait before it must look here again; ``None``: until something happens."""
        return _RETRY_NS if self.wanted > self.epoch else None

    # ------------------------------------------------------------------ places

    def _queue_check(self) -> None:
        if self._check_queued:
            return
        from ckpt.image import _frames

        self._check_queued = True
        _frames.request(self._at_check)

    def _at_check(self) -> None:
        """Runs in the main thread between two instructions of the program (or of the library).

        The interpreter runs a call that was queued by the one before it at the very same check (up to 32 times), so a
        place that was looked at already is passed over.
        """
        self._check_queued = False
        if self.wanted <= self.epoch:
            return
        frame = sys._getframe(1)
        place = (id(frame), frame.f_lasti)
        del frame
        if place != self._place:
            self._place = place
            # Inside the library: a waiting place of its own takes the image, or a check after it has returned does.
            # Never wait for the lock here: it may be this very thread that holds it.
            if not _inside_library() and self._runtime.lock.acquire(blocking=False):
                try:
                    if self.wanted <= self.epoch or self.take("check"):
                        return
                finally:
                    self._runtime.lock.release()
        self._tries += 1
        if self._tries < _IMMEDIATE_RETRIES:
            self._queue_check()

    def tick(self) -> None:
        """The helper's housekeeping while the program is outside the library."""
        if self._housekeep() and self._runtime.lock.acquire(blocking=False):
            try:
                if self.wanted > self.epoch:
                    self._give_up()
            finally:
                self._runtime.lock.release()
        elif self.wanted > self.epoch:
            self._tries = 0
            self._place = (0, 0)
            self._queue_check()

    def blocked(self) -> None:
        """The same while the main thread waits inside the library (under the lock)."""
        if (self._children or self.wanted > self.epoch) and self._housekeep():
            self._give_up()

    def _housekeep(self) -> bool:
        """Reap image children, report a wait that has become long. ``True``: the rank's own limit has passed."""
        if self._children:
            self._reap()
        while self._lost:
            try:
                epoch, status = self._lost.popleft()
            except IndexError:
                break  # the other thread reported it
            self._failed(epoch, f"the image writer died ({_status_text(status)})", "image child")
        if self.wanted <= self.epoch:
            if self._runtime.port is not None:
                self._runtime.port.attentive = bool(self._children)
            return False
        now_ns = time.monotonic_ns()
        waited_ns = now_ns - self._wanted_since_ns
        if waited_ns > _REPORT_AFTER_NS and now_ns - self._reported_ns > _REPORT_EVERY_NS:
            self._reported_ns = now_ns
            self._runtime.control.send(
                {
                    "m": "refused",
                    "epoch": self.wanted,
                    "reason": self._reason,
                    "where": self.where(),
                    "since_ns": waited_ns,
                }
            )
        return waited_ns > self.limit_ns

    def _give_up(self) -> None:
        self._failed(self.wanted, f"not possible within the limit: {self._reason}", self.where())
        self._pass_over()

    _reason = "the program has not come to a place between two instructions"

    # ------------------------------------------------------------------ taking

    def take(self, at: Literal["call", "check"]) -> bool:
        """Capture, save the port state, fork, go on. ``False``: refused here, to be tried again."""
        from ckpt import image

        runtime, port = self._runtime, self._runtime.port
        assert port is not None
        epoch, previous = self.wanted, self.epoch
        started_ns = time.perf_counter_ns()
        tries, self._tries = self._tries, _IMMEDIATE_RETRIES  # no more checks meanwhile
        try:
            self._refuse_threads()
            stack: Stack | None = None
            if runtime.finished_code is None:
                stack = image.capture(at=at, skip=_skipped_code())
        except image.Refused as refused:
            self._tries = tries
            self.refusals += 1
            self._reason = f"{refused.reason} ({refused.where})"
            self.refused_longest_ns = max(
                self.refused_longest_ns, time.monotonic_ns() - self._wanted_since_ns
            )
            return False
        except Exception as failure:
            return self._burn(failure)
        captured_ns = time.perf_counter_ns()
        port.freeze()
        frozen_ns = time.perf_counter_ns()
        state = port.snapshot()
        saved_ns = time.perf_counter_ns()
        extras = {
            "ckpt.engine": runtime.engine,
            "ckpt.world": runtime.world,
            "ckpt.registered": runtime.registered,
            "ckpt.port": state,
            "ckpt.locked": at == "call",
            "ckpt.finished": runtime.finished_code,
        }
        try:
            prepared = image.prepare(stack, extras)
        except Exception as failure:  # a file of the program that cannot be flushed, say
            port.thaw()
            return self._burn(failure)
        prepared_ns = time.perf_counter_ns()
        times = {
            "capture_ns": captured_ns - started_ns,
            "freeze_ns": frozen_ns - captured_ns,
            "port_save_ns": saved_ns - frozen_ns,
            "prepare_ns": prepared_ns - saved_ns,
        }
        return self._hand_over(prepared, state, previous, epoch, started_ns, times)

    def rehearse(self) -> None:
        """Do what a capture does, and forget it: called when the program waits for messages anyway.

        A fork leaves every page of this process to be faulted in again by the first write to it, reference counts
        included. Without a rehearsal the next pause pays for that: 0.9 ms instead of 0.1 ms.
        """
        if not self._cold:
            return
        self._cold = False
        from ckpt import image
        from ckpt.image.files import note_files

        try:
            self._refuse_threads()
            image.capture(at="call", skip=(Imager.rehearse.__code__, *_skipped_code()))
            image.look()
            note_files()
        except Exception:
            return  # out of descriptors, say: the real image meets it too, and says so; the program must not suffer

    def _burn(self, failure: Exception) -> bool:
        """This image cannot be taken, and the program must not suffer from it: no vote, go on."""
        reason = getattr(failure, "reason", None) or f"{type(failure).__name__}: {failure}"
        self._failed(self.wanted, reason, getattr(failure, "path", None) or self.where())
        self._pass_over()
        return True

    def _hand_over(
        self, prepared: Any, state: Any, previous: int, epoch: int, started_ns: int, times: dict[str, int]
    ) -> bool:
        """Fork the writer (or write here), thaw, and report the pause."""
        runtime, port = self._runtime, self._runtime.port
        assert port is not None
        job = (prepared, state.vectors(), previous, epoch)
        mode = self.mode
        fork_ns = time.perf_counter_ns()
        if mode == "fork":
            try:
                pid = _fork()
            except OSError as failure:
                if failure.errno not in (errno.ENOMEM, errno.EAGAIN):
                    raise
                mode = "sync"
                runtime.control.send(
                    {"m": "event", "event": "fork-failed", "epoch": epoch, "reason": str(failure)}
                )
            else:
                if pid == 0:
                    self._write_in_child(*job)
                self._children[pid] = epoch
        forked_ns = time.perf_counter_ns()
        if mode == "sync":
            self._write_here(*job)
        thaw_ns = time.perf_counter_ns()
        self.epoch = epoch
        port.advance(epoch)
        port.thaw()
        ended_ns = time.perf_counter_ns()
        self._cold = mode == "fork" and times["capture_ns"] < _REHEARSAL_LONGEST_NS
        self.pauses_ns.append(ended_ns - started_ns)
        runtime.control.send(
            {
                "m": "captured",
                "epoch": epoch,
                "previous": previous,
                "mode": mode,
                **times,
                "fork_ns": forked_ns - fork_ns,
                "thaw_ns": ended_ns - thaw_ns,
                "pause_ns": ended_ns - started_ns,
                "waited_ns": time.monotonic_ns() - self._wanted_since_ns,
            }
        )
        return True

    def _refuse_threads(self) -> None:
        """Threads of the application cannot be imaged: a stack is captured for the main thread only."""
        if threading.active_count() <= 2:  # the main thread and the port's helper
            return
        from ckpt.image import Refused

        for thread in threading.enumerate():
            name = thread.name
            if thread is threading.main_thread() or name == "port-helper" or name in self._harmless_threads:
                continue
            if type(thread).__module__.startswith("zmq."):  # pyzmq's own, started by the first uncopied send
                continue
            raise Refused(f"the application's thread {name!r} is running", f"thread {name}")

    # ------------------------------------------------------------------ writing

    def _write_in_child(self, prepared: Any, vectors: Any, previous: int, epoch: int) -> None:
        """The forked child: write, vote, vanish. Never returns."""
        code = 1
        try:
            from ckpt.image import _frames

            time.sleep(_HEAD_START_S)
            gc.disable()
            _frames.pdeathsig(signal.SIGKILL)
            code = 0 if self._write(prepared, vectors, previous, epoch) else 3
        except BaseException as failure:
            # The child must never return into the program; whatever went wrong is the round's failure.
            self._failed(epoch, f"{type(failure).__name__}: {failure}", "image child")
        finally:
            os._exit(code)

    def _write_here(self, prepared: Any, vectors: Any, previous: int, epoch: int) -> None:
        """The synchronous mode: the port stays frozen, and free for the helper, which answers for it."""
        self._runtime.lock.release()
        try:
            self._write(prepared, vectors, previous, epoch)
        finally:
            self._runtime.lock.acquire()

    def _write(self, prepared: Any, vectors: Any, previous: int, epoch: int) -> bool:
        from ckpt import image
        from ckpt.store import ImageWriter, JobDirectory

        runtime = self._runtime
        try:
            job = JobDirectory.open(runtime.spec["job_dir"])
            writer = ImageWriter(
                job,
                rank=runtime.rank,
                incarnation=runtime.incarnation,
                label=(previous, epoch),
                resumed_from=runtime.spec.get("resume"),
            )
            begun_ns = time.perf_counter_ns()
            report = image.dump(prepared, live=runtime.live, sink=writer)
            pickled_ns = time.perf_counter_ns()
            receipt = writer.finish(
                {
                    "image": report.as_dict(),
                    "vectors": {str(peer): list(vector) for peer, vector in vectors.items()},
                    "pid": os.getpid(),
                    "finished": runtime.finished_code,
                }
            )
        except image.Unpicklable as failure:
            self._failed(epoch, failure.reason, failure.path)
            return False
        except (
            Exception
        ) as failure:  # disk full, no memory, a __reduce__ that raises: the round's failure, named
            self._failed(epoch, f"{type(failure).__name__}: {failure}", runtime.spec["job_dir"])
            return False
        runtime.control.send(
            {
                "m": "voted",
                "epoch": epoch,
                "label": [previous, epoch],
                "manifest": str(receipt.manifest_path),
                "digest": receipt.digest,
                "bytes_raw": receipt.bytes_raw,
                "bytes_written": receipt.bytes_written,
                "vectors": {str(peer): list(vector) for peer, vector in vectors.items()},
                "timings": {"pickle_ns": pickled_ns - begun_ns, **receipt.timings_ns},
            }
        )
        return True

    def _failed(self, epoch: int, reason: str, where: str) -> None:
        self._runtime.control.send({"m": "failed", "epoch": epoch, "reason": reason, "where": where})

    def _reap(self) -> None:
        for pid, epoch in list(self._children.items()):
            try:
                done, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                done, status = pid, 0  # the program's own os.wait() was faster
            if done:
                self._children.pop(pid, None)  # gone: the other of main and helper thread came first
                if os.WIFSIGNALED(status):
                    self._lost.append((epoch, status))

    def where(self) -> str:
        """Where the program is, as ``file:line function``, for status and for a round that waits. From any thread."""
        if self._runtime.finished_code is not None:
            return "finished, serving its peers"
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        inside = ""
        while frame is not None and _is_library(frame):
            inside = f" (in {frame.f_code.co_name} of the library)"
            frame = frame.f_back
        if frame is None:
            return "starting"
        code = frame.f_code
        return f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}{inside}"


def _fork() -> int:
    from ckpt.image import _frames

    return int(_frames.fork())


def _status_text(status: int) -> str:
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"


def _inside_library() -> bool:
    """Is a function of this library on the main thread's stack, inside the program's base?"""
    from ckpt.image.stack import BASES

    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in BASES:
        if _is_library(frame):
            return True
        frame = frame.f_back
    return False


def _is_library(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__") or ""
    return name == "ckpt" or name.startswith(("ckpt.", "transport."))


def _skipped_code() -> tuple[Any, ...]:
    from ckpt.runtime import frames_to_skip

    return (Imager.take.__code__, Imager._at_check.__code__, *frames_to_skip())
