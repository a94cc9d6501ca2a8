"""One rank as a value: the production runtime, imager and endpoint, without process, socket, thread or disk.

    Runtime, Imager, Taker   production: the rank's reaction to packets of the controller and to stamps on traffic;
                             images that are requested, aborted, failed
    Endpoint                 production
    Port                     ours: freeze, advance, thaw, deliver are the few lines of `ckpt.transport.driver.port.Port`
    control channel          ours: a list of the packets that the rank sends
    image                    ours: the state of port and program; it is durable, and voted for, when
                             `write_image` is called, or fails

The program is whatever has `on_messages`, as the communicator's engine has, and `copy`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, Self

from ckpt.controller.supervision import plan
from ckpt.mpi.base.handlers import Handlers
from ckpt.transport.protocol import frames
from ckpt.transport.protocol.config import EndpointConfig
from ckpt.transport.protocol.state import Buffer, PortState
from tests.model.world import World

JOB_ID = "00000000000005ee"
JOB = int(JOB_ID, 16)


MISTAKES = ("AttributeError", "TypeError", "NameError", "KeyError", "ImportError", "AssertionError")
"""Images that fail with these never would be taken: everything would hold, and nothing would be shown."""


class Engine(Protocol):
    """The program of one rank, with its mailbox."""

    def attach(self, endpoint: Any) -> None:
        """Messages that are taken from the mailbox are told to this endpoint (`consumed`)."""

    @property
    def predefined(self) -> Mapping[str, Any]:
        """The communicators that are there from the beginning, for the image."""

    @property
    def handlers(self) -> Handlers:
        """Those of active messages."""

    def attend(self) -> None:
        """See `ckpt.mpi.engine.engine.Engine.attend`."""

    def on_messages(self, source: int, messages: list[Buffer]) -> None:
        """These have come, in order."""

    def copy(self) -> Self:
        """What an image keeps."""

    def place(self, head: bytes, nbytes: int) -> Any:
        """The program's memory for a payload of this size."""

    def on_placed(self, source: int, message: Any) -> None:
        """This message has come; its payload is in the memory that `place` has named."""


class InMemory:
    """A program that wants all payloads in its memory, and then treats these messages like others."""

    on_messages: Callable[[int, list[Buffer]], None]

    def place(self, head: bytes, nbytes: int) -> Any:
        """Memory that is filled with something else."""
        return SimpleNamespace(memory=memoryview(bytearray(b"?" * nbytes)))

    def on_placed(self, source: int, message: Any) -> None:
        self.on_messages(source, [message.head + bytes(message.spot.memory)])


@dataclass(frozen=True)
class Image:
    """What one rank saved: it stands for (previous, epoch]. `index`: given by whoever keeps images."""

    rank: int
    incarnation: int
    previous: int
    epoch: int
    port: PortState
    engine: Any
    finished: int | None


class Left(Exception):
    """The process has ended (`os._exit` in production)."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Waiting(Exception):
    """The main thread waits for something to happen."""


class ControlList:
    """The rank's end of the control channel: a list of the packets that it sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def fileno(self) -> int:
        return -1

    def send(self, packet: dict[str, Any]) -> bool:
        if packet["m"] == "failed" and packet["reason"].startswith(MISTAKES):
            raise AssertionError(f"the model lacks something that images need: {packet['reason']}")
        self.sent.append(packet)
        return True


class ModelWire:
    """Only its address is asked for."""

    address = "model"


class NoSignals:
    """In place of `ckpt.transport.driver.interrupts.InterruptGate`."""

    running = 0
    pending: tuple[int, ...] = ()

    def install(self) -> None:
        """No handlers here."""


