"""Operations: a send or receive that was started and will be done. A request holds one operation.

    started ──▶ done        both under the engine's lock; `poll` tells whether the operation is done
    done ──▶ result         asked for once, without the lock

An error that is noticed while a message arrives is not raised there. It is stored in `error`, and the wait or test of the
request raises it.

Operations are part of the process image. A memoryview of a received wire frame is pickled as bytes.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, ClassVar

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG
from ckpt.mpi.base.errors import ERR_REVOKED, ERR_TRUNCATE, SUCCESS, MpiException
from ckpt.mpi.base.progress import Buffer

if TYPE_CHECKING:
    from ckpt.mpi.datatypes.buffers import BufferSpec
    from ckpt.mpi.datatypes.status import Status
    from ckpt.mpi.engine.comm_state import CommShared
    from ckpt.mpi.engine.engine import Engine


def frozen(data: Any) -> Any:
    """`data`, or its bytes if `data` is a memoryview, which cannot be pickled."""
    return bytes(data) if type(data) is memoryview else data


class Operation:
    """Base class of all operations. `source`, `tag` and `nbytes` (of the message without envelope) are for the Status."""

    __slots__ = ("cancelled", "done", "error", "nbytes", "source", "tag")

    is_told: ClassVar[bool] = False
    """Is `done` set by what arrives, so that nobody has to ask `poll`?"""

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None
        self.source = ANY_SOURCE
        self.tag = ANY_TAG
        self.nbytes = 0
        self.cancelled = False

    def poll(self) -> bool:
        """Whether the operation is done. Called with the engine's lock held; never waits."""
        return self.done

    def result(self) -> Any:
        """The value that `Request.wait` (lower case) returns. Called once, when done, without the lock."""
        return None

    def complete(self, status: Status | None) -> Any:
        """Fill the status, raise the error or return the result. Called once, when done, without the lock."""
        if status is not None or self.error is not None:
            self.fill_status(status)
        return self.result()

    def fill_status(self, status: Status | None) -> None:
        """Fill the status, and raise the error if there is one. Called when done; does not change the operation."""
        error = self.error
        if status is not None:
            code = error.error_code if isinstance(error, MpiException) else SUCCESS
            status._fill(self.source, self.tag, self.nbytes, error=code, cancelled=self.cancelled)
        if error is not None:
            raise error

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for base in type(self).__mro__:
            for name in getattr(base, "__slots__", ()):
                if hasattr(self, name):
                    state[name] = frozen(getattr(self, name))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


