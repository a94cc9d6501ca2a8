"""Point-to-point messages of buffers (upper-case names), without pickling.

A small send is copied behind its envelope and is done at once. A large one (`Engine.send_memory`) is passed by reference. It
is done when the message is acknowledged: until then the transport may read the program's memory. A received message is
copied once, into the program's buffer; a large one from its sender's memory, if the receive waits for it (`Engine.place`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckpt.compat.threads import captured_in_threads
from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from ckpt.mpi.base.errors import ERR_REVOKED, MpiException, PeerFailed
from ckpt.mpi.base.integers import argument
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.guard import handled
from ckpt.mpi.comm.object_messages import ObjectMessages
from ckpt.mpi.datatypes.buffers import EMPTY, BufferSpec, exporter, simple
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.engine import REFERENCE_BYTES, SEND_CHECK_MASK
from ckpt.mpi.engine.operations import BufferSend, Done, FailedOperation, Operation, Receive
from ckpt.mpi.engine.partitioned import cut, part_receive, part_send
from ckpt.mpi.requests.request import Prequest, Request

if TYPE_CHECKING:
    from ckpt.mpi.comm.message import Message
    from ckpt.mpi.datatypes.status import Status

SMALL_BYTES = REFERENCE_BYTES - envelope.SIZE
"""A smaller buffer counts as a small message, as an object does (object_messages.py)."""

_SPECS = frozenset({list, tuple})  # that say which buffer is meant, and more: see `exporter`


class BufferMessages(CommBase):
    """Send, Recv, Sendrecv, their nonblocking, persistent and partitioned forms, and Probe. Errors: MpiException (ERR_RANK,
    ERR_TAG, ERR_COMM, ERR_REVOKED); TypeError, ValueError, KeyError or BufferError for a bad buffer; PeerFailed."""

    __slots__ = ()

    # -- sending -----------------------------------------------------------------------------------

    def _start_send(self, spec: BufferSpec, dst: int, head: bytes) -> Operation:
        """Pass a buffer to the transport. The lock is held."""
        failure = self._failed_send(dst)
        if failure is not None:
            return failure
        sequence = self._engine.send_memory(dst, head, spec)
        return Done() if sequence is None else BufferSend(self._engine, self._shared, dst, sequence)

    def _failed_send(self, dst: int) -> FailedOperation | None:
        """The operation for a send that cannot begin: the communicator is revoked, or `dst` has failed. Else None."""
        if self._shared.revoked:
            return FailedOperation(self._shared, MpiException(ERR_REVOKED, "the communicator is revoked"))
        failed = self._engine.failed_ranks
        return FailedOperation(self._shared, failed.failure(dst)) if dst in failed.known else None

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a buffer. Returns when the program may reuse the buffer."""
        try:
            obj = exporter(buf) if type(buf) in _SPECS else buf
            message = quick.send_buffer(self, obj, dest, tag)
            if message is None:
                return
            if type(message) is BufferSend:
                self._wait_sent(message)
                return
            if not type(dest) is type(tag) is int:
                dest, tag = argument(dest), argument(tag)
            route = self._routes.get((dest, tag)) or self._route(dest, tag)
            if route is None:
                return
            engine = self._engine
            if message is False:
                spec = simple(buf, writable=False)
                if spec.nbytes < SMALL_BYTES:
                    message = route[1] + spec.read()
            if message is not False:
                with engine.lock:
                    if message is True or not engine.progress.send(route[0], message) & SEND_CHECK_MASK:
                        engine.throttle(route[0], self._shared)
                return
            with engine.lock:
                operation = self._start_send(spec, route[0], route[1])
                if type(operation) is not BufferSend and operation.error is None:
                    engine.after_send(route[0], spec.nbytes, self._shared)
            self._wait_sent(operation)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def _wait_sent(self, sent: Operation) -> None:
        if type(sent) is BufferSend:
            with self._engine.lock:
                self._engine.wait_sent(sent)
        sent.complete(None)

    def Bsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a copy of a buffer. Never waits."""
        route = self._route(dest, tag)
        if route is not None:
            data = bytes(simple(buf, writable=False).read())
            with self._engine.lock:
                self._put(*route, data)

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a buffer and wait until a receive has matched it."""
        BufferMessages.Issend(self, buf, dest, tag).wait()

    Rsend = Send  # to a receive that is known to be posted

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start to send a buffer. The buffer must stay unchanged until the request is done."""
        try:
            engine = self._engine
            try:
                if not type(dest) is type(tag) is int:
                    dest, tag = argument(dest), argument(tag)
                route = self._routes.get((dest, tag)) or self._route(dest, tag)
            except PeerFailed as lost:
                return Request._make(engine, FailedOperation(self._shared, lost))
            if route is None:
                return Request._make(engine, Done(PROC_NULL))
            message = quick.isend_buffer(self, exporter(buf), dest, tag)
            if type(message) is Request:
                return message
            with engine.lock:
                if message is False:
                    operation: Operation = self._start_send(simple(buf, writable=False), *route)
                elif (failure := self._failed_send(route[0])) is not None:
                    operation = failure
                else:
                    engine.progress.send(route[0], message)
                    operation = Done()
            return Request._make(engine, operation)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def Ibsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        try:
            BufferMessages.Bsend(self, buf, dest, tag)
        except PeerFailed as lost:
            return Request._make(self._engine, FailedOperation(self._shared, lost))
        return Request._make(self._engine, Done())

    Irsend = Isend

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start a synchronous send of a copy of the buffer, so the program may reuse the buffer at once."""
        engine = self._engine
        try:
            route = self._route(dest, tag)
        except PeerFailed as lost:
            return Request._make(engine, FailedOperation(self._shared, lost))
        if route is None:
            return Request._make(engine, Done(PROC_NULL))
        spec = simple(buf, writable=False)
        with engine.lock:
            operation = self._put_sync(route[0], tag, bytes(spec.read()))
        return Request._make(engine, operation)

    # -- receiving ---------------------------------------------------------------------------------

    def _start_recv(self, spec: BufferSpec, source: int, tag: int) -> Receive:
        """Start to receive into a buffer. The lock is held."""
        src, source, tag = self._check_receive(source, tag)
        receive = Receive(self._context.number, source, tag, spec)
        if src is None:
            receive.done = True
            receive.source = PROC_NULL
        else:
            self._engine.start_receive(self._context, receive, src)
        return receive

    def Recv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> None:
        """Receive into a buffer. A message that is too long is truncated, and raises MpiException (ERR_TRUNCATE)."""
        try:
            obj = exporter(buf) if type(buf) in _SPECS else buf
            received = quick.recv_buffer(self, obj, source, tag, status)
            if type(received) is Receive:
                self._wait_both(received, Done(), status)
            elif not received:
                self._recv(buf, source, tag, status)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def _recv(self, buf: Any, source: int, tag: int, status: Status | None) -> None:
        if not type(source) is type(tag) is int:
            source, tag = argument(source), argument(tag)
        spec = EMPTY if source == PROC_NULL else simple(buf, writable=True)
        self._recv_into(spec, source, tag, status)

    def _recv_into(self, spec: BufferSpec, source: int, tag: int, status: Status | None) -> None:
        if self._recv_at_once(spec, source, tag, status):
            return
        with self._engine.lock:
            receive = self._start_recv(spec, source, tag)
        self._wait_both(receive, Done(), status)

    def _recv_at_once(self, spec: BufferSpec, source: int, tag: int, status: Status | None) -> bool:
        """Receive a message that is in the mailbox, and fits into the buffer. False: there is none; nothing was done."""
        engine = self._engine
        if engine.choices is not None and source == ANY_SOURCE:
            return False
        with engine.lock:
            channel = engine.matcher.find(self._context, source, tag)
            if channel is None or self._shared.closed:
                return False
            nbytes = len(channel.messages[0][1]) - envelope.SIZE
            if nbytes > spec.nbytes:
                return False
            data = engine.matcher.pop(channel)
            if not engine.note_taken(channel, data):
                engine.settle_taken(channel, data)
            spec.write(data, envelope.SIZE)
        if status is not None:
            status._fill(channel.source, channel.tag, nbytes)
        return True

    def _wait_both(self, receive: Receive, sent: Operation, status: Status | None) -> None:
        with self._engine.lock:
            self._engine.wait_receive(receive)
            self._engine.wait(sent)
        receive.complete(status)
        sent.complete(None)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Start to receive into a buffer."""
        try:
            if not type(source) is type(tag) is int:
                source, tag = argument(source), argument(tag)
            if (request := quick.irecv_buffer(self, buf, source, tag)) is not False:
                return request  # type: ignore[no-any-return]
            spec, engine = EMPTY if source == PROC_NULL else simple(buf, writable=True), self._engine
            with engine.lock:
                return Request._make(engine, self._start_recv(spec, source, tag))
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send one buffer and receive into another, without deadlock."""
        try:
            out = exporter(sendbuf) if type(sendbuf) in _SPECS else sendbuf
            into = exporter(recvbuf) if type(recvbuf) in _SPECS else recvbuf
            done = quick.sendrecv_buffer(self, out, dest, sendtag, into, source, recvtag, status)
            if done is not False:
                receive, sent = done if type(done) is tuple else (done, Done())
                if done is None:
                    self._recv(recvbuf, source, recvtag, status)
                elif done is not True:
                    with self._engine.lock:
                        receive = receive or self._start_recv(simple(recvbuf, writable=True), source, recvtag)
                    self._wait_both(receive, sent, status)
                return
            if not type(dest) is type(sendtag) is int:
                dest, sendtag = argument(dest), argument(sendtag)
            route = self._routes.get((dest, sendtag)) or self._route(dest, sendtag)
            out = EMPTY if route is None else simple(sendbuf, writable=False)
            source = argument(source)
            into = EMPTY if source == PROC_NULL else simple(recvbuf, writable=True)
            engine = self._engine
            if out.nbytes < SMALL_BYTES:
                _, source, recvtag = self._check_receive(source, recvtag)
                if route is not None:
                    with engine.lock:
                        engine.progress.send(route[0], route[1] + out.read())
                self._recv_into(into, source, recvtag, status)
                return
            with engine.lock:
                receive = self._start_recv(into, source, recvtag)
                sent = Done() if route is None else self._start_send(out, route[0], route[1])
            self._wait_both(receive, sent, status)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send a buffer and receive into the same."""
        BufferMessages.Isendrecv_replace(self, buf, dest, sendtag, source, recvtag).wait(status)

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        """Start to send a copy of one buffer and to receive into another. The status is that of the receive."""
        try:
            route = self._route(dest, sendtag)
        except PeerFailed as lost:
            return Request._make(self._engine, FailedOperation(self._shared, lost))
        out = EMPTY if route is None else simple(sendbuf, writable=False)
        source = argument(source)
        into = EMPTY if source == PROC_NULL else simple(recvbuf, writable=True)
        with self._engine.lock:
            data = bytes(out.read())
            receive = self._start_recv(into, source, recvtag)
            if route is not None:
                self._put(route[0], route[1], data)
        return Request._make(self._engine, receive)

    def Isendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG
    ) -> Request:
        """Start to send a copy of a buffer and to receive into it."""
        return BufferMessages.Isendrecv(self, buf, dest, sendtag, buf, source, recvtag)

    # -- persistent --------------------------------------------------------------------------------

    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """A persistent send: Start sends the buffer again."""
        return self._send_init(buf, dest, tag, False)

    def Ssend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        return self._send_init(buf, dest, tag, True)

    Bsend_init = Rsend_init = Send_init

    def _send_init(self, buf: Any, dest: int, tag: int, sync: bool) -> Prequest:
        route = self._unchecked_route(dest, tag)
        if route is None:
            return Prequest._prepare(self._engine, Done, PROC_NULL)
        spec = simple(buf, writable=False)
        if sync:
            return Prequest._prepare(self._engine, self._start_sync, spec, route[0], argument(tag))
        return Prequest._prepare(self._engine, self._start_send, spec, *route)

    def _start_sync(self, spec: BufferSpec, dst: int, tag: int) -> Operation:
        return self._failed_send(dst) or self._put_sync(dst, tag, bytes(spec.read()))

    def Recv_init(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Prequest:
        """A persistent receive: Start posts the receive again."""
        source, tag = argument(source), argument(tag)
        spec = EMPTY if source == PROC_NULL else simple(buf, writable=True)
        self._check_receive(source, tag)
        return Prequest._prepare(self._engine, self._start_recv, spec, source, tag)

    # -- partitioned -------------------------------------------------------------------------------

    def Psend_init(self, buf: Any, partitions: int, dest: int, tag: int = 0, info: Any = None) -> Prequest:
        """A partitioned send of a buffer with `partitions` equal partitions. After Start, `Pready` sends a partition."""
        partitions = argument(partitions)
        spec = cut(buf, partitions, writable=False)
        peer = self._check_receive(dest, tag)  # a send has the same rules, except for wildcards
        operation = part_send(self._engine, self._shared, self._rank, peer, spec, partitions)
        return Prequest._prepare(self._engine, *operation)

    def Precv_init(self, buf: Any, partitions: int, source: int, tag: int = 0, info: Any = None) -> Prequest:
        """A partitioned receive into a buffer with `partitions` equal partitions. `Parrived` tells whether one has arrived.

        The sender may have another number of partitions."""
        partitions = argument(partitions)
        spec = cut(buf, partitions, writable=True)
        peer = self._check_receive(source, tag)
        operation = part_receive(self._engine, self._shared, peer, spec, partitions)
        return Prequest._prepare(self._engine, *operation)

    # -- probing -----------------------------------------------------------------------------------

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        return ObjectMessages.probe(self, source, tag, status)

    @captured_in_threads
    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        return ObjectMessages.iprobe(self, source, tag, status)

    def Mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message:
        return ObjectMessages.mprobe(self, source, tag, status)

    @captured_in_threads
    def Improbe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message | None:
        return ObjectMessages.improbe(self, source, tag, status)


__all__ = ["BufferMessages"]