class ModelPort:
    """What the runtime asks of a port; see `ckpt.transport.driver.port.Port` for each method."""

    def __init__(self, endpoint: Any) -> None:
        self.endpoint = endpoint
        self.wire = ModelWire()
        self.interrupts = NoSignals()
        self.now_ns = 0
        self.attentive_ns = 0
        self.entries = 0
        self.send = endpoint.send
        self.control_fd = -1
        self.far_counts = None  # all ranks are on one host
        self.direct: set[int] = set()
        self.express = None  # no rings
        self.boards = None  # ranks are no processes here
        self.on_publish: Callable[[], None] | None = None
        self.on_place: Any
        self.on_placed: Callable[[int, Any], None]
        self.on_messages: Callable[[int, list[Buffer]], None]
        self.on_event: Callable[[Any], None]
        self.on_control: Callable[[], None]
        self.on_idle_tick: Callable[[], None]

    def start_helper(self) -> None:
        """There is one thread."""

    def wait(self, limit_ns: int | None) -> None:
        raise Waiting

    def counters(self) -> dict[str, int]:
        return dict(self.endpoint.counters())

    def set_peer(self, rank: int, address: str, incarnation: int) -> None:
        self.endpoint.set_peer(rank, incarnation, self.now_ns)

    def drop_peer(self, rank: int) -> None:
        self.endpoint.drop_peer(rank)

    def wake(self) -> None:
        """There is one thread."""

    def publish(self, epoch: int) -> None:
        """Nobody reads the memory of this process."""

    def freeze(self) -> None:
        self.endpoint.freeze()

    def snapshot(self) -> PortState:
        state: PortState = self.endpoint.snapshot()
        return state

    def advance(self, epoch: int) -> None:
        self.endpoint.advance(epoch, self.now_ns)
        self.deliver()

    def thaw(self, epoch: int | None = None) -> None:
        if epoch is not None:
            self.endpoint.advance(epoch, self.now_ns)
        self.endpoint.thaw(self.now_ns)

    def take_remote(self, parts: tuple[Any, ...]) -> None:
        """See `Port._take`: a payload that is read into the program's memory. What came before it is delivered first by a
        step of its own; else this one is read into no place of the program."""
        if self.endpoint.deliverable:
            self.endpoint.receive(parts, self.now_ns)
            return
        self.endpoint.place = self.on_place
        self.endpoint.receive(parts, self.now_ns)
        self.endpoint.place = None
        self.deliver()

    def deliver(self) -> None:
        """Messages to the program, events to the runtime."""
        for source, messages in self.endpoint.delivered():
            if hasattr(messages[0], "spot"):
                self.on_placed(source, messages.pop(0))
            if messages:
                self.on_messages(source, messages)
        self.tell()

    def tell(self) -> None:
        """Events to the runtime."""
        for event in self.endpoint.events():
            self.on_event(event)


class ModelRemote(frames.Remote):
    """A payload in its sender's memory. None: it cannot be read, and spoils what it should be put into."""

    __slots__ = ("_content",)

    def __init__(self, content: bytes, can_be_read: bool) -> None:
        super().__init__(len(content))
        self._content = content if can_be_read else None

    def __bytes__(self) -> bytes:
        return b"cannot be read" if self._content is None else self._content

    def read(self, into: memoryview) -> bool:
        into[:] = b"!" * self.nbytes if self._content is None else self._content
        return self._content is not None


_CLASSES: dict[type[Any], type[Any]] = {}


def _runtime_class(production: type[Any]) -> type[Any]:
    """The world's Runtime, with the ends of the process tied to this model."""
    found = _CLASSES.get(production)
    if found is None:

        class ModelRuntime(production):  # type: ignore[misc,valid-type]
            write_image: Callable[[Any], bool]
            lingering = False

            def leave(self, exit_code: int, reason: str | None) -> None:
                raise Left(exit_code)

            def block(self, hungry: bool) -> None:
                if self.lingering:
                    raise Waiting
                super().block(hungry)

        found = _CLASSES[production] = ModelRuntime
    return found


def rank_spec(rank: int, size: int, incarnation: int, epoch: int | None) -> dict[str, Any]:
    """What production tells a rank that it starts."""
    program = plan.Program(JOB_ID, "/job", "/run", ("app.py",), {"image_mode": "sync"})
    return plan.specs(
        program, plan.place(size, [plan.Node("localhost", size)]), incarnation=incarnation, epoch=epoch
    )[rank]


