"""The controller as a value: the production Supervisor and Coordinator, and the job's data on disk.

A few lines here do for each action what `ckpt.controller.service.service` does, in the same order. The disk consists of the
committed lines, the numbers in the event log and the removed images. A commit is an action and a later completion: between
the two all other processes go on, and the controller may die; then the control file exists, or it does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ckpt.controller.supervision import messages, packet_events
from ckpt.controller.supervision.events import (
    Adopt,
    BackRequested,
    Begin,
    CheckpointRequested,
    ControlFailed,
    ControlWritten,
    Died,
    Discard,
    End,
    Fence,
    Fenced,
    FilesKept,
    Hello,
    KeepFiles,
    Launch,
    Loaded,
    Log,
    PutFilesBack,
    Send,
    Tick,
    WriteControl,
)
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.transport.records import names
from tests.model.world import World

FAR_NS = 1 << 60
UNTIMED = {
    "due_ns",
    "since_ns",
    "started_ns",
    "first_image_ns",
    "deadline_ns",
    "relaunch_reason",
    "options",
    "reason",
    "gap",
}


class RuleBroken(AssertionError):
    """A counterexample; the text is the sequence of steps that leads to it."""


Line = tuple[int, tuple[int, ...]]
"""epoch, and each rank's image (ABSENT: it was dead for good)"""
ABSENT = -1


def frozen(thing: Any) -> object:
    """A hashable copy of any plain object, without times and reasons."""
    if thing is None or isinstance(thing, (int, str, bytes)):
        return thing
    if isinstance(thing, Mapping):
        return tuple(sorted(((frozen(key), frozen(value)) for key, value in thing.items()), key=repr))
    if isinstance(thing, (set, frozenset)):
        return frozenset(map(frozen, thing))
    if isinstance(thing, (tuple, list)):
        return tuple(map(frozen, thing))
    if is_dataclass(thing) or hasattr(thing, "__record_fields__"):
        found = [f.name for f in fields(thing)] if is_dataclass(thing) else names(thing)
        return type(thing).__name__, tuple(
            frozen(getattr(thing, name)) for name in found if name not in UNTIMED
        )
    return tuple((name, frozen(value)) for name, value in sorted(vars(thing).items()) if name not in UNTIMED)


@dataclass
class Effects:
    """The effects of a step of the controller on others: packets by rank (None: all ranks of `incarnation`);
    a launch: incarnation, and the line's images or None."""

    packets: list[tuple[int | None, int, Mapping[str, Any]]] = field(default_factory=list)
    launch: tuple[int, Line | None] | None = None
    fenced: bool = False
    committing: WriteControl | None = None


