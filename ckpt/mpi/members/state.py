"""What the members of a group share, at one of them: its messages, and what waits for their answers.

The engine knows it as a `Window` (ckpt/mpi/engine/windows.py). It is part of the image. A message is an envelope of kind
WINDOW: source is the sender's rank in the group, tag is the action, context is the number of what is shared, token is the
number of the question at the member that has asked.

Not here: which messages there are (rma/wire.py, io/wire.py).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import ERR_OTHER, ERR_REVOKED, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.engine.engine import COPY_BYTES

if TYPE_CHECKING:
    from ckpt.mpi.comm.communicator import Intracomm
    from ckpt.mpi.engine.engine import Engine


class MemberState:
    """`group`: world ranks of the members. `private`: a communicator of them, for collectives of what is shared. `handle`:
    makes a handle of it, for its error handler. `pending`: what waits for an answer, by token."""

    __slots__ = (
        "engine",
        "errhandler",
        "freed",
        "group",
        "handle",
        "info",
        "number",
        "pending",
        "private",
        "rank",
        "revoked",
        "token",
    )
    _kind: ClassVar[str]
    """What is shared, in words."""

    def __init__(self, engine: Engine, private: Any, handle: Callable[..., Any]) -> None:
        self.engine = engine
        self.private = private
        self.number: int = private._shared.base
        self.group: tuple[int, ...] = private._shared.group
        self.rank: int = private.rank
        self.handle = handle
        self.errhandler: Any = None
        self.info: dict[str, str] = {}
        self.freed = False
        self.revoked = False
        """The communicator that it was made of is revoked: nothing may begin, and what was begun has ended."""
        self.token = 0
        self.pending: dict[int, Any] = {}

    @property
    def is_dynamic(self) -> bool:
        return False

    def join(self, comm: Any) -> None:
        """It is made of `comm`: when that is revoked, the private communicator is, too."""
        with self.engine.lock:
            comm._shared.parts += (self.number,)
            if comm._shared.revoked:
                self.engine.failed_ranks.revoke(self.number)

    def leave(self) -> None:
        """This member has done with it."""
        engine = self.engine
        with engine.lock:
            self._leave()
            for shared in engine.shared.values():
                shared.parts = tuple([part for part in shared.parts if part != self.number])
        self.private.Free()

    def failure(self, rank: int) -> MpiException | None:
        """The error of what needs a member that has failed, or of a revoked communicator; else None."""
        if self.revoked:
            return MpiException(ERR_REVOKED, f"the communicator of the {self._kind} is revoked")
        world = self.group[rank]
        failed_ranks = self.engine.failed_ranks
        return failed_ranks.failure(world) if world in failed_ranks.known else None

    # -- the engine's lock is held -----------------------------------------------------------------

    def expect(self, operation: Any) -> int:
        """The token of a message with an answer that the operation waits for."""
        self.token += 1
        self.pending[self.token] = operation
        self.engine.windows.awaited += 1
        return self.token

    def answered(self, token: int) -> Any:
        """The operation that waited for this answer, and no longer does; None: it was abandoned."""
        operation = self.pending.pop(token, None)
        if operation is not None:
            self.engine.windows.awaited -= 1
        return operation

    def post(
        self, rank: int, action: int, token: int = 0, body: bytes = b"", payload: Buffer | None = None
    ) -> int:
        """Send a message to a member; one to this rank is handled before this returns, or in its turn.

        Returns the transport's sequence number, by which a large payload that is sent by reference is acknowledged."""
        world = self.group[rank]
        head = envelope.pack(envelope.WINDOW, self.rank, action, self.number, token) + body
        if rank == self.rank:
            windows = self.engine.windows
            receive = self.on_message if windows.ordered is None else windows.on_message
            receive(world, head if payload is None else b"".join((head, payload)))
            return 0
        if payload is None or len(payload) < COPY_BYTES:
            return self.engine.progress.send(world, head if payload is None else b"".join((head, payload)))
        return self.engine.progress.send(world, head, payload)

    def on_message(self, src: int, data: Buffer) -> None:
        """Handle a message of the world rank `src`. Messages of ranks that have failed are dropped."""
        if src not in self.engine.failed_ranks.known:
            _, member, action, _, token = envelope.unpack(data)
            self._handle(member, action, token, data)

    def _handle(self, member: int, action: int, token: int, data: Buffer) -> None:
        raise NotImplementedError

    def change(self, data: Buffer) -> bytes:
        """See `Windows.change`."""
        raise NotImplementedError

    def changed(self, src: int, data: Buffer, failure: bytes) -> None:
        """See `Windows.changed`."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Close it here. When a member has failed, some may still send, and are told that this one has left."""
        raise NotImplementedError


def private_copy(comm: Intracomm) -> Any:
    """A communicator of the same ranks for what they share. Its errors are raised. Collective."""
    private = comm._copy_of(comm._new_base(), None)
    private._shared.errhandler = None
    return private


def pack_error(error: Exception, rank: int) -> bytes:
    """The body of an answer: what went wrong at this rank of the group."""
    code, text = ERR_OTHER, f"{type(error).__name__}: {error}"
    if isinstance(error, MpiException):
        code, text = error.error_code, error.detail
    return pickle.dumps((code, f"at rank {rank}: {text}"), 5)


def unpack_error(data: Buffer) -> MpiException:
    """The error in an answer."""
    return MpiException(*pickle.loads(memoryview(data)[envelope.SIZE :]))
