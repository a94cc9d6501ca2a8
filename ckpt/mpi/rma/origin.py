"""A window at the rank that works on others' memory: operations under way, and what is known of their outcome.

State of one target here:

    changing   messages without an answer were sent to it since its last answer to a FLUSH or UNLOCK
    lent       large sends that still read the program's memory
    error      an operation without a request has failed since the last synchronization, which will raise it

Answers of one target come in the order of the operations.

Not here: what the program may call when (epochs.py), the calls (transfers.py, synchronization.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import BOTTOM
from ckpt.mpi.base.errors import ERR_RMA_RANGE, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.engine.engine import COPY_BYTES
from ckpt.mpi.engine.operations import BufferSend, Done, Operation
from ckpt.mpi.members.state import unpack_error
from ckpt.mpi.rma import direct, wire
from ckpt.mpi.rma.operations import Answered

if TYPE_CHECKING:
    from ckpt.mpi.datatypes.buffers import BufferSpec
    from ckpt.mpi.rma.state import WindowState


class Origin:
    """The origin's side of one window at one rank. All methods need the engine's lock; none waits."""

    __slots__ = ("changing", "errors", "lent", "posted", "window")

    def __init__(self, window: WindowState) -> None:
        self.window = window
        self.changing: set[int] = set()
        self.lent: dict[int, list[BufferSend]] = {}
        self.errors: dict[int, MpiException] = {}
        self.posted: dict[int, int] = {}
        """Number of POST messages of each member that Start has not consumed."""

    # -- starting ----------------------------------------------------------------------------------

    def change(self, target: int, action: int, what: wire.Description, spec: BufferSpec) -> Operation:
        """Send data that change the target's memory. The operation is done when the program may reuse its buffer."""
        data = spec.read()
        self.changing.add(target)
        sequence = self.window.post(target, action, 0, wire.describe(what), data)
        if target == self.window.rank or len(data) < COPY_BYTES or not spec.dense:
            return Done()
        sent = BufferSend(self.window.engine, self.window, self.window.group[target], sequence)  # type: ignore[arg-type]
        self.lent.setdefault(target, []).append(sent)
        return sent

    def ask(
        self,
        target: int,
        action: int,
        body: bytes = b"",
        result_spec: BufferSpec | None = None,
        *,
        own_request: bool = False,
    ) -> Answered:
        """Send a message that has an answer."""
        operation = Answered(self.window, target, result_spec, own_request=own_request)
        self.window.post(target, action, self.window.expect(operation), body)
        return operation

    def get(self, target: int, what: wire.Description, into: BufferSpec, *, own_request: bool) -> Operation:
        """Read the target's memory: directly if that is possible and right (direct.py), else by a message."""
        action, reads = wire.GET, None
        dense = what.layout is None and into.dense and into.nbytes and into.obj is not BOTTOM
        if dense and target != self.window.rank:
            reads = direct.reads_of(self.window.engine)
        if reads is not None:
            unordered = target in self.changing or any(
                each.target == target for each in self.window.pending.values()
            )
            if not unordered and reads.read(self.window.number, target, what.offset, into):
                operation = Done()
                operation.nbytes = into.nbytes
                return operation
            if reads.wants_place(self.window.number, target):
                action = wire.GET_AND_TELL
        return self.ask(target, action, wire.describe(what), into, own_request=own_request)

    def outstanding(self, target: int) -> list[Operation]:
        """The operations after whose end all that was begun at the target is done there. Begins a FLUSH if needed."""
        if target in self.changing:
            return [self.flushing(target, wire.FLUSH)]
        return [each for each in self.window.pending.values() if each.target == target]

    def flushing(self, target: int, action: int) -> Operation:
        """Send a FLUSH or an UNLOCK with an answer. All that was begun before is done when it is done."""
        self.changing.discard(target)
        self.lent.pop(target, None)
        return self.ask(target, action)

    def abandon(self, operation: Operation) -> None:
        """Nobody waits for this operation any more; its answer, if it still comes, has no effect."""
        for token, each in list(self.window.pending.items()):
            if each is operation:
                self.window.answered(token)

    def take_error(self, target: int) -> MpiException | None:
        """The error that a synchronization with the target raises; it is reported once."""
        return self.errors.pop(target, None)

    # -- arriving ----------------------------------------------------------------------------------

    def on_message(self, member: int, action: int, token: int, data: Buffer) -> None:
        """Handle an answer, the POST of a member, or where its memory is."""
        if action == wire.POST:
            self.posted[member] = self.posted.get(member, 0) + 1
            return
        if action == wire.TOLD:
            reads = direct.reads_of(self.window.engine)
            if reads is not None:
                reads.learn(self.window.number, member, bytes(memoryview(data)[envelope.SIZE :]))
            return
        operation = self.window.answered(token)
        if operation is None:
            return  # it was abandoned
        if action == wire.FAILED:
            self._fail(operation, unpack_error(data))
        elif operation.result_spec is not None:
            self._fill(operation, operation.result_spec, data)
        operation.done = True

    def _fill(self, operation: Answered, spec: BufferSpec, data: Buffer) -> None:
        nbytes = len(data) - envelope.SIZE
        operation.nbytes = nbytes
        try:
            if nbytes > spec.nbytes or (spec.dense and nbytes != spec.nbytes):
                raise MpiException(ERR_RMA_RANGE, f"{nbytes} bytes came for {spec.nbytes} bytes")
            spec.write(data, envelope.SIZE)
        except Exception as error:  # the program has shrunk its buffer: it is told in its next call
            detail = f"the result cannot be stored: {error}"
            self._fail(operation, MpiException(ERR_RMA_RANGE, detail))

    def _fail(self, operation: Answered, error: MpiException) -> None:
        operation.error = error
        if not operation.own_request:
            self.errors.setdefault(operation.target, error)

    def lost(self, target: int, error: MpiException) -> None:
        """The target has died: operations on it end with the error."""
        self.changing.discard(target)
        for token, operation in list(self.window.pending.items()):
            if operation.target == target:
                self.window.answered(token)
                self._fail(operation, error)
                operation.done = True
