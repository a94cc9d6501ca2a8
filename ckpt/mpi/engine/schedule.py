"""A collective operation under way: a program of sends, receives and local steps on numbered values (slots).

A *builder* (ckpt/mpi/collectives) writes the program once. The same program serves the blocking call (start, then wait),
the nonblocking call (start, return a request) and the persistent call (start again and again). No state of the program
is in a call stack, so a collective under way is pickled into a process image like any other data.

    send(peer, slot)      send the value of the slot to the peer; never waits
    recv(peer, slot)      the peer's next message becomes the value of the slot
    fence()               wait until the messages of all receives so far have arrived
    call(function, …)     call function(schedule, …), which works on the values

A value is immutable bytes (possibly a view of a received message), a `BufferSpec` (the program's memory, read when the
step runs), or an object that a call step has put there. Sent and received values are never written to, so the transport
may take them by reference. The program's memory may change after the operation is done; so when it was sent by reference,
the operation is done only after the acknowledgement.

The messages of one operation carry its tag, in the collective plane of the communicator, with world ranks as sources.
The tag is the number of the operation modulo TAGS, in the order of starts; MPI requires the same order at all ranks. If
an earlier operation still uses the tag, the new operation is queued behind it, so their messages cannot be confused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.datatypes import BYTE
from ckpt.mpi.engine.engine import REFERENCE_BYTES
from ckpt.mpi.engine.operations import Operation, Receive, frozen

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommShared
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.engine.matching import Context

TAGS = 16
"""Number of tags, and so of operations under way, of one communicator; further operations are queued."""

SEND = 0
RECV = 1
FENCE = 2
CALL = 3

VIEW_BYTES = 4096
"""From this size on a received message becomes a value as a memoryview, not as a copy."""


class Schedule(Operation):
    """One collective operation of one rank. `rank` and `size` are those of the local group.

    `pc`: index of the next step. `waiting`: receives that wait for a message. `suspended`: the program has stopped at a
    fence. `finisher`: makes the result from the schedule. `sent`: (world rank, sequence number) of messages sent by
    reference from the program's memory. `spots`: by slot, the program's memory in which a received value may be put at
    once; that memory is the value then. `initial`: the values at the first start, for a persistent operation."""

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
        "spots",
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
        self.spots: dict[int, BufferSpec] = {}
        self.pc = 0
        self.waiting = 0
        self.suspended = False

    # -- writing the program -----------------------------------------------------------------------

    def slot(self, value: Any = None) -> int:
        """The number of a new slot with this value."""
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
        """Start the operation, or queue it behind the operation that uses the same tag. The lock is held."""
        if self.engine.choices is not None:
            self.engine.choices.started()
        if self.shared.revoked or self.shared.broken:
            self.fail(self.engine.failed_ranks.collective_error(self.shared))
            return
        pending = self.shared.pending
        chain = pending.get(self.number)
        if chain is None:
            pending[self.number] = [self]
            self.advance()
        else:
            chain.append(self)

    def restart(self) -> None:
        """Start a persistent operation again, with the initial values."""
        if self.initial is None:
            self.initial = list(self.values)
        self.values = list(self.initial)
        self.pc = 0
        self.done = False
        self.error = None
        self.start()

    def fail(self, error: Exception) -> None:
        """End the operation with an error. It is done when the transport no longer needs the program's memory.

        The lock is held."""
        if self.error is None:
            self.error = error
        self.pc = len(self.program)
        self.waiting = 0
        self.suspended = False
        self.done = not self.sent

    def arrived(self, slot: int, data: Buffer) -> None:
        """Store the message of a posted receive in its slot. `data` includes the envelope."""
        self._put(slot, data)
        self._count_off()

    def _count_off(self) -> None:
        self.waiting -= 1
        if self.waiting == 0 and self.suspended:
            self.suspended = False
            self.engine.runnable.append(self)

    def place(self, slot: int) -> BufferSpec | None:
        """The program's memory in which the value of a slot may be put as soon as it comes. None after an error: the program
        uses that memory again."""
        return None if self.error is not None else self.spots.get(slot)

    def arrived_in_place(self, slot: int, nbytes: int) -> None:
        """The message of a posted receive has come, and is in the memory of `place`."""
        spec = self.spots[slot]
        self.values[slot] = spec if nbytes == spec.nbytes else BufferSpec(spec.obj, nbytes, BYTE, spec.offset)
        self._count_off()

    def _put(self, slot: int, data: Buffer) -> None:
        if len(data) < VIEW_BYTES:
            self.values[slot] = bytes(data[envelope.SIZE :])
        else:
            self.values[slot] = memoryview(data)[envelope.SIZE :]

    def advance(self) -> None:
        """Run the program to its end, or to a fence that has to wait. The lock is held.

        An exception of a step is not raised: it is stored in `error`."""
        program = self.program
        if self.done or self.error is not None:
            return  # the operation has failed since it was queued
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
            sequence = self.engine.send_memory(dst, self.head, value)
            if sequence is not None:
                self.sent.append((dst, sequence))
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
        """The program has ended: start the next operation with the same tag, if one is queued."""
        chain = self.shared.pending[self.number]
        chain.pop(0)
        if chain:
            self.engine.runnable.append(chain[0])
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
    """The bytes of a value: those of the program's memory for a BufferSpec, else the value."""
    return value.read() if type(value) is BufferSpec else value
