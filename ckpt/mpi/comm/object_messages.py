"""Point-to-point messages of Python objects (lower-case names), which are pickled with protocol 5.

`send` returns when the message is queued; it waits only while the backlog to the destination is high. The pickled bytes of
an object never change, so the transport takes large ones by reference, and `send` does not wait for the acknowledgement.
`ssend` waits until a receive has matched the message. Ordinary small messages use the fast path (engine/quick.py); when the
fast path has done nothing, the Python code here does the work.

Programs derive classes from communicators and override methods (mpi4py.util.pkl5 does). So a method here never calls a
public method through `self`.
"""

from __future__ import annotations

import pickle
import warnings
from typing import TYPE_CHECKING, Any

from ckpt.compat.threads import captured_in_threads
from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from ckpt.mpi.base.errors import MpiException, PeerFailed
from ckpt.mpi.base.handlers import NoHandlers
from ckpt.mpi.base.integers import argument
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.guard import handled
from ckpt.mpi.comm.message import Message
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.op import Op
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.comm_state import CommShared
from ckpt.mpi.engine.engine import REFERENCE_BYTES, SEND_CHECK_MASK, Engine
from ckpt.mpi.engine.failures import FailedRanks
from ckpt.mpi.engine.matching import Channel, Context, Matcher
from ckpt.mpi.engine.operations import BufferSend, Done, FailedOperation, Operation, Receive, Spot
from ckpt.mpi.requests.request import Request
from ckpt.mpi.slots.exchange import Exchange

if TYPE_CHECKING:
    from ckpt.mpi.base.progress import Buffer
    from ckpt.mpi.datatypes.status import Status

for _known in (
    CommBase,
    CommShared,
    Engine,
    Channel,
    Context,
    Matcher,
    FailedRanks,
    Exchange,
    Op,
    Receive,
    BufferSpec,
    Done,
    BufferSend,
    Request,
    Spot,
    NoHandlers,
):
    quick.know(_known)

_dumps = pickle.dumps
_loads = pickle.loads


