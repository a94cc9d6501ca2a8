"""Communication of a solve: everything goes over one communicator, point to point, so that one call can end all of it.

States of a link: *open* (messages go), *ended* (a failure was met: the communicator is revoked, every call of every
rank in it raises `Interrupted`), then open again after `meet`, on a communicator of those that live. Messages of an
earlier communicator are never received.

A death costs nothing until somebody meets it: a send to the dead rank or a receive from it raises. Who meets it
revokes, so all hear of it at their next call, or in the one they are in.

`meet` is a collective: one agreement on who lives and on what everybody says (`shrink`). So all that come out of a
meeting have the same states, and nobody comes out alone. `living` is another one: who lives, and nothing more. After a
meeting, `ask` and `merge` make new processes members of the group; each of them is an agreement too.

With `seals` every array travels with its digest (seals.py). One that is not what was sent is as good as a failure: the
rank that got it ends the communication, all meet, and the step is made again from what everybody has.

Ranks are those of the grid's communicator, whatever the present one is. `hook`, for tests, is called with a name and
"before" or "after" around every call.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ckpt import MPI
from ckpt.abft.errors import Inaccurate
from ckpt.abft.numbers.local import bytes_of
from ckpt.abft.numbers.seals import Spoilt, opened, room, sealed
from ckpt.mpi import MpiException

__all__ = ["Hook", "Interrupted", "Link", "tag"]


_SPOILT = 10
"""An operation in which a rank gets more spoilt arrays than that ends: they are no accident."""


class _State(Protocol):
    @property
    def rank(self) -> int: ...


S = TypeVar("S", bound=_State)
Hook = Callable[[str, str], None]
Array = npt.NDArray[Any]


_STARTED = (
    "from ckpt import MPI; met = MPI.Comm.Get_parent().merge(MPI.COMM_WORLD.rank); "
    "from ckpt.abft.solver.started import serve; serve(*met)"
)
"""The program of a new process. It meets the others before it imports numpy, so that they need not wait for that."""


_KINDS = "part piece panel rows update token block solution right unknown partial kept factor".split()  # noqa: SIM905


def tag(kind: str, k: int) -> int:
    """The tag of messages of this kind in step k."""
    return k * 16 + _KINDS.index(kind)


class Interrupted(Exception):
    """A member has died, an array was spoilt, or another rank has ended the communication: all meet."""


class Link:
    """This rank's end. `comm`: of all ranks of the grid, living or not. `rank`: of this process, if it is none of these.
    `seals`: arrays travel with digests. `spoilt`: how many were not what was sent."""

    def __init__(
        self, comm: Any, hook: Hook | None = None, rank: int | None = None, *, seals: bool = False
    ) -> None:
        self.rank: int = comm.rank if rank is None else rank
        self.seals, self.spoilt = seals, 0
        self._comm = comm
        self._own = False
        self._intact = True  # nothing on the communicator was interrupted
        self._former: list[Any] = []  # to be freed
        self._index: dict[int, int] = {}
        self._started: Any = None
        self._hook = hook

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        if self._hook is not None:
            self._hook(name, "before")
        try:
            yield
        except MpiException as error:
            if error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED):
                self._intact = False
                raise Interrupted(str(error)) from None
            raise
        if self._hook is not None:
            self._hook(name, "after")

    def send(self, target: int, array: Array, tag: int) -> None:
        """Send a contiguous array; returns when it may be changed."""
        self.send_memory(target, self._memory(array), tag)

    def send_memory(self, target: int, memory: Array, tag: int) -> None:
        """Send memory that has its own digest, if there are any."""
        with self._call("send"):
            self._comm.Send(memory, self._index[target], tag)

    def _memory(self, array: Array) -> Array:
        return sealed(bytes_of(array)) if self.seals else bytes_of(array)

    def start_send(self, target: int, array: Array, tag: int) -> Any:
        """Start to send; the array must stay as it is until `finish` has been called with what is returned."""
        return self.start_send_memory(target, self._memory(array), tag)

    def start_send_memory(self, target: int, memory: Array, tag: int) -> Any:
        with self._call("start_send"):
            return self._comm.Isend(memory, self._index[target], tag)

    def start_sends(self, targets: Iterable[int], array: Array, tag: int) -> list[Any]:
        """As `start_send`, to all of these ranks but this one."""
        memory = self._memory(array)
        return [self.start_send_memory(rank, memory, tag) for rank in targets if rank != self.rank]

    def finish(self, *requests: Any) -> None:
        for request in requests:
            with self._call("finish"):
                request.Wait()

    def exchange(
        self, ranks: Sequence[int], mine: Array, shapes: Mapping[int, tuple[int, ...]], tag: int
    ) -> dict[int, Array]:
        """Everybody's array to everybody of `ranks`, this rank among them; `shapes`: of each."""
        requests = self.start_sends(ranks, mine, tag)
        found = {
            rank: mine if rank == self.rank else self.receive(rank, shapes[rank], mine.dtype, tag)
            for rank in ranks
        }
        self.finish(*requests)
        return found

    def receive(self, source: int, shape: tuple[int, ...], dtype: Any, tag: int) -> Array:
        """Receive an array of this shape."""
        if not self.seals:
            array = np.empty(shape, dtype=dtype)
            self._receive(source, bytes_of(array), tag)
            return array
        kind = np.dtype(dtype)
        memory = self.receive_into(source, room(math.prod(shape) * kind.itemsize), tag)
        found: Array = memory.view(kind).reshape(shape)
        return found

    def receive_into(self, source: int, memory: Array, tag: int) -> Array:
        """Receive memory that has its own digest, if there are any. Returns what is before that."""
        self._receive(source, memory, tag)
        if not self.seals:
            return memory
        try:
            return opened(memory)
        except Spoilt as error:
            self.spoilt += 1
            self._intact = False
            if self.spoilt > _SPOILT:
                raise Inaccurate(f"{error}, {self.spoilt} times, the last time from rank {source}") from None
            raise Interrupted(str(error)) from None

    def _receive(self, source: int, memory: Array, tag: int) -> None:
        with self._call("receive"):
            self._comm.Recv(memory, self._index[source], tag)

    def end(self) -> None:
        """End all communication, at every rank."""
        self._intact = False
        if self._own:
            with self._call("revoke"):
                self._comm.Revoke()

    def look(self) -> None:
        """Has a member ended the communication? Costs no lock. Raises Interrupted."""
        if self._own and self._comm.Is_revoked():
            self._intact = False
            raise Interrupted("while this rank computed")

    def meet(self, state: S) -> dict[int, S]:
        """Everybody's state, the same at every rank that returns; only of living ranks. Ends what is under way."""
        former, before = self._former, self._comm if self._own else None
        with self._call("shrink"):
            self._comm, states = self._comm.shrink(state)
        for each in former:  # all have come out of the agreement on it, since they have come to the next one
            each.Free()
        self._former = [before] if before is not None and self._intact else []  # nothing is under way on it
        self._own, self._intact = True, True
        self._index = {each.rank: place for place, each in enumerate(states)}
        return {each.rank: each for each in states}

    def ask(self, counts: Sequence[int]) -> int | None:
        """Right after a meeting: ask for new processes (`ckpt run --spares K`), the largest of these numbers that there are.
        How many have been started, the same at every rank that returns; None: refused. `merge` follows."""
        mpi: Any = MPI
        info = mpi.Info.Create({"soft": ",".join(map(str, counts))})
        with self._call("spawn"):
            try:
                found = self._comm.Spawn(sys.executable, ["-c", _STARTED], max(counts), info)
            except MpiException as error:
                if error.Get_error_class() == MPI.ERR_SPAWN:
                    return None
                raise
        self._started = found
        return int(found.remote_size)

    def merge(self, said: Any) -> list[Any]:
        """Everybody's object, the same at every rank that returns, of members and new processes that live. The communicator
        is that of all of them from now on; `adopt` says which ranks they are."""
        started, self._started = self._started, None
        with self._call("merge"):
            merged, found = started.merge(said)
        self._former += [self._comm, started]
        self._comm, self._index = merged, {}
        return list(found)

    def adopt(self, ranks: Iterable[int]) -> None:
        """The ranks of the communicator, in its order."""
        self._own, self._intact = True, True
        self._index = {rank: place for place, rank in enumerate(ranks)}

    @property
    def has_met(self) -> bool:
        return self._own

    def living(self) -> tuple[int, ...]:
        """Who lives of those that were at the last meeting, the same at every rank that returns. One agreement; the
        communicator and what is under way on it stay. There must have been a meeting."""
        with self._call("agree"):
            dead = self._comm.Agree_failed()
        places = dead.Translate_ranks(None, self._comm.Get_group())
        return tuple(sorted(rank for rank, place in self._index.items() if place not in places))

    def close(self) -> None:
        """Let go of the communicator."""
        for each in self._former:
            each.Free()
        self._former = []
        if self._own:
            self._comm.Free()
            self._own = False
