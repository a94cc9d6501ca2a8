"""Combines two values and reads results: decides which thread of a rank does it. (driver)

    the handler    arrays up to HANDLER_BYTES with operations of MPI; up to WAITING_BYTES while the program waits
    the worker     longer ones, where they lie in the host's memory. It is a thread that is no part of images: what it works
                   on is memory that others may change after the image was taken, and addresses mean nothing after a
                   restart. The state of the reduction has the task and its inputs; they are given to a new worker then. It
                   runs no code of the program. One call of numpy for each task, since that takes the interpreter's lock
                   back once: in pieces, each of them would wait 5 ms for a program that computes in Python. The processor
                   reads the other's memory and adds at the same time
    the thread     all that the program has written: bodies, operations of its own. It is part of images, so what it is given
                   are values in this process's own memory

What a rank gives is written down when it calls (keeping/calls.py), before it is copied and told. If it dies, the lowest rank
that lives takes over what it does not have by then, as a copy that came in a message.

Not here: which tasks (member.py), threads that are part of images (service.py), memory (copies.py).
"""

from __future__ import annotations

import pickle
import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import ckpt
from ckpt.reduction import errors
from ckpt.reduction.body import OPERATIONS, Part, checksum, combine, parts_of
from ckpt.reduction.copies import Gone, Memory, Piece, Where
from ckpt.reduction.keeping.calls import Calls, Kept, Note
from ckpt.reduction.members import Computing, Members, Reading, Step, part_key, whole_of
from ckpt.reduction.messages import Contract, HeldItem, Key, Original
from ckpt.reduction.posted import Computed, Missing, Obtained, Posted, Run
from ckpt.reduction.values import Combination, Values

if TYPE_CHECKING:
    from ckpt.reduction.future import Future

HANDLER_BYTES = 1 << 20
"""0.1 ms at most, less than another thread takes to begin."""
WAITING_BYTES = 16 << 20
"""A few milliseconds, in which the thread that is here would only wait for the other one."""


class Local(NamedTuple):
    """What this rank's own call has said beside the contract. `own`: the program's operation. `sum`: of the input, if it is
    to be checked. `warn_ns`: after which a rank that has not called is named. `tolerant`: ranks may be missing. `noted`: the
    call is written down."""

    value: Any
    weight: float
    own: Any
    late: str
    sum: int | None
    warn_ns: int
    tolerant: bool
    on_loss: str = "raise"
    parts: int = 1
    noted: Note = None


class Carried(NamedTuple):
    """A contribution that came too late; it is added to the next reduction of the same name."""

    value: Any
    weight: float


class Given(NamedTuple):
    """What a rank writes down of its call, beside the array's address: an original. `parts`: into how many it is divided."""

    key: Key
    contract: Contract
    weight: float
    parts: int
    dtype: str
    shape: tuple[int, ...]


