"""`MPI.Message`: a matched message (MPI standard, "Matching probe"). mprobe takes it from the mailbox; then only this
object can receive it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from ckpt.mpi.base.errors import ERR_REQUEST, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.buffers import EMPTY, simple
from ckpt.mpi.engine.operations import Receive, frozen
from ckpt.mpi.requests.request import Request

if TYPE_CHECKING:
    from ckpt.mpi.comm.object_messages import ObjectMessages
    from ckpt.mpi.datatypes.status import Status
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.engine.matching import Channel


class Message(Handle):
    """A matched message.

    States: null (`_data` None: received, or never matched), matched (`_data` holds the message with its envelope), and
    no-proc (`_source` is PROC_NULL: a receive returns None at once, with the source PROC_NULL)."""

    __slots__ = ("__weakref__", "_context", "_data", "_engine", "_source", "_tag")
    _constants: ClassVar[tuple[str, ...]] = ("MESSAGE_NULL", "MESSAGE_NO_PROC")

    _context: int
    _data: Buffer | None
    _engine: Engine | None
    _source: int
    _tag: int

    def __new__(cls, message: Message | None = None) -> Self:
        expect(cls, message, Message)
        self = super().__new__(cls)
        self._context = 0 if message is None else message._context
        self._data = None if message is None else message._data
        self._engine = None if message is None else message._engine
        self._source = ANY_SOURCE if message is None else message._source
        self._tag = ANY_TAG if message is None else message._tag
        return self

    @classmethod
    def _take(cls, engine: Engine, channel: Channel, status: Status | None) -> Message:
        """Remove the oldest message from a channel and make it a matched message. The lock is held."""
        message = cls()
        message._engine = engine
        message._context = channel.context.number
        message._source = channel.source
        message._tag = channel.tag
        message._data = data = engine.matcher.pop(channel)
        engine.settle_account(channel, data)
        if status is not None:
            status._fill(channel.source, channel.tag, len(data) - envelope.SIZE)
        return message

    @classmethod
    def _make_no_proc(cls) -> Message:
        message = cls()
        message._source = PROC_NULL
        return message

    def __image_reduce__(self) -> Any:
        return self._named() or (type(self), (), self.__getstate__())

    def _discard(self) -> None:
        self._data = None
        self._source = ANY_SOURCE

    def __getstate__(self) -> tuple[Any, ...]:
        return self._engine, self._source, self._tag, frozen(self._data), self._context

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._engine, self._source, self._tag, self._data, self._context = state

    def __bool__(self) -> bool:
        return self._data is not None or self._source == PROC_NULL

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._data is other._data and self._source == other._source

    __hash__ = None

    def _receive(self, buf: Any, *, as_object: bool) -> Receive:
        """A Receive operation of this message, which is done. The message becomes null.

        MpiException (ERR_REQUEST): the message is null."""
        if not self:
            raise MpiException(ERR_REQUEST, "the message was received already")
        spec = None
        if not as_object:
            spec = EMPTY if self._source == PROC_NULL else simple(buf, writable=True)
        receive = Receive(self._context, self._source, self._tag, spec)
        if self._data is not None:
            receive.fill(self._source, self._tag, self._data)
        else:
            receive.source = PROC_NULL
            receive.done = True
        receive.codec = None if self._engine is None else self._engine.codec
        if self._named() is None:
            self._data = None
            self._source = ANY_SOURCE
        return receive

    def recv(self, status: Status | None = None) -> Any:
        """Receive the message as an object."""
        return self.irecv().wait(status)

    def irecv(self) -> Request:
        return Request._make(self._engine, self._receive(None, as_object=True))

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        """Receive the message into a buffer. MpiException (ERR_TRUNCATE): the buffer is too small."""
        self.Irecv(buf).wait(status)

    def Irecv(self, buf: Any) -> Request:
        return Request._make(self._engine, self._receive(buf, as_object=False))

    @classmethod
    def probe(
        cls, comm: ObjectMessages, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message:
        return comm.mprobe(source, tag, status)

    @classmethod
    def iprobe(
        cls, comm: ObjectMessages, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message | None:
        return comm.improbe(source, tag, status)

    Probe = probe
    Iprobe = iprobe


MESSAGE_NULL = Message()
MESSAGE_NO_PROC = Message._make_no_proc()
