"""The reductions of one communicator at this rank: messages, the thread that combines, futures. (driver)

    handlers     `_receive` and `_failed` are called by whoever makes progress, under the lock of the channel: a message is
                 taken and the state (members.py) changed under one hold of it, so an image has both or neither
    the thread   combines, out of the lock: a rank that computes does not keep others waiting. It takes its work from a
                 queue, and posts what it has: so it never waits for a program that waits inside of the library. It calls
                 the callbacks, and looks at deadlines
    images       hold all of it: state, queue, futures, and the thread where it is. In the middle of a combination the inputs
                 and the task are in the state; the thread goes on, or an image waits until it is out of C code

Not here: decisions (the pure modules), one-sided reads: data are messages of the channel.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import ckpt
from ckpt.reduction import errors
from ckpt.reduction.body import MPI, OWN, Body, Packed, checksum, combine
from ckpt.reduction.copies import Gone, Store, Stored, pattern, remove_stale
from ckpt.reduction.future import Future
from ckpt.reduction.members import Completed, Computing, Forgotten, Members, Sent, Step
from ckpt.reduction.messages import Call, Contract, Data, Key, Message, Original, Outcome, Task
from ckpt.reduction.posted import Computed, Due, Missing, Posted, Raise, Run

T = TypeVar("T")
LOG = logging.getLogger("ckpt.reduction")


class Local(NamedTuple):
    """What this rank's own call has said beside the contract. `own`: the program's operation. `sum`: of the input, if it is
    to be checked. `warn_ns`: after which a rank that has not called is named. `tolerant`: ranks may be missing."""

    value: Any
    weight: float
    own: Any
    late: str
    sum: int | None
    warn_ns: int
    tolerant: bool


class Carried(NamedTuple):
    """A contribution that came too late, for the next reduction of its name."""

    value: Any
    weight: float


class Service:
    """All reductions on one communicator. Its methods are called by the program; see the header for the threads."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.members = Members(self.rank, self.size)
        self.futures: dict[Key, Future] = {}
        self.locals: dict[Key, Local] = {}
        self.contents: dict[Key, str] = {}
        self.carried: dict[tuple[str, str], list[Carried]] = {}
        self.begun: dict[tuple[Key, int], int] = {}
        self.kept: dict[Key, list[Computing]] = {}
        """Tasks with the program's own operation or class, of reductions that this rank has not called yet."""
        self.process = os.getpid()
        self.store = Store()
        self.stored: dict[Key, Stored] = {}
        """Copies that this rank has written of what it gave."""
        self.known: dict[Key, list[tuple[int, Stored]]] = {}
        """(owner, copy) of others."""
        self.recent: deque[tuple[int, Stored]] = deque(maxlen=256)
        """Of reductions that are over here: their owners are about to remove them."""
        self.work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.timers: list[tuple[int, Key, str]] = []
        """Of the thread: (monotonic nanoseconds, reduction, what is due)."""
        if self.size > 1:
            ckpt.keep_file(pattern())
            atexit.register(self._at_exit)
            remove_stale()
        self.channel = ckpt.ActiveMessages(comm, self._receive, self._failed) if self.size > 1 else None
        self.thread = threading.Thread(target=self._run, daemon=True, name="ckpt.reduction")
        self.thread.start()

    # -- the program

    def locked(self, function: Callable[[], T]) -> T:
        """Call a function under the lock. The thread must not wait for it: its function is called by who has it."""
        if self.channel is None:
            return function()
        if threading.current_thread() is self.thread:
            call = Run(function)
            self._post(call)
            if call.failure is not None:
                raise call.failure
            return call.result  # type: ignore[return-value]
        with self.channel.lock:
            return function()

    def start(self, name: str, value: Any, contract: Contract, local: Local, problem: str) -> Future:
        """This rank's call. `problem`: what is wrong with the value. Raises NameInUse."""
        carried = self.locked(lambda: self._take_carried(name, contract.content))
        if not problem:
            for each in reversed(carried):
                value = combine(each.value, value, contract.content, local.own)
                local = local._replace(value=value, weight=each.weight + local.weight, sum=None)
        return self.locked(lambda: self._start(name, value, contract, local, problem))

    def _take_carried(self, name: str, content: str) -> list[Carried]:
        if name and self.members.in_use(name):
            raise errors.NameInUse(
                f"a reduction {name!r} of this rank has not ended yet: wait for its result", name
            )
        return self.carried.pop((name, content), [])

    def _start(self, name: str, value: Any, contract: Contract, local: Local, problem: str) -> Future:
        key, steps = self.members.start(name, Call(contract, local.weight, problem), value)
        future = self.futures[key] = Future(self, key, value)
        self.locals[key] = local
        self.contents.setdefault(key, contract.content)
        self.do(steps)
        for computing in self.kept.pop(key, ()):
            self.give(computing)
        if not future.done():
            now_ns = time.monotonic_ns()
            if contract.deadline_ns:
                self.work.put((now_ns + contract.deadline_ns, key, "deadline"))
            if local.warn_ns:
                self.work.put((now_ns + local.warn_ns, key, "warn"))
        return future

    def give(self, item: Any) -> None:
        """Work for the thread, in which the program's own functions are called: they must not wait for the program."""
        if self.channel is not None:
            self.channel.keep_out(self.thread)
        self.work.put(item)

    def given_back(self) -> None:
        """What was given to the thread is done."""
        if self.channel is not None:
            self.channel.keep_out(self.thread, False)

    def wait(self, future: Future, timeout: float | None) -> bool:
        """Wait until a future is done. Raises WouldDeadlock in the thread that would have to compute it."""
        if threading.current_thread() is self.thread:
            raise errors.WouldDeadlock(
                "result() of a reduction that is not done, in a callback or in combine(): the thread that waits here is "
                "the one that computes it. Add a callback to that reduction instead",
                future.name,
            )
        return True if self.channel is None else self.channel.wait(future.done, timeout)

    def call_later(self, function: Callable[[Future], object], future: Future) -> bool:
        """See Future.add_done_callback; False: it is done."""
        return self.locked(lambda: future.remember(function))

    def pending(self) -> dict[str, list[int] | None]:
        """The reductions that are not done here, and, at their master, the ranks that have not called."""
        found = self.locked(self.members.pending)
        return {
            f"{name or 'reduction'} {count}": None
            if waits is None
            else [r for r in range(self.size) if waits >> r & 1]
            for (name, count), (_, waits) in found.items()
        }

    def free(self) -> None:
        """See ckpt.reduction.free."""
        unfinished = self.locked(
            lambda: [key for key, member in self.members.members.items() if not member.complete]
        )
        if unfinished:
            names = ", ".join(repr(name or count) for name, count in unfinished)
            raise errors.ReductionError(
                f"reductions that are not done at this rank: {names}: wait for their results"
            )
        if self.channel is not None:
            self.channel.wait(lambda: not self.members.members)
            self.channel.free()
            atexit.unregister(self._at_exit)
        self.work.put("")
        self.thread.join()

    # -- handlers: under the lock

    def _receive(self, source: int, message: Any) -> None:
        if source == self.rank and isinstance(message, Posted):
            message.run(self)
            return
        key, content = message
        future = self.futures.get(key)
        if future is not None:
            future.count("messages_received")
        if isinstance(content, Task):
            self.begun[key, content.number] = time.monotonic_ns()
        elif isinstance(content, Original | Call):
            self.contents.setdefault(key, content.contract.content)
            if isinstance(content, Original) and isinstance(content.held.value, Stored):
                self.known.setdefault(key, []).append((content.owner, content.held.value))
        self.do(self.members.receive(source, key, content))

    def _failed(self, rank: int) -> None:
        for owner, stored in self.recent:
            if owner == rank:
                stored.remove()
        self.do(self.members.died(rank))

    def do(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Sent):
                self._send(step)
            elif isinstance(step, Computing):
                if step.key not in self.locals and self.contents[step.key].endswith(("|", "|" + OWN)):
                    self.kept.setdefault(step.key, []).append(step)
                else:
                    self.give(step)
            elif isinstance(step, Completed):
                self._complete(step)
            elif isinstance(step, Forgotten):
                self._forget(step.key)

    def _send(self, step: Sent) -> None:
        assert self.channel is not None
        message: Message = step.message
        future = self.futures.get(step.key)
        try:
            if isinstance(message, Data | Original):
                value = message.held.value
                if future is not None:
                    future.count("bytes_sent", getattr(value, "nbytes", 0))
                if isinstance(message, Original) and message.owner == self.rank:
                    message = message._replace(held=message.held._replace(value=self._copy(step.key, value)))
                elif isinstance(value, Body):
                    message = message._replace(held=message.held._replace(value=Packed.of(value)))
                self._check_input(step.key, value)
            self.channel.send(step.dest, (step.key, message))
        except MPI.Exception:
            raise
        except (
            Exception
        ) as failure:  # the body cannot be packed, or was written to: an error of the reduction, for all
            ours = isinstance(failure, errors.ReductionError)
            error = type(failure).__name__ if ours else "InvalidInput"
            text = str(failure) if ours else f"it cannot be sent: {type(failure).__name__}: {failure}"
            self.do(self.members.fail(step.key, error, text))
            return
        if future is not None:
            future.count("messages_sent")

    def _copy(self, key: Key, value: Any) -> Any:
        """What other ranks keep of this rank's original: a file's name, or the value itself."""
        if key not in self.stored:
            stored = self.store.store(value)
            if stored is None:
                return Packed.of(value) if isinstance(value, Body) else value
            self.stored[key] = stored
        return self.stored[key]

    def _at_exit(self) -> None:
        """The program ends: nobody waits for what is done here, and who needs a copy after all asks this rank."""
        if os.getpid() == self.process:
            for key, stored in list(self.stored.items()):
                if key not in self.futures or self.futures[key].done():
                    stored.remove()

    def restored(self) -> None:
        """After a restart: the copies that this rank had written may be gone."""
        self.process = os.getpid()
        for key, stored in self.stored.items():
            if key in self.locals:
                self.store.store(self.locals[key].value, stored)

    def _check_input(self, key: Key, value: Any) -> None:
        local = self.locals.get(key)
        if (
            local is not None
            and local.sum is not None
            and value is local.value
            and checksum(value) != local.sum
        ):
            raise errors.InputChanged("what this rank gave was written to before the reduction had ended")

    def _complete(self, step: Completed) -> None:
        outcome: Outcome = step.outcome
        future, local = self.futures[step.key], self.locals[step.key]
        late = None
        if not outcome.error and not outcome.contributors >> self.rank & 1:
            late = self._late(step.key, local)
        first = (outcome.contributors & -outcome.contributors).bit_length() - 1
        if outcome.missing and not outcome.error and not local.tolerant and self.rank == first:
            gone = [rank for rank in range(self.size) if outcome.missing >> rank & 1]
            self.work.put(f"reduction {step.key[0] or step.key[1]!r} ended without ranks {gone}")
        value = step.value.load() if isinstance(step.value, Stored) else step.value
        for function in future.settle(outcome, value, late):
            self.give((function, future))

    def _late(self, key: Key, local: Local) -> errors.ReductionError | None:
        """This rank's contribution is not in the result."""
        if local.late == "raise":
            return errors.LateContribution(
                f"reduction {key[0] or key[1]!r} had ended without rank {self.rank}", key[0], (self.rank,)
            )
        if local.late == "carry":
            carried = self.carried.setdefault((key[0], self.contents[key]), [])
            carried.append(Carried(local.value, local.weight))
        return None

    def _forget(self, key: Key) -> None:
        future = self.futures.pop(key, None)
        if future is not None:
            future.let_go()
        self.locals.pop(key, None)
        self.contents.pop(key, None)
        self.kept.pop(key, None)
        mine = self.stored.pop(key, None)
        if mine is not None:
            mine.remove()
        for owner, stored in self.known.pop(key, ()):
            if self.members.dead >> owner & 1:
                stored.remove()
            else:
                self.recent.append((owner, stored))
        for each in [each for each in self.begun if each[0] == key]:
            del self.begun[each]

    # -- the thread

    def _run(self) -> None:
        while True:
            timeout = None if not self.timers else max(0.0, (self.timers[0][0] - time.monotonic_ns()) / 1e9)
            try:
                item = self.work.get(timeout=timeout)
            except queue.Empty:
                item = None
            if item == "":
                return  # freed
            try:
                self._work(item)
            except BaseException as failure:  # raised by the program's next call that communicates
                self._post(Raise(failure))

    def _work(self, item: Any) -> None:
        if item is None:
            _, key, what = self.timers.pop(0)
            self._post(Due(key, what))
        elif isinstance(item, Computing):
            self._post(self._combine(item))
        elif isinstance(item, str):
            LOG.warning("%s", item)
        elif isinstance(item[0], int):
            self.timers.append(item)
            self.timers.sort()
        else:
            function, future = item
            try:
                function(future)
            finally:
                self._post(Run(self.given_back))

    def _post(self, posted: Posted) -> None:
        if self.channel is None:
            posted.run(self)
        else:
            self.channel.post(posted)

    def _combine(self, task: Computing) -> Posted:
        local = self.locals.get(task.key)
        began_ns = time.perf_counter_ns()
        both = [task.left, task.right]
        for place, value in enumerate(both):
            try:
                both[place] = value.load() if isinstance(value, Stored) else value
            except Gone:
                return Missing(task.key, task.number, place == 0)
        try:
            for value in both:
                self._check_input(task.key, value)
            sums = [checksum(each) for each in both] if local and local.sum is not None else []
            value = combine(both[0], both[1], self.contents[task.key], local and local.own)
            if sums and sums != [checksum(each) for each in both]:
                raise errors.CombineFailed("the operation has written to its arguments")
        except errors.ReductionError as failure:
            return Computed(task.key, task.number, None, 0, type(failure).__name__, str(failure))
        except Exception as failure:
            where = traceback.extract_tb(failure.__traceback__)[-1]
            text = (
                f"the operation raised {type(failure).__name__}: {failure} ({where.filename}:{where.lineno})"
            )
            return Computed(task.key, task.number, None, 0, "CombineFailed", text)
        return Computed(task.key, task.number, value, time.perf_counter_ns() - began_ns)