class Controller:
    """See the module. `kills`, `deaths`, `failures`: ranks and controllers that may still die, control files
    that may still fail to be written."""

    def __init__(
        self,
        world: World,
        size: int,
        *,
        kills: int,
        deaths: int,
        failures: int,
        asks: bool = False,
        adopts: bool = False,
        continues: bool = False,
    ) -> None:
        self.world = world
        self.adopts = adopts
        self.continues = continues
        self.adoptable: tuple[tuple[tuple[int, int], ...], frozenset[int], frozenset[int]] | None = None
        """Of the controller that has died, if its ranks can be gone on with: those that had finished, with their codes;
        those that had failed; those of them without which they had begun."""
        self.asks = asks
        self.size = size
        self.kills, self.deaths, self.failures = kills, deaths, failures
        self.lines: tuple[Line, ...] = ()
        self.log: frozenset[tuple[str, int]] = frozenset()
        self.incarnation = -1
        self.removed: frozenset[tuple[int, int]] = frozenset()
        """(incarnation, epoch) of images that are gone from the disk"""
        self.pending: WriteControl | None = None
        self.unnoticed: frozenset[tuple[int, int]] = frozenset()
        """(rank, incarnation) that have died without the controller knowing"""
        self.ended = False
        self.started: list[int] = []
        self.supervisor: Any = None

    def clone(self) -> Controller:
        new = Controller.__new__(Controller)
        new.__dict__.update(self.__dict__)
        new.supervisor = None if self.supervisor is None else self.supervisor.clone()
        return new

    def key(self) -> tuple[object, ...]:
        """Hashable: equal keys behave alike."""
        return (
            None if self.supervisor is None else frozen(self.supervisor),
            (self.kills, self.deaths, self.failures, self.incarnation, self.ended),
            self.lines,
            self.log,
            self.removed,
            frozen(self.pending),
            self.unnoticed,
            self.adoptable,
        )

    # ---- events

    def take_over(self) -> Effects:
        """The next controller has the lock; see `Service.__init__`. The log and the control files alone say
        which numbers were used (production also looks at the images that are left)."""
        history = self.world.history.summarise(
            [{"event": event, "epoch": epoch} for event, epoch in sorted(self.log)]
        )
        epochs = [epoch for epoch, _ in self.lines]
        coordinator = self.world.coordinator(
            self.size,
            highest=max([history.highest_epoch, *epochs]),
            committed=epochs[-1] if epochs else None,
            options=RoundOptions(mode="sync", asks=self.asks),
        )
        self.supervisor = self.world.supervisor(
            coordinator,
            incarnation=self.incarnation + 1,
            lines=tuple(epochs),
            absent={
                epoch: [rank for rank, image in enumerate(images) if image == ABSENT]
                for epoch, images in self.lines
            },
            on_failure="continue" if self.continues else "restart",
        )
        adoptable, self.adoptable = self.adoptable, None
        if adoptable is None or (self.unnoticed and not self.continues):
            self.unnoticed = frozenset()
            return self.feed(Begin())
        finished, told, absent = adoptable
        failed = told | {rank for rank, incarnation in self.unnoticed if incarnation == self.incarnation}
        self.unnoticed = frozenset()
        addresses = {rank: "model" for rank in range(self.size) if rank not in failed}
        alive = {rank: code for rank, code in finished if rank not in failed}
        found = self.incarnation, addresses, alive, history.open_round
        return self.feed(Adopt(*found, failed=failed, told=told, absent=absent))

    def die(self, *, durable: bool) -> Effects:
        """The controller dies; a control file that was being written is there, or is not."""
        if self.pending is not None and durable:
            self._commit(self.pending)
        self.deaths -= 1
        self.pending = None
        if self.adopts and self.supervisor.phase == "running":
            told = self.supervisor
            self.adoptable = tuple(sorted(told.finished.items())), frozenset(told.failed), told.absent
        self.supervisor = None
        effects = Effects()
        effects.packets.append((None, self.incarnation, messages.alone()))
        return effects

    def _commit(self, control: WriteControl) -> None:
        images = {vote.rank: int(vote.manifest) for vote in control.votes}
        self.lines += ((control.epoch, tuple(images.get(rank, ABSENT) for rank in range(self.size))),)

    def written(self, *, fails: bool = False) -> Effects:
        """The control file and its directory are durable; or the disk refused."""
        control, self.pending = self.pending, None
        assert control is not None
        if fails:
            self.failures -= 1
            return self.feed(ControlFailed(control.epoch, "disk full"))
        self._commit(control)
        return self.feed(ControlWritten(control.epoch))

    def hear(self, rank: int, incarnation: int, packet: Mapping[str, Any]) -> Effects:
        """A rank's packet has come."""
        event = packet_events.rank_event(rank, incarnation, messages.parse_rank(dict(packet)))
        return Effects() if event is None else self.feed(event)

    def notice(self, rank: int, incarnation: int) -> Effects:
        """The death of a rank is known."""
        self.unnoticed -= {(rank, incarnation)}
        return self.feed(Died(rank, incarnation, signal=9))

    def left(self, rank: int, incarnation: int, code: int) -> Effects:
        """A rank's process has ended by itself."""
        return self.feed(Died(rank, incarnation, code=code))

    def request(self) -> Effects:
        """Somebody wants a checkpoint."""
        return self.feed(CheckpointRequested())

    def time_out(self) -> Effects:
        """The open round has taken too long."""
        return self.feed(Tick(), now_ns=FAR_NS)

    def go_back(self) -> Effects:
        """The program wants the ranks again that it has lost; returns what the next incarnation lacks."""
        supervisor = self.supervisor
        before = supervisor.absent
        asks = min(set(range(self.size)) - supervisor.failed)
        effects = self.feed(BackRequested(asks, self.incarnation, "lost"))
        if not supervisor.absent <= before:
            raise RuleBroken(
                f"the program wants {sorted(supervisor.absent - before)} again, and does not get it"
            )
        return effects

    def feed(self, event: Any, *, now_ns: int = 0) -> Effects:
        effects = Effects()
        events = deque([event])
        while events:
            for action in self.supervisor.handle(events.popleft(), now_ns=now_ns):
                self._perform(action, effects, events)
        return effects

    def _perform(self, action: Any, effects: Effects, events: deque[Any]) -> None:
        match action:
            case Send(packet=packet, ranks=ranks):
                if packet["m"] == "committed" and packet["epoch"] not in [epoch for epoch, _ in self.lines]:
                    raise RuleBroken(f"epoch {packet['epoch']} is announced before it is durable")
                for rank in (None,) if ranks is None else ranks:
                    effects.packets.append((rank, self.incarnation, packet))
            case Log(event=name, fields=values):
                if name == "round-started" and any(values["epoch"] <= epoch for _, epoch in self.log):
                    raise RuleBroken(f"epoch {values['epoch']} is used after {sorted(self.log)}")
                if isinstance(values.get("epoch"), int):
                    self.log |= {(name, values["epoch"])}
            case WriteControl():
                self.pending = effects.committing = action
            case Discard(epoch=epoch):
                self._discard(epoch)
            case Fence():
                effects.fenced = True
                events.append(Fenced(action.incarnation))
            case Launch(incarnation=incarnation, epoch=epoch):
                self._discard(self.supervisor.coordinator.highest)
                self.incarnation = incarnation
                self.unnoticed = frozenset()
                line = None if epoch is None else next(line for line in self.lines if line[0] == epoch)
                effects.launch = (incarnation, line)
                self.started = [rank for rank in range(self.size) if rank not in action.absent]
                events.extend(Loaded(rank, incarnation) for rank in self.started)
            case PutFilesBack():
                events.extend(Hello(rank, self.incarnation, "model") for rank in self.started)
            case KeepFiles(incarnation=incarnation):
                events.append(FilesKept(incarnation))
            case End():
                self.ended = True

    def _discard(self, upto: int) -> None:
        newest = max((epoch for epoch, _ in self.lines), default=0)
        self.removed |= {
            (incarnation, epoch)
            for incarnation in range(self.incarnation + 1)
            for epoch in range(newest + 1, upto + 1)
        }

    # ---- what it knows

    @property
    def phase(self) -> str:
        return "dead" if self.supervisor is None else str(self.supervisor.phase)

    @property
    def outcome(self) -> Any:
        """How the job is going to end, or None."""
        return None if self.supervisor is None else self.supervisor.outcome

    @property
    def highest(self) -> int:
        return 0 if self.supervisor is None else int(self.supervisor.coordinator.highest)

    @property
    def round(self) -> Any:
        """The open round, or None."""
        return None if self.supervisor is None else self.supervisor.coordinator.round
