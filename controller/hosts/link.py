"""The connection between the controller and the agents of hosts: JSON packets over a port of the transport. (driver)

A connection that breaks and comes back loses and repeats nothing: packets are numbered, acknowledged and sent again
(`ckpt.transport`). The controller is rank 0 of this port, host number i is rank i, and all have the controller's generation
as their incarnation, so that an agent of an earlier controller is not heard. Another agent that is started on a host, since
the one before is gone, has another number (`rank_of`): it knows nothing of what was sent to that one.

`ckpt status`, `checkpoint` and `stop` ask at the same port, from any host that can read the job's key (`ask`); what they
ask comes to the controller by `questions`.

The port's helper thread receives; `fileno` tells the owner's loop.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import time
from collections.abc import Callable
from typing import Any

from ckpt.controller.errors import MalformedPacket, NoSuchJob
from ckpt.controller.supervision import messages
from ckpt.transport.driver.port import Port
from ckpt.transport.errors import TransportError
from ckpt.transport.protocol.config import EndpointConfig
from ckpt.transport.protocol.state import Buffer
from ckpt.transport.records import dataclass
from ckpt.transport.wires.hubwire import CallFailed, HubWire, call
from ckpt.transport.wires.wire import Wire
from ckpt.transport.wires.zmqsettings import CurveKeys

__all__ = ["LIVES", "Link", "Question", "ask", "host_of", "keys_of", "rank_of"]

LIVES = 16
"""So many agents can be started on a host, one after another."""

_REACH_S = 5.0


def keys_of(key: bytes) -> CurveKeys:
    """The CURVE keys of these connections. They are not those of the connections between ranks."""
    return CurveKeys.from_secret(b"hosts:" + key)


def rank_of(index: int, life: int, hosts: int) -> int:
    """The number of the agent that is the `life`-th on host `index`, counted from 0, of so many hosts."""
    return index + life * hosts


def host_of(rank: int, hosts: int) -> tuple[int, int]:
    """The inverse of `rank_of`: index and life."""
    life, index = divmod(rank - 1, hosts)
    return index + 1, life


@dataclass(frozen=True)
class Question:
    """A question from another host. `answer`: to be called with the answer, at most once."""

    content: dict[str, Any]
    answer: Callable[[dict[str, Any]], None]


def ask(contact: str, key: bytes, question: dict[str, Any], limit_s: float | None) -> dict[str, Any]:
    """Ask the controller of a job from another host; returns its answer. `contact`: see `ckpt.store.job.location`.

    Raises NoSuchJob: it is not reached, or ends without an answer; TimeoutError."""
    addresses = [f"tcp://{place}" for place in contact.split()]
    try:
        answer = call(
            addresses, messages.encode(question), curve=keys_of(key), reach_s=_REACH_S, limit_s=limit_s
        )
        return messages.decode(answer)
    except CallFailed as failed:
        if failed.was_asked:
            raise NoSuchJob("the controller ended without an answer, or is cut off from here") from failed
        raise NoSuchJob(str(failed)) from failed


class Link:
    """One end. `rank`: 0 for the controller, else that of the agent; `hosts`: how many there are."""

    def __init__(self, wire: Wire, *, job_id: str, rank: int, hosts: int, generation: int) -> None:
        config = EndpointConfig(
            job=int(job_id, 16),
            rank=rank,
            size=hosts * LIVES + 1,
            incarnation=generation,
            reserved=hosts * (LIVES - 1),
        )
        self.port = Port(config, wire)
        self.received: collections.deque[tuple[int, dict[str, Any]]] = collections.deque()
        self.on_renewal: Callable[[int, int], dict[str, Any] | None] | None = None
        """Called in the helper thread, under the port's lock, with sender and number of a renewal; returns the answer."""
        self._questions: collections.deque[Question] = collections.deque()
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        if isinstance(wire, HubWire):
            wire.on_question = functools.partial(self._asked, wire)
        self.port.on_messages = self._on_messages
        self.port.on_event = lambda event: None  # a silent peer is the lease's business
        with self.port.lock:
            for other in range(1, hosts + 1) if rank == 0 else (0,):
                self.port.set_peer(other, "", generation)
        self.port.start_helper()

    def fileno(self) -> int:
        """Readable when `take` would return something."""
        return self._event_fd

    def _on_messages(self, source: int, packets: list[Buffer]) -> None:
        self.port.endpoint.consumed(source, sum(map(len, packets)), len(packets))
        for data in packets:
            try:
                packet = messages.decode(data)
            except MalformedPacket:
                continue
            if packet.get("e") == "renew" and self.on_renewal is not None:
                if (answer := self.on_renewal(source, int(packet["number"]))) is not None:
                    self.port.send(source, messages.encode(answer))
                continue
            self.received.append((source, packet))
        os.eventfd_write(self._event_fd, 1)

    def _asked(self, wire: HubWire, caller: bytes, data: bytes) -> None:
        with contextlib.suppress(MalformedPacket):
            self._questions.append(
                Question(messages.decode(data), functools.partial(self._answer, wire, caller))
            )
            os.eventfd_write(self._event_fd, 1)

    def _answer(self, wire: HubWire, caller: bytes, fields: dict[str, Any]) -> None:
        with self.port.lock, contextlib.suppress(TransportError):  # nobody waits for it any more
            wire.answer(caller, messages.encode(fields))

    def questions(self) -> list[Question]:
        """What has been asked from other hosts since the last call."""
        taken = []
        while self._questions:
            taken.append(self._questions.popleft())
        return taken

    def take(self) -> list[tuple[int, dict[str, Any]]]:
        """What has come, in order, with its sender."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event_fd)
        taken = []
        while self.received:
            taken.append(self.received.popleft())
        return taken

    def send(self, to: int, packet: dict[str, Any]) -> None:
        """Send one packet; never waits."""
        with self.port.lock:
            self.port.send(to, messages.encode(packet))

    def expect(self, other: int) -> None:
        """An agent of this number may dial in from now on."""
        with self.port.lock:
            self.port.set_peer(other, "", self.port.endpoint.config.incarnation)

    def drop(self, other: int) -> None:
        """This peer is dead: nothing is kept for it any more."""
        with self.port.lock, contextlib.suppress(TransportError):
            self.port.drop_peer(other)

    def flush(self, to: int, patience_s: float) -> None:
        """Wait until the peer has acknowledged everything, at most so long."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            with self.port.lock:
                if not self.port.endpoint.backlog_bytes(to):
                    return
            time.sleep(0.005)

    def close(self) -> None:
        """End the helper thread and close the wire. Idempotent."""
        if not self._closed:
            self._closed = True
            self.port.close()
            os.close(self._event_fd)