class Worker:
    """The thread, which begins with the first job. In an image it is a new one, without jobs."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None

    def __reduce__(self) -> Any:
        return Worker, ()

    def give(self, job: Callable[[], None]) -> None:
        """Have a function called in the thread. It must not raise."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, daemon=True, name="ckpt.reduction arrays")
            ckpt.harmless_threads(self.thread)
            self.thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        """Let it end when its jobs are done."""
        if self.thread is not None:
            self._jobs.put(None)
            self.thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class Combining:
    """What a service combines and reads. Its methods need the lock, but `_combine`."""

    def __init__(self, rank: int, size: int, world_rank: int, number: int) -> None:
        self.rank, self.members = rank, Members(rank, size)
        self.locals: dict[Key, Local] = {}
        self.contents: dict[Key, str] = {}
        self.futures: dict[Key, Future] = {}
        self.kept: dict[Key, list[Computing]] = {}
        """Tasks with the program's own operation or class, of reductions that this rank has not called yet."""
        self.values = Values(world_rank, number, size)
        self.calls = Calls("")
        self.originals: dict[Key, Any] = {}
        """What this rank gave, until all that live have their part: the copies that others have are where it lies."""
        self.worker = Worker()
        self.is_combining = False
        """The thread is in a function of the program that combines."""
        self.waiting = 0
        """So many calls of the program wait for results."""
        self.under_way: dict[tuple[Key, int], Computing | Reading] = {}
        """What the worker has been given: after a restart it is given anew. Reads have the number 0."""

    def do(self, steps: list[Step]) -> None:
        raise NotImplementedError

    def give(self, item: Any) -> None:
        raise NotImplementedError

    def given_back(self) -> None:
        """What was given is done."""
        raise NotImplementedError

    def post(self, posted: Posted) -> None:
        raise NotImplementedError

    def place(self, key: Key) -> Any:
        """Where the result is to be; None: in new memory."""
        raise NotImplementedError

    def run(self, posted: Posted) -> None:
        """What was done here at once."""
        raise NotImplementedError

    def note(self, name: str, contract: Contract, local: Local) -> Local:
        """Write down this rank's call, if it gives an array of which there are to be copies. Needs no lock."""
        array = local.value
        if not contract.copies or not isinstance(array, np.ndarray):
            return local
        self.calls.forget(local.noted)
        key = name, self.members.counts.get(name, 0)
        given = Given(key, contract, local.weight, local.parts, array.dtype.str, array.shape)
        return local._replace(noted=self.calls.note(key, array, pickle.dumps(tuple(given), 5)))

    def adopt(self, owner: int, table: str) -> None:
        """A rank is dead: take over what it gave and this rank lacks, from its memory, if that is kept."""
        try:
            kept = Kept(table)
        except OSError:
            return
        for call in kept.calls():
            given = Given(*pickle.loads(call.description))
            value = np.empty(given.shape, given.dtype)
            parts = [Part(value, given.contract.content)]
            if given.parts > 1:
                parts = parts_of(value, given.contract.content, given.parts)
            asked = [given.contract._replace(content=part.content) for part in parts]
            keys = [part_key(given.key, number) for number in range(len(parts))]
            wanted = [
                number for number, key in enumerate(keys) if self.members.lacks(key, owner, asked[number])
            ]
            if not wanted or value.nbytes != call.nbytes:
                continue
            try:
                kept.read(call, value)
            except OSError:
                continue
            for number in wanted:
                key = keys[number]
                item, where = self.values.shared(parts[number].value)
                self.contents.setdefault(key, asked[number].content)
                message = Original(owner, asked[number], HeldItem(item, given.weight, where))
                self.do(self.members.receive(self.rank, key, message))

    def _compute(self, step: Computing) -> None:
        content = self.contents[step.key]
        op = content.rpartition("|")[2]
        if step.key not in self.locals and op not in OPERATIONS:
            self.kept.setdefault(step.key, []).append(step)  # the program's class may not be there yet
            return
        given = (step.left, step.right, *(value for value, _ in step.more))
        found: list[Any] = []
        for value in given:
            try:
                found.append(self.values.array(value) if op in OPERATIONS else self.values.own(value))
            except Gone:
                self.do(self.members.vanished(step.key, step.number, len(found)))
                return
            if isinstance(value, Where):
                self._count_read(step.key, value)
        left, right, *rest = found
        more = tuple((value, is_left) for value, (_, is_left) in zip(rest, step.more, strict=True))
        if op not in OPERATIONS:
            self.give(step._replace(left=left, right=right, more=more))
            return
        for value in given:
            try:
                self._check_input(step.key, value)
            except errors.InputChanged as failure:
                self.do(self.members.trouble(step.key, step.number, "InputChanged", str(failure)))
                return
        item, out = self.values.room(left)
        places = tuple(each if isinstance(each, Where) else None for each in given)
        combination = Combination(op, left, right, more, out, places, self.values.memory)
        if self._at_once(out.nbytes):
            self.run(combined(step, combination, item))
        else:
            self.under_way[step.key, step.number] = step
            self.worker.give(lambda: self.post(combined(step, combination, item)))

    def _at_once(self, nbytes: int) -> bool:
        return nbytes <= (WAITING_BYTES if self.waiting else HANDLER_BYTES)

    def _count_read(self, key: Key, where: Where) -> None:
        future = self.futures.get(key)
        if future is not None:
            future.count("bytes_read", where.nbytes)

    def _read(self, step: Reading) -> None:
        memory = self.values.memory
        try:
            memory.find(step.where)
        except Gone:
            self.do(self.members.unread(step.key, step.path, step.where))
            return
        self._count_read(step.key, step.where)
        place = self.place(step.key)
        if self._at_once(step.where.nbytes):
            self.run(obtained(step, memory, place))
        else:
            self.under_way[step.key, 0] = step
            self.worker.give(lambda: self.post(obtained(step, memory, place)))

    def _check_input(self, key: Key, value: Any) -> None:
        local = self.locals.get(key)
        if local is None or local.sum is None:
            return
        given = value.source if isinstance(value, Piece) else value
        if given is not local.value:
            return
        try:
            now: int | None = checksum(given)
        except Exception:  # it was packed when it was given
            now = None
        if now != local.sum:
            raise errors.InputChanged(
                "what this rank gave was written to before the reduction had ended",
                whole_of(key)[0][0],
                (self.rank,),
            )

    def _combine(self, task: Computing) -> Posted:
        local, content = self.locals.get(task.key), self.contents.get(task.key)
        if content is None:  # all is over, without this task, which was taken back when somebody died
            return Run(self.given_back)
        began_ns, own = time.perf_counter_ns(), local and local.own
        given = (task.left, task.right, *(value for value, _ in task.more))
        self.is_combining = True
        try:
            for each in given:
                self._check_input(task.key, each)
            sums = [checksum(each) for each in given] if local and local.sum is not None else []
            value = combine(task.left, task.right, content, own)
            for each, is_left in task.more:
                value = combine(each, value, content, own) if is_left else combine(value, each, content, own)
            if sums and sums != [checksum(each) for each in given]:
                raise errors.CombineFailed("the operation has written to its arguments")
        except errors.ReductionError as failure:
            return Computed(task.key, task.number, None, 0, type(failure).__name__, str(failure))
        except BaseException as failure:  # sys.exit() too: else all would wait for ever
            where = traceback.extract_tb(failure.__traceback__)[-1]
            text = (
                f"the operation raised {type(failure).__name__}: {failure} ({where.filename}:{where.lineno})"
            )
            return Computed(task.key, task.number, None, 0, "CombineFailed", text)
        finally:
            self.is_combining = False
        return Computed(task.key, task.number, value, time.perf_counter_ns() - began_ns)


def combined(step: Computing, combination: Combination, item: Any) -> Posted:
    """Combine arrays: what is to be said of it. Called by the worker, too."""
    began_ns = time.perf_counter_ns()
    try:
        missing = combination.run()
    except Exception as failure:
        text = f"the operation raised {type(failure).__name__}: {failure}"
        return Computed(step.key, step.number, None, 0, "CombineFailed", text, is_given=False)
    if missing is not None:
        return Missing(step.key, step.number, missing)
    if isinstance(item, Piece):
        item.publish()
    return Computed(step.key, step.number, item, time.perf_counter_ns() - began_ns, is_given=False)


def obtained(step: Reading, memory: Memory, place: Any) -> Posted:
    """Copy a result from where it lies, to a place if there is one."""
    try:
        return Obtained(step, memory.load(step.where, place))
    except Gone:
        return Obtained(step, None)
