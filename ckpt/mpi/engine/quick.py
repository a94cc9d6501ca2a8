"""The fast path for small messages of objects and buffers: in C where the C modules are built, else in Python.

`_quick.c`, the folder fast_path and `transport/driver/_lane.c` do the work of `ObjectMessages.send` and `recv`, of
`BufferMessages.Send`, `Isend`, `Recv`, `Irecv` and `Sendrecv`, of `Request.Wait` and `Waitall`, and of
`Engine.on_messages` for ordinary cases. They work on the same objects as the Python code, and keep no state. A function that
meets another case returns a value that says so, and has changed nothing; then its caller continues in Python. Where the C
modules are missing, these functions always return that value.
Both paths leave the same state (tests/unit/ckpt/mpi/engine/test_quick.py).

    send(comm, obj, dest, tag)         None: the message is sent. True: the same, and the backlog has to be looked at.
                                       False: nothing is done. bytes: the object is pickled to these bytes, but not sent
    recv(comm, source, tag, status)    the object, or MISS: nothing is done. It looks for a message for a short time
    send_buffer(comm, buf, dest, tag)  None, True, False: the same. bytes: the message with its envelope, which is not sent.
                                       BufferSend: it is under way, and to be waited for
    recv_buffer(comm, buf, source, tag, status)    True: a message was received into the buffer. False: nothing is done. It
                                       looks for a message for a short time. Receive: it is posted, and to be waited for
    sendrecv_buffer(comm, sendbuf, dest, sendtag, recvbuf, source, recvtag, status)    True: a buffer was sent, and a message
                                       received. None: the former only, and the receive is left. Receive: the same, and it is
                                       posted, and to be waited for. (Receive or None, BufferSend): the same, and the send
                                       is under way, and to be waited for, too. False: nothing is done
    isend_buffer(comm, buf, dest, tag) a request: the buffer is sent. False and bytes as send_buffer
    irecv_buffer(comm, buf, source, tag)    a request: the receive is posted. False: nothing is done
    finish(requests)                   True: all are done now, and null. False: they are to be waited for, and completed. It
                                       looks for what is awaited for a short time
    sort_in(matcher, batch, start)     puts unexpected messages into their channels, up to the first message without a
                                       channel, or not of type bytes; returns the index of that message. The caller holds
                                       the lock, and no receive is posted
    arrivals(engine)                   a function that does what Engine.on_messages does
    placing(engine)                    functions that do what Engine.place and Engine.on_placed do
    know(cls)                          registers the offsets of a class's slots
    barrier(comm), exchange(comm, data), share(comm, data, root), allreduce(comm, sendbuf, recvbuf, op)
                                       False: nothing is done. int: this rank has contributed to the collective of this
                                       number, and `Exchange.complete` goes on. Else it is done, and these are None, the
                                       data of all, the data of the root, None
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.mpi.base.progress import Lock
    from ckpt.mpi.engine.engine import Engine
    from ckpt.transport.driver._express import Express
    from ckpt.transport.protocol.endpoint import Endpoint

__all__ = [
    "MISS",
    "allreduce",
    "arrivals",
    "barrier",
    "exchange",
    "finish",
    "glance",
    "irecv_buffer",
    "isend_buffer",
    "know",
    "make_lane",
    "placing",
    "recv",
    "recv_buffer",
    "send",
    "send_buffer",
    "sendrecv_buffer",
    "share",
    "sort_in",
]


def _send(comm: Any, obj: Any, dest: Any, tag: Any) -> Any:
    return False


def _recv(comm: Any, source: Any, tag: Any, status: Any) -> Any:
    return MISS


def _send_buffer(comm: Any, buf: Any, dest: Any, tag: Any) -> Any:
    return False


def _recv_buffer(comm: Any, buf: Any, source: Any, tag: Any, status: Any) -> Any:
    return False


def _sendrecv_buffer(comm: Any, *args: Any) -> Any:
    return False


def _irecv_buffer(comm: Any, buf: Any, source: Any, tag: Any) -> Any:
    return False


def _nothing_is_done(requests: Any) -> bool:
    return False


def _sort_in(matcher: Any, batch: list[Any], start: int) -> int:
    find = matcher.by_envelope.get
    former = channel = None
    for at in range(start, len(batch)):
        data = batch[at]
        if type(data) is not bytes:
            return at
        head = data[:32]
        if head != former:
            channel, former = find(head), head
            if channel is None:
                return at
        matcher.keep(channel, data)
    return len(batch)


def _arrivals(engine: Engine) -> Callable[[int, list[Any]], None]:
    return engine.on_messages


def _placing(engine: Engine) -> tuple[Any, Any]:
    return engine.place, engine.on_placed


def _collective(comm: Any, *args: Any) -> Any:
    return False


def _know(cls: type) -> None:
    """The Python path needs no offsets of slots."""


try:
    from ckpt.mpi.engine import _quick
    from ckpt.transport.driver._lane import Lane
except ImportError:
    MISS: object = object()
    Lane = None  # type: ignore[assignment, misc]
    send, recv, sort_in, know = _send, _recv, _sort_in, _know
    arrivals: Any = _arrivals
    placing: Any = _placing
    send_buffer, recv_buffer, sendrecv_buffer = _send_buffer, _recv_buffer, _sendrecv_buffer
    isend_buffer, irecv_buffer = _send_buffer, _irecv_buffer
    finish: Any = _nothing_is_done
    barrier: Any = _collective
    exchange: Any = _collective
    share: Any = _collective
    allreduce: Any = _collective
else:
    MISS, send, recv, sort_in, know = _quick.MISS, _quick.send, _quick.recv, _quick.sort_in, _quick.know
    send_buffer, recv_buffer, arrivals = _quick.send_buffer, _quick.recv_buffer, _quick.arrivals
    placing = _quick.placing
    sendrecv_buffer = _quick.sendrecv_buffer
    isend_buffer, irecv_buffer, finish = _quick.isend_buffer, _quick.irecv_buffer, _quick.finish
    barrier, exchange, share, allreduce = _quick.barrier, _quick.exchange, _quick.share, _quick.allreduce


def glance(engine: Engine) -> bool:
    """A short look for an ordinary message, where nothing else is to be done before waiting. True: one has come.

    The lock is held. No image is taken here."""
    look, nothing_else = (
        engine.look,
        engine.guard is None and not engine.runnable and not engine.handlers.posted,
    )
    return look is not None and nothing_else and not engine.failed_ranks.known and bool(look())


def make_lane(
    endpoint: Endpoint, lock: Lock, backlog_bytes: int, check_mask: int, express: Express | None = None
) -> Any:
    """A `Lane`: the fast path into the send windows of an endpoint whose owner uses `lock`. None without the C modules.

    When the backlog is above `backlog_bytes`, every (check_mask + 1)-th message takes the Python path. `express`: sends
    messages on an idle link.
    """
    return None if Lane is None else Lane(endpoint, lock, backlog_bytes, check_mask, express)
