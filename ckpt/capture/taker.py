"""Takes one image: freeze the port, save the port's state, stop the program's other threads, prepare, fork (or write here),
let the threads go on, thaw, report the pause.

All these steps run under the port's lock; they are the whole pause of the program. The mode (fork or synchronous) is chosen
when the image is first wanted (:mod:`ckpt.capture.choice`), and a change of the mode is logged. An image that comes late
looks again for mapped files. Where the kernel refuses the fork, the image is written synchronously, and the frozen port
answers its peers with negative acknowledgements. The report of the image names the mode that was used.

The children that write images are reaped here, by the main thread or the helper thread, whichever comes first. If a child
died without a vote, the round fails.

Not here: when an image is due and where the program can be captured (:mod:`ckpt.capture.imager`), the writing itself
(:mod:`ckpt.capture.writing`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ckpt.capture import memory
from ckpt.capture.children import REASON, Lesson, StuckWriters
from ckpt.capture.choice import Choice, choose
from ckpt.capture.description import extras
from ckpt.capture.writing import Writing, report_failure, was_silent, write, write_in_child
from ckpt.image.interface.registry import libraries
from ckpt.image.process.signals import declare_deferred

if TYPE_CHECKING:
    from ckpt import image
    from ckpt.capture.context import RankContext
    from ckpt.shared_memory.host import HostMemory

__all__ = ["Taker"]

_REHEARSAL_LONGEST_NS = 3_000_000
_LATE_NS = 10_000_000
"""An image that is taken so long after it was wanted may be of a program that has mapped files since."""
_IMAGES_WITHOUT_FORK = 10
"""So many images are written without fork after the kernel has refused a fork or has killed a child that was writing."""


class Taker:
    """Takes the images of one rank. Methods are called under the runtime's lock, except :meth:`reap`."""

    def __init__(self, runtime: RankContext) -> None:
        self._runtime = runtime
        self.requested_mode: str = runtime.spec.get("options", {}).get("image_mode") or "auto"
        self.choice = Choice("fork", "no image has been taken yet")
        self._without_fork = 0  # so many images are written without fork before a fork is tried again
        self._why_without_fork = ""
        self._writer_was_killed = False
        self.pauses_ns: list[int] = []
        self.is_cold = False
        """The process has forked, and no rehearsal has followed: see :meth:`ckpt.capture.imager.Imager.rehearse`."""
        self.is_writing_here = False
        """This process writes an image itself. What the image names must stay: its open files."""
        self.lesson = Lesson()
        """What an image has failed at: the address of a type, told by who has written it."""
        self._children: dict[int, int] = {}  # pid of an image child -> its epoch
        self._stuck, self._why_killed = StuckWriters(), dict[int, str]()  # by epoch
        # (epoch, wait status) of children that died without a vote
        self._died: deque[tuple[int, int]] = deque()

    @property
    def writers(self) -> frozenset[int]:
        """Process ids of the children that write images now."""
        return frozenset(self._children)

    @property
    def is_writing(self) -> bool:
        """Does a child write an image now?"""
        return bool(self._children)

    def choose(self, mode: str | None) -> None:
        """Decide how the next image will be written; log the choice if it differs from the last one.

        ``mode``: "auto", "fork" or "sync"; ``None``: as asked before.
        """
        self.requested_mode = mode or self.requested_mode
        if self._without_fork and (
            self.requested_mode == "auto" or (self.requested_mode == "fork" and self._writer_was_killed)
        ):
            self._without_fork -= 1
            self._set_choice(Choice("sync", self._why_without_fork))
        else:
            self._choose_anew(self._shared_files())

    def _shared_files(self) -> list[str]:
        """Those that are a reason for an image without a fork. An explicit image has no part in which copies could be put in
        their place."""
        is_explicit = self._runtime.explicit is not None
        return memory.shared_files(() if is_explicit else libraries.copied_maps())

    def _choose_anew(self, shared_files: Sequence[str]) -> None:
        memory_left = memory.available()
        self._set_choice(
            choose(
                self.requested_mode,
                resident_bytes=memory.resident_bytes(),
                available_bytes=None if memory_left is None else memory_left.available_bytes,
                sharers=self._runtime.spec.get("local_size", 1),
                kills_group=memory_left is not None and memory_left.kills_group,
                shared_files=shared_files,
            )
        )

    def _set_choice(self, choice: Choice) -> None:
        if choice.mode != self.choice.mode:
            self._runtime.control.send(
                {"m": "event", "event": "image-mode", "mode": choice.mode, "reason": choice.reason}
            )
        self.choice = choice

    def _look_again_for_maps(self, waited_since_ns: int) -> None:
        """The program has gone on since :meth:`choose`; it may have mapped a file for shared writing."""
        is_late = time.monotonic_ns() - waited_since_ns > _LATE_NS
        if is_late and self.choice.mode == "fork":
            shared_files = self._shared_files()
            if shared_files:
                self._choose_anew(shared_files)

    def take(
        self,
        prepare: Callable[[Any, bytes | None], Any],
        label: tuple[int, int],
        started_ns: int,
        waited_since_ns: int,
        others: image.StoppedThreads | None = None,
    ) -> Exception | None:
        """Take the image with this label, (previous epoch, epoch]. ``prepare(port_state, noted)`` returns its content;
        ``noted``: the record of this moment, if there is one. ``others``: the program's other threads, which stand still
        meanwhile.

        ``started_ns``: when the capture began, on ``time.perf_counter_ns``; ``waited_since_ns``: when the image was first
        wanted, on ``time.monotonic_ns``. Returns the exception of ``prepare``, of a thread that cannot be captured, or of
        the fork, if any: then no image was taken, and the port has been thawed.
        """

        port, (previous, epoch), memory = self._runtime.port, label, self._runtime.memory_in_use
        assert port is not None
        declare_deferred(lambda: tuple(port.interrupts.pending))
        self._look_again_for_maps(waited_since_ns)
        captured_ns = time.perf_counter_ns()
        port.publish(epoch)  # before anything of the program goes on: what changes then is not in the image
        port.freeze()
        frozen_ns = time.perf_counter_ns()
        state = port.snapshot()
        if self._runtime.layer is not None:
            state = self._runtime.layer.saved(state)
        saved_ns = time.perf_counter_ns()
        try:
            libraries.before_image()  # it may need a lock that one of the threads holds
            if others is not None:
                others.stop()
                self._refuse_writing_beside(others)
            if memory is not None:
                memory.stand(epoch, self._available, forks=self.choice.mode == "fork")
            libraries.copy_out(is_writing=self._is_read(), available=self._available)
            if memory is not None:
                memory.copied()
            noted = self._runtime.files.cut(epoch)
            prepared = prepare(state, noted)
        except Exception as failure:  # for example, a file of the program cannot be flushed
            self._runtime.files.uncut(epoch)
            libraries.let_copies_go()
            _go_on(memory, others)
            port.thaw()
            return failure
        times = {
            "capture_ns": captured_ns - started_ns,
            "freeze_ns": frozen_ns - captured_ns,
            "port_save_ns": saved_ns - frozen_ns,
            "prepare_ns": time.perf_counter_ns() - saved_ns,
        }
        try:
            self._hand_over(
                Writing(prepared, state.vectors(), previous, epoch),
                started_ns,
                waited_since_ns,
                times,
                lambda: _go_on(memory, others),
                others,
            )
        except Exception as failure:
            port.thaw()
            return failure
        finally:
            libraries.let_copies_go()
            _go_on(memory, others)
        return None

    def rehearse(self) -> None:
        """Do what has no effect of :meth:`take`, at another time than while the program stands still. After a fork the first
        use of a page of memory by this process is a fault, so what has been used already is used faster."""
        runtime, port = self._runtime, self._runtime.port
        assert port is not None
        port.publish(runtime.imager.epoch)
        port.freeze()
        state = port.snapshot()
        port.thaw()
        libraries.rehearse()
        runtime.files.rehearse()
        if runtime.layer is None:
            extras(runtime, state, None, is_in_call=True, epoch=0)

    def _is_read(self) -> bool:
        """May a child still read what was copied for it?"""
        if self._children:
            self.reap()
        return bool(self._children)

    def _available(self) -> int | None:
        """Bytes of memory that this rank can still get: its share of what the ranks of this host can."""
        left = memory.available()
        return (
            None if left is None else left.available_bytes // max(1, self._runtime.spec.get("local_size", 1))
        )

    def _refuse_writing_beside(self, others: image.StoppedThreads) -> None:
        """Raise Refused if the image would be written here while threads that wait in C may go on."""
        from ckpt import image

        if others.are_there and self.choice.mode != "fork":
            raise image.Unpicklable(
                "threads", f"their image needs a fork, which is not used: {self.choice.reason}"
            )

    def _hand_over(
        self,
        job: Writing,
        started_ns: int,
        waited_since_ns: int,
        times: Mapping[str, int],
        go_on: Callable[[], None],
        others: image.StoppedThreads | None,
    ) -> None:
        """Fork the writer (or write here), thaw, and report the pause."""
        runtime, port = self._runtime, self._runtime.port
        assert port is not None
        fork_ns = time.perf_counter_ns()
        try:
            mode = self._fork_writer(job, others) if self.choice.mode == "fork" else self.choice.mode
        except Exception:
            runtime.files.uncut(job.epoch)
            raise
        forked_ns = time.perf_counter_ns()
        if mode == "sync":
            self._write_here(job)
            port.publish(job.epoch)  # the lock was free meanwhile
        go_on()
        thaw_ns = time.perf_counter_ns()
        if runtime.imager.epoch < job.epoch:
            runtime.imager.epoch = job.epoch
            port.thaw(job.epoch)
        else:  # the round was aborted while the image was written here
            port.thaw()
        ended_ns = time.perf_counter_ns()
        self.is_cold = mode == "fork" and times["capture_ns"] < _REHEARSAL_LONGEST_NS
        self.pauses_ns.append(ended_ns - started_ns)
        runtime.control.send(
            {
                "m": "captured",
                "epoch": job.epoch,
                "previous": job.previous,
                "mode": mode,
                **times,
                "fork_ns": forked_ns - fork_ns,
                "thaw_ns": ended_ns - thaw_ns,
                "pause_ns": ended_ns - started_ns,
                "waited_ns": time.monotonic_ns() - waited_since_ns,
            }
        )

    def _fork_writer(self, job: Writing, others: image.StoppedThreads | None) -> Literal["fork", "sync"]:
        """Fork the child that writes. ``sync``: the kernel has refused, and the image can be written here."""
        runtime = self._runtime
        try:
            is_explicit = runtime.explicit is not None
            pid = _fork(None if is_explicit else getattr(job.prepared, "noted", None), others)
        except OSError as failure:
            memory = runtime.memory_in_use  # the others have gone on, and would store to what is written here
            must_fork = (others is not None and others.are_there) or (
                memory is not None and memory.shares_files
            )
            if failure.errno not in (errno.ENOMEM, errno.EAGAIN) or must_fork:
                raise
            self._avoid_fork("the kernel has refused to fork")
            runtime.control.send(
                {"m": "event", "event": "fork-failed", "epoch": job.epoch, "reason": str(failure)}
            )
            return "sync"
        if pid == 0:
            write_in_child(runtime, job)
        self._children[pid] = job.epoch
        return "fork"

    def fork_to_look(self) -> int:
        """Fork a child that looks at this process's memory, and writes nothing: see `ckpt.mpi.base.layer.Below.fork`."""
        pid = _fork(None, None)
        if pid:
            self._children[pid] = 0
        return pid

    def _write_here(self, job: Writing) -> None:
        """The synchronous mode: the port stays frozen; its lock is released, so that the helper thread can answer peers."""
        self.is_writing_here = True
        self._runtime.lock.release()
        try:
            write(self._runtime, job)
        finally:
            self._runtime.lock.acquire()
            self.is_writing_here = False
            self._learn()

    def _learn(self) -> None:
        """If an image has failed at an object that a running function held: later images wait for the end of such ones."""
        from ckpt import image

        if type_address := self.lesson.take():
            image.learn(type_address)

    def _avoid_fork(self, why: str) -> None:
        """Write the next `_IMAGES_WITHOUT_FORK` images synchronously. :meth:`choose` logs the reason ``why``."""
        self._without_fork, self._why_without_fork = _IMAGES_WITHOUT_FORK, why

    # ------------------------------------------------------------------ children

    def reap(self) -> None:
        """Collect children that have ended, and tell the controller of those that died without a vote. End those that wait
        for ever."""
        for pid in self._stuck.found(
            [pid for pid, epoch in list(self._children.items()) if epoch], time.monotonic_ns()
        ):
            self._why_killed[self._children.get(pid, 0)] = REASON
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid, epoch in list(self._children.items()):
            try:
                done, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                done, status = pid, 0  # the program's own os.wait() was faster
            if done:
                self._children.pop(pid, None)  # absent: the other thread has reaped it
                if os.WIFSIGNALED(status) or was_silent(status):
                    self._died.append((epoch, status))
                elif status:
                    self._learn()
        while self._died:
            try:
                epoch, status = self._died.popleft()
            except IndexError:
                break  # the other thread reported it
            number = os.WTERMSIG(status)  # 0: it has ended by itself
            if why := self._why_killed.pop(epoch, ""):
                report_failure(self._runtime, epoch, why, "image child")
                continue
            if number == signal.SIGKILL:  # as a rule by the kernel: no memory
                self._avoid_fork("the image writer was killed, as it is where memory runs out")
                self._writer_was_killed = True
            how = f"died (signal {number})" if number else f"ended with exit code {os.WEXITSTATUS(status)}"
            report_failure(self._runtime, epoch, f"the image writer {how}", "image child")


def _go_on(memory: HostMemory | None, others: image.StoppedThreads | None) -> None:
    """The image is captured, or there is none. The program may change memory that it shares when the other ranks have
    copied theirs."""
    if memory is not None:
        memory.leave()
    if others is not None:
        others.go_on()


def _fork(noted: bytes | None, others: image.StoppedThreads | None) -> int:
    from ckpt import image

    return image.fork(noted, others)