class Done(Operation):
    """An operation that is done at its start: a send whose bytes were copied, a transfer with PROC_NULL."""

    __slots__ = ()

    def __init__(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> None:
        # as in the base class: one is made for each message of a nonblocking call
        self.done = True
        self.error = None
        self.source = source
        self.tag = tag
        self.nbytes = 0
        self.cancelled = False


class KeptOutcome(Operation):
    """The outcome of an operation in a call that raised: its object or its error. The request's next call takes it."""

    __slots__ = ("value",)

    def __init__(self, operation: Operation, value: Any, error: Exception | None) -> None:
        super().__init__()
        self.done = True
        self.source = operation.source
        self.tag = operation.tag
        self.nbytes = operation.nbytes
        self.cancelled = operation.cancelled
        self.value = value
        self.error = error

    def result(self) -> Any:
        return self.value


class FailedOperation(Operation):
    """An operation that could not start, because its peer has failed or the communicator is revoked.

    The wait of its request raises the error."""

    __slots__ = ("shared",)

    def __init__(self, shared: CommShared, error: MpiException) -> None:
        super().__init__()
        self.shared = shared
        self.done = True
        self.error = error


class BufferSend(Operation):
    """A send by reference. It is done when the transport no longer needs the user's memory."""

    __slots__ = ("dst", "engine", "sequence", "shared")

    def __init__(self, engine: Engine, shared: CommShared, dst: int, sequence: int) -> None:
        super().__init__()
        self.engine = engine
        self.shared = shared
        self.dst = dst
        self.sequence = sequence

    def poll(self) -> bool:
        if self.done:
            return True
        engine, dst = self.engine, self.dst
        if dst in engine.failed_ranks.known:
            self.error = engine.failed_ranks.failure(dst)
            self.done = True
        elif engine.progress.acked(dst) > self.sequence:
            self.done = True
        elif self.shared.revoked:
            self.error = MpiException(ERR_REVOKED, "the communicator is revoked")
            self.done = engine.progress.release(dst, self.sequence)
        return self.done


class SyncSend(Operation):
    """A synchronous send. It is done when the receiver has answered that the message was matched."""

    __slots__ = ("context", "dst", "token")
    is_told = True

    def __init__(self, dst: int, token: int, context: int) -> None:
        super().__init__()
        self.dst = dst
        self.token = token
        self.context = context


class Spot:
    """The memory of the program in which a receive wants the payload of the message that it will get. None: the receive is
    about to be posted."""

    __slots__ = ("memory", "receive")

    def __init__(self, receive: Receive | None, memory: memoryview | None) -> None:
        self.receive = receive
        self.memory = memory


SOON = Spot(None, None)


class Receive(Operation):
    """A receive.

    target None: the message is stored in `data`, and `result` unpickles it. target given: the buffer is filled when the
    message arrives. owner given: the message is passed to `owner.arrived(slot, data)` instead."""

    __slots__ = ("codec", "context", "data", "owner", "slot", "target", "ticket", "want_source", "want_tag")
    is_told = True

    def __init__(
        self,
        context: int,
        source: int,
        tag: int,
        target: BufferSpec | None = None,
        owner: Any = None,
        slot: int = 0,
    ) -> None:
        # as in the base class: one is made for each message that is awaited
        self.done = self.cancelled = False
        self.error = None
        self.source = ANY_SOURCE
        self.tag = ANY_TAG
        self.nbytes = 0
        self.context = context
        self.want_source = source
        self.want_tag = tag
        self.target = target
        self.owner = owner
        self.slot = slot
        self.ticket = 0
        self.codec: Any = None
        self.data: Buffer | None = None

    def accepts(self, source: int, tag: int) -> bool:
        return (self.want_source in (source, ANY_SOURCE)) and (self.want_tag in (tag, ANY_TAG))

    def fill(self, source: int, tag: int, data: Buffer) -> None:
        """Take the matched message. `data` includes the envelope."""
        self.source = source
        self.tag = tag
        self.nbytes = len(data) - envelope.SIZE
        if self.owner is not None:
            self.owner.arrived(self.slot, data)
        elif self.target is None:
            self.data = data
        else:
            self._write(self.target, data)
        self.done = True

    def spot(self, nbytes: int) -> Spot | None:
        """The memory for a payload of this size; None: the program has none for it, or not in one piece."""
        target = self.target if self.owner is None else self.owner.place(self.slot)
        if target is None or not target.dense or nbytes > target.nbytes:
            return None
        try:
            view = target.view()
        except (BufferError, ValueError):
            return None  # the memory is gone; what takes the message says so
        return None if view.readonly else Spot(self, view[:nbytes])

    def placed(self, source: int, tag: int, nbytes: int) -> None:
        """Take the matched message, whose payload is in the memory of `spot` already."""
        self.source = source
        self.tag = tag
        self.nbytes = nbytes
        if self.owner is not None:
            self.owner.arrived_in_place(self.slot, nbytes)
        self.done = True

    def _write(self, target: BufferSpec, data: Buffer) -> None:
        """Write the message into the program's buffer. If it is too long, it is truncated (`error` is ERR_TRUNCATE)."""
        if self.nbytes > target.nbytes:
            self.error = MpiException(
                ERR_TRUNCATE, f"message of {self.nbytes} bytes for a buffer of {target.nbytes} bytes"
            )
            target.write(memoryview(data)[: envelope.SIZE + target.nbytes], envelope.SIZE)
            self.nbytes = target.nbytes
        else:
            target.write(data, envelope.SIZE)

    def result(self) -> Any:
        data, self.data = self.data, None
        if data is None or len(data) <= envelope.SIZE:
            return None  # an empty buffer was sent, and is received as an object
        if self.codec is None:
            return pickle.loads(data)
        return self.codec.loads(memoryview(data)[envelope.SIZE :])
