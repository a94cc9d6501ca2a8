"""The reductions of one communicator at this rank: messages, the thread that combines, futures. (driver)

    handlers     `_receive` and `_failed` are called by whoever makes progress, under the lock of the channel: a message is
                 taken and the state (members.py) changed under one hold of it, so an image has both or neither
    the thread   combines, out of the lock: a rank that computes does not keep others waiting. It takes its work from a
                 queue, and posts what it has: so it never waits for a program that waits inside of the library. It calls
                 the callbacks, and looks at deadlines
    images       hold all of it: state, queue, futures, and the thread where it is. In the middle of a combination the inputs
                 and the task are in the state; the thread goes on, or an image waits until it is out of C code

    the worker   combines arrays with operations of MPI, and reads results, where they lie in the host's memory
                 (combining.py). The handler itself does what is short

Not here: decisions (the pure modules), the memory (copies.py, values.py).

This module is long because what holds the lock, and in which order, is to be read in one place.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import ckpt
from ckpt.errors import NotReplicable
from ckpt.reduction import errors
from ckpt.reduction.body import MPI, Part, checksum, combine, parts_of
from ckpt.reduction.combining import Carried, Local
from ckpt.reduction.copies import Gone, Piece, Where, pattern, remove, remove_of, remove_stale, table_of
from ckpt.reduction.future import Ending, Future, Whole, is_divisible
from ckpt.reduction.keeping.calls import Calls
from ckpt.reduction.members import Completed, Computing, Forgotten, Reading, Sent, Step
from ckpt.reduction.messages import (
    AS_COPY,
    Call,
    Contract,
    Data,
    Fetch,
    Key,
    Message,
    Original,
    Path,
    Task,
    Vanished,
    path_of,
    ranks_of,
)
from ckpt.reduction.messages import Gone as Missed
from ckpt.reduction.partial import pending_text
from ckpt.reduction.posted import Due, Posted, Raise, Run, Timers
from ckpt.reduction.values import Shared, nbytes_of

T = TypeVar("T")
LOG = logging.getLogger("ckpt.reduction")


class Service(Ending):
    """All reductions on one communicator. Its methods are called by the program; see the header for the threads."""

    def __init__(self, comm: Any, number: int) -> None:
        self.comm = comm
        self.size: int = comm.Get_size()
        world = MPI.Group.Translate_ranks(comm.Get_group(), range(self.size), ckpt.comm.Get_group())
        self.world: list[int] = list(world)
        """The ranks' numbers in the world, by which what they leave is found."""
        super().__init__(comm.Get_rank(), self.size, self.world[comm.Get_rank()], number)
        self.begun: dict[tuple[Key, int], int] = {}
        self.swept: Path = 0
        self.again: dict[Key, list[Piece]] = {}
        """After a restart: what others were told where to read, there again."""
        self.work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.timers = Timers()
        if self.size > 1:
            ckpt.keep_file(pattern())
            atexit.register(self._at_exit)
            remove_stale()
            ckpt.on_status(self.status)
        self.channel = ckpt.ActiveMessages(comm, self._receive, self._failed) if self.size > 1 else None
        if self.size > 1:
            self.calls = Calls(self._table_of(self.rank))
        self.thread = threading.Thread(target=self._run, daemon=True, name="ckpt.reduction")
        self.thread.start()

    def _table_of(self, rank: int) -> str:
        """Of the calls of a rank."""
        assert self.channel is not None
        return table_of(self.world[rank], self.channel.key)

    # -- the program

    def locked(self, function: Callable[[], T]) -> T:
        """Call a function under the lock. The thread must not wait for it: its function is called by who has it."""
        if self.channel is None:
            return function()
        if threading.current_thread() is self.thread:
            call = Run(function)
            self.post(call)
            if call.failure is not None:
                raise call.failure
            return call.result  # type: ignore[return-value]
        with self.channel.lock:
            return function()

    def start(self, name: str, value: Any, contract: Contract, local: Local, problem: str) -> Future:
        """This rank's call. `problem`: what is wrong with the value. Raises NameInUse."""
        number = local.parts if self.size > 1 and is_divisible(contract) else 1
        local = local._replace(parts=number)
        if not (problem or self.carried):
            local = self.note(name, contract, local)  # before a lock is waited for
        try:
            carried = self.locked(lambda: self._take_carried(name, contract.content))
            if not problem:
                try:
                    for each in reversed(carried):
                        value = combine(each.value, value, contract.content, local.own)
                        local = local._replace(value=value, weight=each.weight + local.weight, sum=None)
                    if carried or local.noted is None:
                        local = self.note(name, contract, local)
                except Exception as failure:  # else the others would wait for this rank
                    problem = f"what came too late cannot be added to it: {type(failure).__name__}: {failure}"
            parts = [Part(value, contract.content)]
            try:
                if number > 1 and not problem:
                    parts = parts_of(value, contract.content, number)
            except Exception as failure:
                problem = f"it cannot be split: {type(failure).__name__}: {failure}"
            return self.locked(lambda: self._start(name, value, contract, parts, local, problem))
        except BaseException:
            self.calls.forget(local.noted)
            raise

    def _take_carried(self, name: str, content: str) -> list[Carried]:
        if name and self.members.in_use(name):
            raise errors.NameInUse(
                f"a reduction {name!r} of this rank has not ended yet: wait for its result", name
            )
        return self.carried.pop((name, content), [])

    def _start(
        self, name: str, value: Any, contract: Contract, parts: list[Part], local: Local, problem: str
    ) -> Future:
        key, future = self._begin(name, value, contract, parts, local, problem)
        for number, part in enumerate(parts[1:], 1):
            if future.done():
                break  # the first part has ended with an error, which all that live are told
            item, call = self._call(part, contract, local, problem)
            self._called(self.members.start_part(key, number, call, item), future, part, local, item)
        for wait_ns, what in ((contract.deadline_ns, "deadline"), (local.warn_ns, "warn")):
            if wait_ns and not future.done():
                self.later(key, what, wait_ns)
        return future

    def _begin(
        self, name: str, value: Any, contract: Contract, parts: list[Part], local: Local, problem: str
    ) -> tuple[Key, Future]:
        """The first part, which may be the only one."""
        item, call = self._call(parts[0], contract, local, problem)
        key, steps = self.members.start(name, call, item)
        self.calls.keep(key, local.noted)
        future = Future(self, key, value)
        if len(parts) > 1:
            self.wholes[key] = Whole(future, value, len(parts))
            future.is_in_parts = True
        self._called((key, steps), future, parts[0], local, item)
        return key, future

    def _call(self, part: Part, contract: Contract, local: Local, problem: str) -> tuple[Any, Call]:
        """What others read, and what they are told."""
        item, where = part.value, None
        if not problem:
            try:
                item, where = self.values.shared(part.value)
            except Exception as failure:
                problem = f"it cannot be sent: {type(failure).__name__}: {failure}"
        return item, Call(contract._replace(content=part.content), local.weight, problem, where)

    def _called(
        self, begun: tuple[Key, list[Step]], future: Future, part: Part, local: Local, item: Any
    ) -> None:
        key, steps = begun
        if isinstance(item, Piece | Shared):
            self.originals[key] = item
        if local.sum is not None and part.value is not local.value:
            local = local._replace(sum=checksum(part.value))
        self.futures[key] = future
        self.locals[key] = local._replace(value=part.value)
        self.contents.setdefault(key, part.content)
        self.do(steps)
        self.do(list(self.kept.pop(key, ())))

    def is_in_combine(self) -> bool:
        """Is the caller a function of the program that combines?"""
        return self.is_combining and threading.current_thread() is self.thread

    def later(self, key: Key, what: str, after_ns: int) -> None:
        """Have `Due` posted, if the reduction is not done by then. Needs the lock."""
        if self.timers.add(key, what, after_ns):
            self.work.put(None)

    def give(self, item: Any) -> None:
        """Work for the thread, in which the program's own functions are called: they must not wait for the program."""
        if self.channel is not None:
            self.channel.keep_out(self.thread)
        self.work.put(item)

    def given_back(self) -> None:
        """See Combining."""
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
        if self.channel is None:
            return True
        self.waiting += 1
        try:
            return self.channel.wait(future.done, timeout)
        finally:
            self.waiting -= 1

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

    def status(self) -> str:
        """For `ckpt status`. The lock is held."""
        return pending_text(self.members.pending(), self.members.counts)

    def free(self) -> None:
        """See ckpt.reduction.free."""
        unfinished = self.locked(self.members.pending)
        if unfinished:
            names = ", ".join(repr(name or count) for name, count in unfinished)
            raise errors.ReductionError(
                f"reductions that are not done at this rank: {names}: wait for their results"
            )
        if self.channel is not None:
            self.channel.wait(lambda: not self.members.members)
            self.channel.free()
            ckpt.remove_hook(self.status)
            atexit.unregister(self._at_exit)
        self.work.put("")
        self.thread.join()
        self.worker.stop()
        self.calls.close()
        self.values.memory.close()

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
            content = self._readable(source, key, content)
        if content is not None:
            self.do(self.members.receive(source, key, content))

    def _readable(self, source: int, key: Key, message: Original | Call) -> Original | Call | None:
        """The message, without the copy in it if that lies where it cannot be read, as on another host: it is asked for."""
        if message.held is None or not isinstance(message.held.value, Where):
            return message
        try:
            self.values.memory.find(message.held.value)  # mapped, it stays when its owner dies
        except Gone:
            owner = message.owner if isinstance(message, Original) else source
            if ckpt.failure_policy() == "continue":
                self.do([Sent(source, key, Fetch(1 << owner, AS_COPY))])
            return message._replace(held=None) if isinstance(message, Call) else None
        return message

    def _failed(self, rank: int) -> None:
        elsewhere = path_of(each for each in range(self.rank) if not os.path.exists(self._table_of(each)))
        for each in self.members.left_to_this(rank, elsewhere):
            self.adopt(each, self._table_of(each))
        self.do(self.members.died(rank))
        self._sweep()

    def _sweep(self) -> None:
        """Remove what dead ranks have left, if nothing is under way that might need it: the lowest rank that lives knows."""
        dead = self.members.dead & ~self.swept
        if dead and self.members.is_master() and not self.members.members:
            self.swept |= dead
            for rank in ranks_of(dead):
                remove_of(self.world[rank])
                remove(self._table_of(rank))

    def do(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Sent):
                self._send(step)
            elif isinstance(step, Computing):
                self._compute(step)
            elif isinstance(step, Reading):
                self._read(step)
            elif isinstance(step, Completed):
                self._complete(step)
            elif isinstance(step, Forgotten):
                self._forget(step.key)

    def _send(self, step: Sent) -> None:
        assert self.channel is not None
        message: Message = step.message
        future = self.futures.get(step.key)
        try:
            if isinstance(message, Data | Original | Call) and message.held is not None:
                value, _, where = held = message.held
                self._check_input(step.key, value)
                is_there = where is not None and not isinstance(message, Data)
                sent = where if is_there else self.values.outgoing(value)
                if future is not None and not isinstance(sent, Where):
                    future.count("bytes_sent", nbytes_of(sent))
                message = message._replace(held=held._replace(value=sent))
            self.channel.send(step.dest, (step.key, message))
        except (MPI.Exception, NotReplicable):  # what cannot be sent at all: to say so to the others neither
            raise
        except Gone:  # the result, or a copy, of a rank that died since
            assert isinstance(message, Data | Original)
            path = message.path if isinstance(message, Data) else 1 << message.owner
            if isinstance(message, Data):
                self.channel.send(step.dest, (step.key, Missed(path, message.number)))
            self.do(self.members.receive(self.rank, step.key, Vanished(path)))
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

    def _at_exit(self) -> None:
        """The program ends. Who needs what this rank gave asks it, until all have ended."""
        self.timers.drop_warnings()
        self.calls.close()
        self.values.memory.remove()

    def restored(self) -> None:
        """After a restart: the host's memory is to be filled again, and the worker to be told again."""
        if self.size > 1:
            self.values.memory.remove_former()
            self.calls = Calls(self._table_of(self.rank))
            atexit.register(self._at_exit)  # an image may leave it out
            self.locked(self._begin_again)
        self.work.put(None)  # the thread sleeps as long as before the image, without the time that has passed

    def _begin_again(self) -> None:
        self.again.clear()
        for key, held in self.members.shared():
            piece = None if isinstance(held.value, Where) else self.values.again(held.value, held.where)
            if piece is not None:
                self.again.setdefault(key, []).append(piece)
        under_way: list[Step] = [*self.under_way.values()]
        self.under_way.clear()
        self.do(under_way)

    def log(self, text: str) -> None:
        """See Ending."""
        self.work.put(text)

    def drop_timers(self, key: Key) -> None:
        """See Ending."""
        self.timers.drop(key)

    def _forget(self, key: Key) -> None:
        self._let_go(key)
        self.again.pop(key, None)
        for each in [each for each in self.begun if each[0] == key]:
            del self.begun[each]
        self._sweep()

    # -- the thread

    def _run(self) -> None:
        while True:
            try:
                item = self.work.get(timeout=self.timers.sleep_s())
            except queue.Empty:
                item = None
            if item == "":
                return  # freed
            try:
                self._work(item)
            except BaseException as failure:  # raised by the program's next call that communicates
                self.post(Raise(failure))

    def _work(self, item: Any) -> None:
        if item is None:
            for key, what in self.timers.take():
                self.post(Due(key, what))
        elif isinstance(item, Computing):
            self.post(self._combine(item))
        elif isinstance(item, str):
            LOG.warning("%s", item)
        else:
            function, future = item
            try:
                function(future)
            finally:
                self.post(Run(self.given_back))

    def run(self, posted: Posted) -> None:
        """See Combining."""
        posted.run(self)

    def post(self, posted: Posted) -> None:
        if self.channel is None:
            posted.run(self)
        else:
            self.channel.post(posted)