class Process:
    """One incarnation of one rank. `limits` are fields of EndpointConfig."""

    def __init__(
        self,
        world: World,
        spec: Mapping[str, Any],
        engine: Engine,
        endpoint: Any,
    ) -> None:
        self.world = world
        self.spec = spec
        self.engine: Any = engine
        self.endpoint = endpoint
        self.control = ControlList()
        self.port = ModelPort(endpoint)
        self.fails_to_write = False
        self.stopped = False
        """The port was frozen for an image, which is not captured yet: nothing else may thaw it."""
        self.meanwhile: list[Mapping[str, Any]] = []
        """Packets that the helper thread obeys while the image is written synchronously."""
        self.images: list[Image] = []
        self.write: Callable[[Process, Any, Image], tuple[str, str] | None] = lambda *_: ("", "")
        """Makes an image durable; (manifest, digest) of the vote, or None when it failed."""
        runtime = _runtime_class(world.runtime)(spec, self.control)
        runtime.write_image = self._write
        engine.attach(endpoint)
        runtime.bind(self.port, engine, None)
        runtime.lock.acquire()
        self.runtime = runtime
        self.control.sent.clear()

    @classmethod
    def start(
        cls,
        world: World,
        spec: Mapping[str, Any],
        image: Image | None,
        fresh: Callable[[], Engine],
        limits: Mapping[str, Any],
    ) -> Process:
        """A process from its image, or from the beginning of its program."""
        config = EndpointConfig(JOB, spec["rank"], spec["size"], spec["incarnation"], spec["epoch"], **limits)
        endpoint = world.endpoint(config, None if image is None else image.port)
        engine = fresh() if image is None else image.engine.copy()
        return cls(world, spec, engine, endpoint)

    def clone(self) -> Process:
        """An independent copy."""
        new = Process(self.world, self.spec, self.engine.copy(), self.endpoint.clone())
        new.port.now_ns = self.port.now_ns
        new.stopped = self.stopped
        mine, other = self.runtime, new.runtime
        other.imager.epoch, other.imager.wanted = mine.imager.epoch, mine.imager.wanted
        other.imager.asked, other.imager._waiting = mine.imager.asked, mine.imager._waiting
        other.finished_code, other.released, other.alone = mine.finished_code, mine.released, mine.alone
        return new

    def key(self, *, nacks: bool = True) -> tuple[object, ...]:
        """Hashable: equal keys behave alike (without `nacks`: as long as no port is frozen).

        What `committed` told is for the program only. Timers have passed before each transmission.
        """
        runtime = self.runtime
        return (
            self.endpoint.key(credit=False, nacks=nacks, timing=False),
            runtime.imager.epoch,
            runtime.imager.wanted,
            runtime.imager.asked,
            runtime.finished_code,
            runtime.released,
            runtime.alone,
            self.stopped,
            self.engine.key(),
        )

    # ---- what happens to it (each may raise Left)

    def obey(self, packet: Mapping[str, Any]) -> None:
        """A packet of the controller has come."""
        self.world.obey(self.runtime, dict(packet))

    def image_is_wanted(self) -> bool:
        imager = self.runtime.imager
        return bool(imager.wanted > imager.epoch)

    def is_asked(self) -> bool:
        """Does the controller wait to hear that it could be captured?"""
        return bool(self.runtime.imager.asked)

    def look(self) -> None:
        """The program is at a place where it could be captured."""
        self.runtime.imager.look("check")

    def stop(self) -> None:
        """The taker has frozen the port, and the capture takes a while."""
        self.stopped = True
        self.port.freeze()

    def go_on(self) -> None:
        """The image is not wanted any more (or could not be prepared): the taker thaws the port."""
        self.stopped = False
        self.port.thaw()

    def capture(self, *, blocked: bool, fails: bool = False, late: bool = False) -> None:
        """The program has come to a place where its image can be taken.

        `blocked`: it waits inside the library, where `Runtime.block` takes the image; else between two
        instructions of its own. `late`: only after the rank's own time limit, when it gives the image up.
        """
        self.fails_to_write = fails
        self.stopped = False  # from here on the production code alone says when the port thaws
        runtime = self.runtime
        runtime.imager.search.since_ns = 0 if late else time.monotonic_ns()
        if not blocked and not late:
            runtime.imager.take("check")
            return
        try:
            runtime.lingering = False
            runtime.block(False)
        except Waiting:
            pass
        self.port.tell()

    def lose_held(self) -> None:
        """As if the frames that wait for an image had not come."""
        self.endpoint._held.clear()
        self.endpoint._held_bytes = 0

    def finish(self) -> None:
        """The program has ended; the process lingers."""
        runtime = self.runtime
        runtime.lingering = True
        runtime.lock.release()
        try:
            runtime.finish(0)
        except Waiting:
            runtime.lock.acquire()
            return
        raise Left(0)

    def _write(self, job: Any) -> bool:
        image = Image(
            self.spec["rank"],
            self.spec["incarnation"],
            job.previous,
            job.epoch,
            job.prepared["ckpt.port"],
            self.engine.copy(),
            job.prepared["ckpt.finished"],
        )
        for packet in self.meanwhile:
            self.obey(packet)
        receipt = None if self.fails_to_write else self.write(self, job, image)
        if receipt is None:
            self.control.send({"m": "failed", "epoch": job.epoch, "reason": "disk full", "where": "model"})
            return False
        self.images.append(image)
        self.control.send(
            {
                "m": "voted",
                "epoch": job.epoch,
                "label": [job.previous, job.epoch],
                "manifest": receipt[0],
                "digest": receipt[1],
                "vectors": {str(peer): list(vector) for peer, vector in job.vectors.items()},
            }
        )
        return True
