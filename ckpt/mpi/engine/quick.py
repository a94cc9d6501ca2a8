"""The short way for ordinary object messages: in C where that is built; without it, Python does everything.

`_quick.c` and `transport/driver/_lane.c` do what `ObjectMessages.send`, `ObjectMessages.recv` and `Engine.on_messages` do
when nothing is unusual, on the very objects that these use, and keep no state. Each function says when it has done nothing;
its caller goes on in Python then. So what takes the place of `send` and `recv` where C is missing simply always says so.
Both ways leave the same behind (tests/unit/ckpt/mpi/engine/test_quick.py).

    send(comm, obj, dest, tag)         None: it is sent. False: nothing has happened. bytes: the pickle, which is not sent
    recv(comm, source, tag, status)    the object, or MISS: nothing has happened
    sort_in(matcher, batch, start)     puts messages that nobody waits for into their channels, while these exist; the index
                                       of the first that is not ordinary. Under the lock, nothing posted
    know(cls)                          learn where a class keeps its slots
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.mpi.base.progress import Lock
    from ckpt.transport.protocol.endpoint import Endpoint

__all__ = ["MISS", "know", "make_lane", "recv", "send", "sort_in"]


def _send(comm: Any, obj: Any, dest: Any, tag: Any) -> Any:
    return False


def _recv(comm: Any, source: Any, tag: Any, status: Any) -> Any:
    return MISS


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


def _know(cls: type) -> None:
    """Nothing needs to be known."""


try:
    from ckpt.mpi.engine import _quick
    from ckpt.transport.driver._lane import Lane
except ImportError:
    MISS: object = object()
    Lane = None  # type: ignore[assignment, misc]
    send, recv, sort_in, know = _send, _recv, _sort_in, _know
else:
    MISS, send, recv, sort_in, know = _quick.MISS, _quick.send, _quick.recv, _quick.sort_in, _quick.know


def make_lane(endpoint: Endpoint, lock: Lock, backlog_bytes: int, check_mask: int) -> Any:
    """The short way into the windows of an endpoint whose owner uses `lock`; None without C.

    Every (check_mask + 1)-th message goes the long way when the backlog is above `backlog_bytes`.
    """
    return None if Lane is None else Lane(endpoint, lock, backlog_bytes, check_mask)
