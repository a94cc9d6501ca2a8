"""The layer of a replica: the `Progress` of n ranks over n·N processes (:mod:`ckpt.mpi.base.layer`). (driver)

Rank h is a *cluster* of N processes; process N·h + k is its replica k (membership.py). All replicas with the same k are a
*plane*: a whole copy of the job. Replica k of rank h sends to replica k of rank g, so each message travels once in each
plane, and what a replica computes wrongly stays in its plane. Between the replicas of one rank only choices travel
(choices.py); to the controller, digests of what each has sent (digest.py), which it compares (vote.py).

    send            the message is counted into its stream, and goes to the same plane
    on_messages     from the same plane: to the engine; from another replica of this rank: a choice
    tick, ending    at most every REPORT_NS what is to be compared goes to the controller; the rest of it

Images are those of one plane, the one that leads: messages of other planes are choices, which nobody needs after a restart,
since all replicas of a rank go on from the same image. What that plane had sent before its images is told to the controller
(telling.py), which asks the other replicas for their digests at the same places (`on_packet`).

A plane that is lost is replaced by a copy of the one that leads, made from such images while all others go on: see
:mod:`ckpt.controller.replicas.clones`. For that an image also has what a process needs to go on among the others
(`_beside`): its digests and counts, and what it knows of choices and surroundings. A restart looks at the files in it only.

Not here: who differs or is lost (:mod:`ckpt.controller.replicas`).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.layer import SIZE, Below, Buffer, Engine, Lock
from ckpt.redundancy import inject, surroundings
from ckpt.redundancy.agreement.choices import ReplicaChoices
from ckpt.redundancy.agreement.order import Message
from ckpt.redundancy.ahead import AHEAD_MAX
from ckpt.redundancy.digest import REPORT_NS, Stream, Streams
from ckpt.redundancy.files import images, names
from ckpt.redundancy.files.meeting import Meeting
from ckpt.redundancy.membership import Numbering
from ckpt.redundancy.memory.question import MemoryQuestion
from ckpt.redundancy.telling import Telling
from ckpt.redundancy.vote import WRITES

__all__ = ["ReplicaLayer", "attach", "current"]

WRONG = "wrong"
"""The cause with which the controller names processes that have computed wrongly; others have died."""

ENDLESS_BYTES = 1 << 60
"""The backlog of a replica that is to wait: blocking sends and collectives wait until it is small."""

STUCK_NS = 10_000_000_000
"""So long after the loss of a wrong leader its choices may take to come true; then the program is started again."""

_current: list[ReplicaLayer] = []


def current() -> ReplicaLayer | None:
    """The layer of this process; None: it is no replica."""
    return _current[0] if _current else None


def attach(
    below: Below, options: Mapping[str, Any], make: Callable[..., ReplicaLayer] | None = None
) -> ReplicaLayer:
    """The layer of this process. ``options``: ``replicas``, the number of replicas with which each rank begins; ``ranks``:
    how many ranks there are; ``run``: 0 in the first run of the program, more when it has been started again; ``began``:
    what clocks told then; ``resume``: the checkpoint from which all replicas go on; ``living``: this process is a copy, made
    while these planes compute; ``memory``: "arrays" if nothing else in memory is compared."""
    layer = (make or ReplicaLayer)(below, options)
    _current[:] = [layer]
    return layer


def ranks_of(below: Below, options: Mapping[str, Any]) -> int:
    """How many ranks there are."""
    return int(options.get("ranks", below.size // int(options["replicas"])))


def rank_of(below: Below, options: Mapping[str, Any]) -> int:
    """The rank of this process."""
    return Numbering(ranks_of(below, options), int(options["replicas"])).parts(below.rank)[0]


class ReplicaLayer(Telling):
    """:class:`ckpt.layer.Layer` of one replica."""

    def __init__(self, below: Below, options: Mapping[str, Any]) -> None:
        self.below = below
        replicas = int(options["replicas"])
        self.size = ranks_of(below, options)
        self.replicas = replicas
        self.numbers = numbers = Numbering(self.size, replicas)
        self.rank, self.replica = numbers.parts(below.rank)
        self._process = numbers.of_plane(self.replica)
        """By rank, the process of this plane."""
        self.lock: Lock = below.lock
        self.streams = Streams()
        self.flips = (
            None
            if options.get("run")
            else inject.from_environment(self.rank, self.replica, self.size, replicas)
        )
        self.copied_beside: list[int] | None = options.get("living")
        self.living = {self.replica, *(range(replicas) if self.copied_beside is None else self.copied_beside)}
        """Planes that compute, as far as this process has been told."""
        self._is_compared = self.copied_beside is None
        """A copy tells nothing before the others know of it."""
        self._memory = MemoryQuestion(below, with_values=options.get("memory", "all") == "all")
        named = self.streams.named
        self._meeting = Meeting(below, lambda: named("files"), lambda: named(WRITES), self.rank)
        self._resumed: int | None = options.get("resume")
        """The checkpoint from which all replicas went on last; None: from the program's start."""
        self._sent = 0
        self._most: int | None = None
        """So many messages may be sent for now (ahead.py); None: there is no bound."""
        self._reported_ns = 0
        self._lost_ns = 0
        self._engine: Engine | None = None
        self._choices: ReplicaChoices | None = None
        key = below.secret if self._resumed is None else below.secret + str(options["run"]).encode()
        surroundings.install(self._ask, key, self.rank, options.get("began", {}))
        flipped = bytes if self.flips is None else self.flips.content
        names.install(self._meeting.meet, flipped, below.notes(self.rank))

    # ---- Layer -------------------------------------------------------------------------------------------

    def bind(self, engine: Engine, content: ReplicaChoices | None = None) -> None:
        self._engine = engine
        self._choices = choices = ReplicaChoices(engine) if content is None else content
        if self.copied_beside is None:
            choices.begin(self.replica, self.replicas, self._to_replica)
        else:
            choices.begin_as_copy(self.replica, self.copied_beside, self._to_replica)
            self._sent = choices.beside["sent"]
            self.streams.go_on(choices.beside["streams"], time.monotonic_ns())
            surroundings.go_on(choices.beside["surroundings"])
            self._memory.places = choices.beside["places"]
        is_copy = self.copied_beside is not None
        saved = choices.beside.get("files", {})
        images.log_problems(images.go_on(saved, is_copy=is_copy, line=self._resumed), self.below.log)
        self._meeting.choices = choices
        self._memory.engine = engine
        choices.on_start, choices.digest_of = self._memory.started, self._meeting.digest_of
        choices.deliver(self.below.log)
        surroundings.begin()

    def _ask(self, look: Callable[[], Any]) -> Any:
        return look() if self._choices is None else self._choices.value(look)

    # ---- images ------------------------------------------------------------------------------------------

    def saved(self, state: Any) -> Any:
        mine = {process: rank for rank, process in enumerate(self._process)}
        links = {mine[process]: link for process, link in state.links.items() if process in mine}
        return type(state)(state.job, self.rank, self.size, state.epoch, state.incarnation, links)

    def restored(self, state: Any) -> Any:
        links = {self._process[rank]: link for rank, link in state.links.items()}
        below = self.below
        return type(state)(state.job, below.rank, below.size, state.epoch, state.incarnation, links)

    def content(self, epoch: int) -> ReplicaChoices | None:
        if self._choices is not None:
            self._choices.beside = self._beside(epoch)
            self._choices.captured(epoch)
        return self._choices

    def _beside(self, epoch: int) -> dict[str, Any]:
        return {
            "sent": self._sent,
            "places": self._memory.places,
            "streams": self.streams.states(),
            "surroundings": surroundings.state(),
            "files": images.state(epoch),
        }

    @property
    def takes_images(self) -> bool:
        return bool(self.replica == min(self.living))

    def obstacle(self) -> str:
        if self._choices is None or self._choices.leads:
            return ""
        return "this replica has just become the one that leads, and learns what the others know"

    def on_messages(self, process: int, batch: list[Buffer]) -> None:
        rank, replica = self.numbers.parts(process)
        if replica == self.replica:
            assert self._engine is not None
            self._engine.on_messages(rank, batch)
            return
        self.below.consumed(process, sum(map(len, batch)), len(batch))
        for data in batch:
            self._from_replica(replica, pickle.loads(data))

    def _from_replica(self, replica: int, message: Message) -> None:
        """A message from another replica of this rank."""
        assert self._choices is not None
        self._choices.receive(replica, message)

    def on_lost(self, processes: Sequence[int], cause: str) -> None:
        places = [self.numbers.parts(process) for process in processes]
        self.living -= {plane for _, plane in places}
        mine = [plane for rank, plane in places if rank == self.rank]
        if mine and self._choices is not None:
            self._choices.lost(mine, wrong=cause == WRONG)
            self._lost_ns = time.monotonic_ns()

    def on_packet(self, packet: Mapping[str, Any]) -> None:
        """The controller tells how far the slowest replica of this rank is (``floor``), or of a copy (`_on_copy`); or asks
        for digests where an image was taken (`LineQuestion`), or for messages one by one: a replica differs, and it wants to
        know where it began.

        ``after``: by stream, the number after which to begin; ``ranges``: by stream, first and last number."""
        if "floor" in packet:
            self._most = None if packet["floor"] is None else packet["floor"] + AHEAD_MAX
            return
        if "copy" in packet:
            self._on_copy(packet)
            return
        if "memory" in packet:
            self._memory.ask(packet["memory"], packet["place"])
            return
        if "line" in packet:
            self._ask_line(packet)
            return
        self._tell_details(packet)

    def _on_copy(self, packet: Mapping[str, Any]) -> None:
        """``copy``: number of a plane. ``step``: "hold", which is answered; "image": it is made from an image with a number
        above `after`; "let go"; "join"; to the copy "joined"."""
        assert self._choices is not None
        plane = packet["copy"]
        match packet["step"]:
            case "hold":
                self._choices.hold(plane)
                self.below.report({"held": plane})
            case "image":
                self._choices.expect_image(plane, packet["after"])
            case "let go":
                self._choices.let_go(plane)
            case "join":
                self.living.add(plane)
                self._choices.join(plane)
            case "joined":
                self.living &= {plane, *packet["living"]}
                self._choices.joined(packet["living"])
                self._is_compared = True

    def tick(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._reported_ns >= REPORT_NS:
            self._reported_ns = now_ns
            self._report(all_of_it=False)
            self._answer_line()
            self._meeting.tick(now_ns)
            if self._lost_ns and now_ns - self._lost_ns >= STUCK_NS:
                self._lost_ns = 0
                if self._choices is not None and self._choices.is_stuck():
                    self.below.report({"stuck": True})

    def ending(self, exit_code: int) -> None:
        while not self._is_compared and not exit_code:
            self.below.block(False, longest_ns=REPORT_NS)  # a copy ends when the others know of it
        self._report(all_of_it=True)
        if exit_code:
            self._tell_last()
        self._answer_line()
        self._memory.end()
        self._meeting.has_ended = True

    # ---- Progress ----------------------------------------------------------------------------------------

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        _, data, payload = self._counted(dst, data, payload)
        return self.below.send(self._process[dst], data, payload)

    def _counted(
        self, dst: int, data: Buffer, payload: Buffer | None
    ) -> tuple[Stream | None, Buffer, Buffer | None]:
        """The stream of a message, after the message has been counted into it (None: it is not compared), and the message as
        it leaves."""
        head = data[:SIZE]
        try:
            stream = self.streams.find(head if type(head) is bytes else bytes(head))
        except ValueError as what:
            raise NotReplicable(f"{what} under --redundancy: what is sent may depend on time") from None
        if stream is not None:
            if stream is self.streams.point:
                self._memory.started()
            if self.flips is not None:
                data, payload = self.flips.message(data, payload)
            self._count(stream, dst, data, payload)
            self._sent += 1
        return stream, data, payload

    def _count(self, stream: Stream, dst: int, data: Buffer, payload: Buffer | None) -> None:
        """A message is counted into its stream."""
        stream.add(dst, data, payload, time.monotonic_ns())

    def acked(self, dst: int) -> int:
        return self.below.acked(self._process[dst])

    def release(self, dst: int, sequence: int) -> bool:
        return self.below.release(self._process[dst], sequence)

    @property
    def is_ahead(self) -> bool:
        """Is this replica so far ahead of the slowest one of its rank that it has to wait?"""
        return self._most is not None and self._sent > self._most

    def backlog_bytes(self, dst: int) -> int:
        if self.is_ahead:
            return ENDLESS_BYTES
        return self.below.backlog_bytes(self._process[dst])

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        self.below.consumed(self._process[src], nbytes, nmessages)

    def poll(self) -> None:
        if self._choices is not None:
            self._choices.called()
        self.tick()  # a program that asks again and again leaves the helper thread no moment for it
        self.below.poll()

    def block(self, hungry: bool, awaited: Any = None) -> None:
        self.tick()
        if self._choices is not None and self._choices.called():
            return
        self.below.block(hungry, awaited)
        while self.is_ahead:
            self.below.block(False, longest_ns=REPORT_NS)
            self.tick()

    def wake(self) -> None:
        self.below.wake()

    # ---- for the program ---------------------------------------------------------------------------------

    def result(self, data: bytes) -> None:
        """A result of the program, as its digest: compared like a message."""
        with self.lock:
            if self.flips is not None:
                data = self.flips.content(data)
            self.streams.named("result").add(self.rank, data, None, time.monotonic_ns())

    # ---- inside ------------------------------------------------------------------------------------------

    def _to_replica(self, replica: int, message: Message) -> None:
        self.below.send(self.numbers.process(self.rank, replica), pickle.dumps(message, 5))
