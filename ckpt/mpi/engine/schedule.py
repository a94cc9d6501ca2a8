"""A collective operation under way: a program of sends, receives and local steps over a few values.

A *builder* (collectives_*.py) writes the program once; the same program serves the blocking call (start,
then wait), the nonblocking one (start, give a request) and the persistent one (start again and again).
Nothing of it lives in a call stack, so a half-done collective is part of a process image like any other
data.

    send(peer, slot)      the value of the slot goes to the peer; never waits
    recv(peer, slot)      the peer's next message will be the value of the slot
    fence()               go on when all receives so far have arrived
    call(function, …)     function(schedule, …) works on the values

A value is immutable bytes (possibly a view of a received message), a `BufferSpec` (the program's own
memory, read when the step runs), or whatever calls put there. Values that were sent or received are never
written to, therefore they can go down by reference; only memory of the program must not change before it is
acknowledged: then completion waits for that.

Messages of one operation carry its tag, in the collective plane of the communicator, with world ranks as
sources. Tags are numbered in the order in which operations are started, which MPI demands to be equal at
all ranks, modulo TAGS. An operation whose tag is still in use by an earlier one is queued behind it, so
messages of the two cannot be confused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.engine.engine import REFERENCE_BYTES
from ckpt.mpi.engine.operations import Operation, Receive, frozen

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommShared
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.engine.matching import Context

TAGS = 16
"""Tags in use by operations under way; further operations of a communicator queue."""

SEND = 0
RECV = 1
FENCE = 2
CALL = 3

COPY_BYTES = 2 << 20
"""The program's own memory is copied when sent below this, else waited for."""

VIEW_BYTES = 4096
"""Received messages from this size on are viewed instead of sliced."""


class Schedule(Operation):
    """One collective operation of one rank. `rank` and `size` are those of the local group."""

    __slots__ = (
        "context",
        "engine",
        "finisher",
        "head",
        "initial",
        "number",
        "pc",
        "peers",
        "program",
        "rank",
        "receives",
        "sent",
        "shared",
        "size",
        "suspended",
        "values",
        "waiting",
    )

    def __init__(self, engine: Engine, shared: CommShared, rank: int, number: int) -> None:
        """number: the operation's tag, equal at all ranks."""
        super().__init__()
        self.engine = engine
        self.shared = shared
        self.context: Context = engine.matcher.context(shared.base + envelope.PLANE_COLLECTIVE)
        self.number = number
        self.rank = rank
        self.peers = shared.group
        self.size = len(shared.group)
        self.head = envelope.pack(envelope.EAGER, engine.progress.rank, number, self.context.number)
        self.program: list[tuple[Any, ...]] = []
        self.values: list[Any] = []
        self.initial: list[Any] | None = None
        self.finisher: Callable[..., Any] | None = None
        self.receives: list[Receive] = []
        self.sent: list[tuple[int, int]] = []
        self.pc = 0
        self.waiting = 0
        self.suspended = False

    # -- writing the program -----------------------------------------------------------------------

    def slot(self, value: Any = None) -> int:
        """A new value."""
        self.values.append(value)
        return len(self.values) - 1

    def send(self, peer: int, slot: int) -> None:
        self.program.append((SEND, self.peers[peer], slot))

    def recv(self, peer: int, slot: int) -> None:
        self.program.append((RECV, self.peers[peer], slot))

    def fence(self) -> None:
        self.program.append((FENCE,))

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        self.program.append((CALL, function, args))

    # -- running it --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, or queue behind the operation that uses the same tag. The lock is held."""
        if self.shared.revoked or self.shared.broken:
            self.fail(self.engine.losses.collective_error(self.shared))
            return
        pending = self.shared.pending
        chain = pending.get(self.number)
        if chain is None:
            pending[self.number] = [self]
            self.advance()
        else:
            chain.append(self)

    def restart(self) -> None:
        """Begin again (a persistent operation)."""
        if self.initial is None:
            self.initial = list(self.values)
        self.values = list(self.initial)
        self.pc = 0
        self.done = False
        self.error = None
        self.start()

    def fail(self, error: Exception) -> None:
        """End with an error; done once the program's memory is no longer needed. The lock is held."""
        if self.error is None:
            self.error = error
        self.pc = len(self.program)
        self.waiting = 0
        self.suspended = False
        self.done = not self.sent

    def arrived(self, slot: int, data: Buffer) -> None:
        """A posted receive got its message (envelope included)."""
        self._put(slot, data)
        self.waiting -= 1
        if self.waiting == 0 and self.suspended:
            self.suspended = False
            self.engine.ready.append(self)

    def _put(self, slot: int, data: Buffer) -> None:
        if len(data) < VIEW_BYTES:
            self.values[slot] = bytes(data[envelope.SIZE :])
        else:
            self.values[slot] = memoryview(data)[envelope.SIZE :]

    def advance(self) -> None:
        """Run until a fence that waits, or to the end. The lock is held; exceptions of calls become
        `error`."""
        program = self.program
        if self.done or self.error is not None:
            return  # failed meanwhile
        try:
            while self.pc < len(program):
                step = program[self.pc]
                code = step[0]
                if code == FENCE:
                    if self.waiting:
                        self.suspended = True
                        return
                    self.pc += 1
                    continue
                self.pc += 1
                if code == SEND:
                    self._send(step[1], step[2])
                elif code == RECV:
                    self._recv(step[1], step[2])
                else:
                    step[1](self, *step[2])
        except Exception as error:
            self.error = error
            self.pc = len(program)
        if self.waiting and self.error is None:
            self.suspended = True
            return
        self._end()

    def _send(self, dst: int, slot: int) -> None:
        value = self.values[slot]
        progress = self.engine.progress
        self.nbytes += len(value) if type(value) is not BufferSpec else value.nbytes
        if type(value) is BufferSpec:
            data = value.read()
            if len(data) < REFERENCE_BYTES:
                progress.send(dst, self.head + data)
            elif len(data) < COPY_BYTES or not value.dense:
                progress.send(dst, self.head, bytes(data))
            else:
                self.sent.append((dst, progress.send(dst, self.head, data)))
        elif len(value) < REFERENCE_BYTES:
            progress.send(dst, self.head + value)
        else:
            progress.send(dst, self.head, value)

    def _recv(self, src: int, slot: int) -> None:
        engine = self.engine
        channel = self.context.channels.get((src, self.number))
        if channel is not None and channel.messages:
            data = engine.matcher.pop(channel)
            engine.settle_account(channel, data)
            self._put(slot, data)
            return
        self.waiting += 1
        engine.matcher.post(
            self.context, Receive(self.context.number, src, self.number, None, self, slot), src
        )

    def _end(self) -> None:
        """The program has run: let the next operation of this tag begin."""
        chain = self.shared.pending[self.number]
        chain.pop(0)
        if chain:
            self.engine.ready.append(chain[0])
        else:
            del self.shared.pending[self.number]
        self.done = not self.sent

    def poll(self) -> bool:
        if not self.done and self.sent and self.pc == len(self.program) and not self.waiting:
            progress = self.engine.progress
            while self.sent:
                dst, sequence = self.sent[-1]
                if progress.acked(dst) <= sequence and not (
                    self.error is not None and progress.release(dst, sequence)
                ):
                    return False
                self.sent.pop()
            self.done = True
        return self.done

    def result(self) -> Any:
        return None if self.finisher is None else self.finisher(self)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["values"] = [frozen(value) for value in self.values]
        return state


def load(value: Any) -> Buffer:
    """The bytes of a value."""
    return value.read() if type(value) is BufferSpec else value