class ObjectMessages(CommBase):
    """send, recv, sendrecv, their nonblocking and synchronous forms, and probe.

    Errors: MpiException with ERR_RANK, ERR_TAG, ERR_COMM or ERR_REVOKED; PeerFailed when the peer has failed."""

    __slots__ = ()

    # -- sending -----------------------------------------------------------------------------------

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""
        try:
            data = quick.send(self, obj, dest, tag)
            if data is None:
                return
            if not type(dest) is type(tag) is int:
                dest, tag = argument(dest), argument(tag)
            route = self._routes.get((dest, tag)) or self._route(dest, tag)
            if route is None:
                return
            engine = self._engine
            if data is False:
                data = _dumps(obj, 5) if engine.codec is None else engine.codec.dumps(obj)
            lock = engine.lock
            lock.acquire()  # a `with` statement takes three times as long as this call
            try:
                if data is True:  # it is sent
                    pass
                elif len(data) < REFERENCE_BYTES:
                    if engine.progress.send(route[0], route[1] + data) & SEND_CHECK_MASK:
                        return
                else:
                    engine.progress.send(route[0], route[1], data)
                engine.throttle(route[0], self._shared)
            finally:
                lock.release()
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def bsend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object. Never waits, however large the backlog is."""
        ObjectMessages.isend(self, obj, dest, tag).wait()

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object and wait until a receive has matched it."""
        ObjectMessages.issend(self, obj, dest, tag).wait()

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start to send an object. The request is done at once, because the object is already pickled."""
        try:
            engine = self._engine
            try:
                if not type(dest) is type(tag) is int:
                    dest, tag = argument(dest), argument(tag)
                route = self._routes.get((dest, tag)) or self._route(dest, tag)
            except PeerFailed as lost:
                return Request._make(engine, FailedOperation(self._shared, lost))
            if route is not None:
                data = engine.dumps(obj)
                with engine.lock:
                    self._put(route[0], route[1], data)
            return Request._make(engine, Done())
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def ibsend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        return ObjectMessages.isend(self, obj, dest, tag)

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start to send an object. The request is done when a receive has matched the message."""
        engine = self._engine
        try:
            route = self._route(dest, tag)
        except PeerFailed as lost:
            return Request._make(engine, FailedOperation(self._shared, lost))
        if route is None:
            return Request._make(engine, Done(PROC_NULL))
        data = engine.dumps(obj)
        with engine.lock:
            operation: Operation = self._put_sync(route[0], tag, data)
        return Request._make(engine, operation)

    # -- receiving ---------------------------------------------------------------------------------

    def recv(
        self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Any:
        """Receive an object. `buf` is accepted for compatibility and not used."""
        try:
            if buf is not None:
                warnings.warn("the 'buf' argument is not needed and not used", UserWarning, stacklevel=2)
            found = quick.recv(self, source, tag, status)
            engine = self._engine
            if found is not quick.MISS:
                return found
            if engine.guard is not None:
                engine.guard.check()
            if not type(source) is type(tag) is int:
                source, tag = argument(source), argument(tag)
            channel = self._channels.get((source, tag))
            if channel is not None and not self._shared.closed and (data := _popped(channel)) is not None:
                size = len(data)
                if not engine.note_taken(channel, data):
                    with engine.lock:
                        engine.settle_taken(channel, data)
                if status is not None:
                    status._fill(channel.source, channel.tag, size - envelope.SIZE)
                if size <= envelope.SIZE:
                    return None  # an empty buffer was sent, and is received as an object
                return _loads(data) if engine.codec is None else engine.loads(data)
            with engine.lock:
                receive = self._receive(source, tag)
                if not receive.done:
                    engine.wait_receive(receive)
            return receive.complete(status)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def _receive(self, source: int, tag: int) -> Receive:
        """Start a receive of an object. The lock is held."""
        src, source, tag = self._check_receive(source, tag)
        receive = Receive(self._context.number, source, tag)
        receive.codec = self._engine.codec
        if src is None:
            receive.done = True
            receive.source = PROC_NULL
        else:
            self._engine.start_receive(self._context, receive, src)
        return receive

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Start to receive an object. The wait of the request returns the object."""
        try:
            with self._engine.lock:
                receive = self._receive(source, tag)
            return Request._make(self._engine, receive)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Send one object and receive another, without deadlock."""
        try:
            engine = self._engine
            if not type(dest) is type(sendtag) is int:
                dest, sendtag = argument(dest), argument(sendtag)
            route = self._routes.get((dest, sendtag)) or self._route(dest, sendtag)
            data = engine.dumps(sendobj) if route is not None else b""
            with engine.lock:
                receive = self._receive(source, recvtag)
                if route is not None:
                    self._put(route[0], route[1], data)
                engine.wait_receive(receive)
                if route is not None:
                    engine.throttle(route[0], self._shared)
            return receive.complete(status)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    # -- probing -----------------------------------------------------------------------------------

    def probe(
        self: CommBase, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> bool:
        """Wait for a message that a receive would match, and leave it in the mailbox. Returns True."""
        engine = self._engine
        with engine.lock:
            src, source, tag = self._check_receive(source, tag)
            if src is None:
                _fill_null(status)
                return True
            channel = engine.find_wait(self._context, source, tag)
            if status is not None:
                status._fill(channel.source, channel.tag, len(channel.messages[0][1]) - envelope.SIZE)
        return True

    @captured_in_threads
    def iprobe(
        self: CommBase, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> bool:
        """Whether a message that a receive would match is in the mailbox."""
        engine = self._engine
        with engine.lock:
            src, source, tag = self._check_receive(source, tag)
            if src is None:
                _fill_null(status)
                return True
            channel = engine.find(self._context, source, tag)
            if channel is None and engine.failed_ranks.known:
                engine.failed_ranks.check_probe(self._context, source, blocking=False)
            if channel is not None and status is not None:
                status._fill(channel.source, channel.tag, len(channel.messages[0][1]) - envelope.SIZE)
        return channel is not None

    def mprobe(
        self: CommBase, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message:
        """Wait for a message and take it from the mailbox. Only the returned Message can receive it."""
        engine = self._engine
        with engine.lock:
            src, source, tag = self._check_receive(source, tag)
            if src is None:
                _fill_null(status)
                return Message._make_no_proc()
            channel = engine.find_wait(self._context, source, tag)
            return Message._take(engine, channel, status)

    @captured_in_threads
    def improbe(
        self: CommBase, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message | None:
        """Like mprobe without waiting: None if no such message is in the mailbox."""
        engine = self._engine
        with engine.lock:
            src, source, tag = self._check_receive(source, tag)
            if src is None:
                _fill_null(status)
                return Message._make_no_proc()
            channel = engine.find(self._context, source, tag)
            if channel is None and engine.failed_ranks.known:
                engine.failed_ranks.check_probe(self._context, source, blocking=False)
            return None if channel is None else Message._take(engine, channel, status)


def _popped(channel: Channel) -> Buffer | None:
    """The oldest message of a channel, taken from it. No lock is needed: other threads only append, or pop in one step."""
    try:
        data: Buffer = channel.messages.popleft()[1]
    except IndexError:
        return None
    return data


def _fill_null(status: Status | None) -> None:
    if status is not None:
        status._fill(PROC_NULL, ANY_TAG, 0)
