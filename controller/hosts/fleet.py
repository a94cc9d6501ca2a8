"""The hosts of a job as the controller knows them: who has joined, who is lost, what proves that its ranks are gone. Pure.

    starting ──join──▶ joined ──silent for lease and margin──────────────▶ fenced (proof: lease)
        │                 │ ──engine's command ended ──▶ lost ──the same──▶ fenced (proof: lease)
        │                 ├──says that all its processes have ended───────▶ fenced (proof: reaped)
        │                 └──left out: at fault ─────▶ lost ──the same─────▶ fenced (either proof)
        └──engine's command ended · time limit · refused──▶ failed

    lost ──the engine starts another agent there, which finds nothing left of the one before──▶ fenced (proof: reset, reaped)

    fenced ──its agent has ended all its processes, and dials in again──▶ joined (a spare)

Rules
- A lost host's renewals are not answered any more: so its agent kills its ranks, however long it lives.
- `Fenced` comes when each joined host on which ranks were started has reported them as reaped, and each such host that is
  lost is fenced. A spare is told, and not waited for: one that is slow, or lost, holds nobody up.
- What the engine says (its command has ended) is a hint to stop waiting for the host, never a proof that its ranks are gone.
  But another agent that it starts there can find one: another boot of the machine, or no process left of the agent before.
- A host that is fenced takes no further part, unless it comes back: its agent has found its lease over, has ended all its
  processes, and asks for a new lease. So it has no ranks. Who was left out does not come back.
- Where agents look into the journal (`records`), a host that is lost, or silent for half of its lease, is written down there
  first (`Record`), as a host whose ranks may not go on. Its lease does not count as over before that is done, and half a
  lease more; or, if the disk refuses, when agents look no more. A renewal that comes meanwhile settles the matter; the next
  silence has a record of its own.
- Where all hosts are lost, and their ranks are to be started again, those that may come back are waited for, for as long as
  agents ask for a new lease (`returns`): then `Fenced` comes with the first of them.
- No ranks are started while all hosts that are left have been silent for half a lease: they may be lost, too, soon.
- A host without ranks is lost without harm: nothing is started elsewhere (`Gone`).
- Where the program handles failures itself (`tolerant`), a lost host is no reason to start ranks elsewhere (`Gone`): its
  ranks are dead when it is fenced (`Dead`), and not before.

Every host has an index, from 1. Not here: sockets and processes (:mod:`ckpt.controller.hosts.launch`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ckpt.controller.hosts.lease import JOIN_LIMIT_LEASES, alone_ns, look_ns, over_ns
from ckpt.controller.supervision.events import Fenced
from ckpt.controller.supervision.plan import Node
from ckpt.transport.records import dataclass, field

__all__ = ["Answer", "Dead", "Fleet", "Gone", "Note", "Record", "TellEnd", "TellFence"]

_STALLS = 3
"""A lease of so many times the longest stall is advised."""

State = Literal["starting", "joined", "lost", "fenced", "failed"]


@dataclass(frozen=True)
class Answer:
    """Answer renewal `number` of this host."""

    host: int
    number: int


@dataclass(frozen=True)
class TellFence:
    """Let this host end all its ranks up to this incarnation."""

    host: int
    incarnation: int


@dataclass(frozen=True)
class TellEnd:
    """Let this host end all its ranks, and its agent."""

    host: int
    reason: str


@dataclass(frozen=True)
class Gone:
    """A host is lost, and its ranks with it."""

    reason: str


@dataclass(frozen=True)
class Dead:
    """The ranks that were started on this host, and whose end it has not reported, have ended: the others are to be told.
    `ranks`: with their incarnations."""

    host: int
    reason: str
    ranks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Record:
    """Write into the journal that ranks of these hosts may not go on; answer with `recorded` or `not_recorded`.

    `silences`: the number of the silence of each."""

    silences: dict[int, int]


@dataclass(frozen=True)
class Note:
    """For the event log."""

    event: str
    fields: dict[str, Any] = field(default_factory=dict)


Effect = Answer | TellFence | TellEnd | Gone | Dead | Fenced | Record | Note


@dataclass
class Host:
    """One host. `came_ns`: when its last renewal that was answered came. `silence`: the number of its present silence, 0: of
    none, of which a record is being written, or has been, at `recorded_ns`."""

    node: Node
    state: State = "starting"
    came_ns: int = 0
    lost_ns: int = 0
    reason: str = ""
    engine_is_gone: bool = False  # its agent has ended, as far as one can know
    silence: int = 0
    recorded_ns: int | None = None
    is_left_out: bool = False
    had_ranks: bool = False  # ranks were started there, whose end nothing has proven since
    ranks: dict[int, int] = field(default_factory=dict)
    """Those that were started there last and have not ended, as far as it has reported, and their incarnations."""


class Fleet:
    """All hosts of one controller. All times are of the controller's clock."""

    def __init__(self, nodes: Sequence[Node], *, lease_ns: int, tolerant: bool = False) -> None:
        """`tolerant`: dead ranks are not started again, the others go on (`--on-failure continue`). Set `records` when
        agents look into the journal, `returns` when those that are away ask for a new lease."""
        self.records = False
        self.returns = False
        self.now_ns = 0
        self.has_to_restart = False
        self.waits = self.hesitates = False
        self.silences = 0
        self.lease_ns = lease_ns
        self.tolerant = tolerant
        self.hosts = {index: Host(node) for index, node in enumerate(nodes, 1)}
        self.fencing: int | None = None  # the incarnation that is being fenced
        self.waiting: set[int] = set()  # joined hosts that have not reported it yet

    def nodes(self) -> list[Node]:
        """The hosts on which ranks can be started."""
        return [host.node for host in self.hosts.values() if host.state == "joined"]

    def index_of(self, name: str) -> int:
        """The index of the host of that name."""
        return next(index for index, host in self.hosts.items() if host.node.name == name)

    def joined(self, index: int, now_ns: int) -> list[Effect]:
        """The host's agent has dialled in."""
        host = self.hosts[index]
        if host.state != "starting":
            return []
        host.state, host.came_ns = "joined", now_ns
        fields = {"host": host.node.name, "slots": host.node.slots, "lease_s": self.lease_ns / 1e9}
        return [Answer(index, 0), Note("host-joined", fields)]

    def may_return(self) -> bool:
        """May hosts that were lost come back now? Not while ranks are to be started elsewhere, or else it would depend on
        chance where."""
        return self.waits or not self.has_to_restart

    def back(self, index: int, number: int, now_ns: int) -> list[Effect]:
        """The agent of a host that was lost has ended all its processes, and asks for a new lease with renewal `number`. It
        asks until it has heard the answer: what comes after the first time is a renewal."""
        host = self.hosts[index]
        if host.state == "joined":
            return self.renewed(index, number, now_ns)
        if host.is_left_out:
            return [TellEnd(index, host.reason)]
        if host.state != "fenced":
            return []
        away_ms = round((now_ns - host.lost_ns) / 1e6, 3)
        host.state, host.came_ns, host.reason = "joined", now_ns, ""
        host.silence, host.recorded_ns = 0, None
        fields = {"host": host.node.name, "slots": host.node.slots, "ms": away_ms}
        return [Answer(index, number), Note("host-back", fields)]

    def failed(self, index: int, reason: str) -> list[Effect]:
        """The host's agent was not started, or cannot be used."""
        host = self.hosts[index]
        if host.state != "starting":
            return []
        host.state, host.reason = "failed", reason
        return [Note("host-failed", {"host": host.node.name, "reason": reason})]

    def start(self, ranks: Mapping[int, Mapping[int, int]]) -> None:
        """Ranks are started: by host, their numbers with their incarnations. No others are left."""
        self.has_to_restart = False
        for index, host in self.hosts.items():
            host.ranks = dict(ranks.get(index, {}))
            host.had_ranks = bool(host.ranks)

    def died(self, index: int, rank: int, incarnation: int) -> None:
        """The host has reported that a rank has ended."""
        if self.hosts[index].ranks.get(rank) == incarnation:
            del self.hosts[index].ranks[rank]

    def renewed(self, index: int, number: int, now_ns: int) -> list[Effect]:
        """A renewal has come."""
        host = self.hosts[index]
        if host.state != "joined":
            return []
        host.came_ns, host.silence, host.recorded_ns = now_ns, 0, None
        return [Answer(index, number)]

    def stalled(self, index: int, stalled_ns: int) -> Note:
        """The host's agent says that it has stood still for so long."""
        stalled_s, lease_s = stalled_ns / 1e9, self.lease_ns / 1e9
        fields = {"host": self.hosts[index].node.name, "s": round(stalled_s, 3), "lease_s": lease_s}
        enough = math.ceil(_STALLS * stalled_s)
        reason = (
            f"it stood still for {stalled_s:.1f} s, and is given up after {lease_s:g} s: use --lease {enough}"
        )
        return Note("host-stalled", fields | {"reason": reason})

    def engine_ended(self, index: int, reason: str, now_ns: int) -> list[Effect]:
        """The command that the engine ran for this host has ended."""
        host = self.hosts[index]
        host.engine_is_gone = True
        if host.state == "starting":
            return self.failed(index, reason)
        return self._lose(index, reason, now_ns) if host.state == "joined" else []

    def leave_out(self, name: str, reason: str, now_ns: int) -> list[Effect]:
        """The host is at fault: it gets no ranks any more, and those that it has are started elsewhere."""
        index = self.index_of(name)
        if self.hosts[index].state != "joined":
            return []
        self.hosts[index].is_left_out = True
        note = Note("host-left-out", {"host": name, "reason": reason})
        return [note, TellEnd(index, reason), *self._lose(index, reason, now_ns)]

    def fork_server_lost(self, index: int, reason: str, now_ns: int) -> list[Effect]:
        """The host's fork server has ended, and its ranks with it. Its agent starts another one for a restart; where there
        is to be none, it is told to make sure of their end, and to end."""
        name = self.hosts[index].node.name
        if not self.tolerant:
            return [Gone(f"on host {name}: {reason}")]
        if self.hosts[index].state != "joined":
            return []
        return [TellEnd(index, reason), *self._lose(index, reason, now_ns)]

    def ended(self, index: int, reason: str, now_ns: int) -> list[Effect]:
        """The host's agent says that it has ended all its processes, and ends itself."""
        host = self.hosts[index]
        if host.state not in ("joined", "lost"):
            return []
        effects = self._lose(index, reason, now_ns) if host.state == "joined" else []
        return effects + self._prove(index, "reaped", now_ns)

    def reborn(self, index: int, proof: str, now_ns: int) -> list[Effect]:
        """Another agent has been started on a host whose agent is gone, and says what proves that nothing of it is left:
        "reset" (the machine was booted anew) or "reaped". Then it asks for a lease, as one that comes `back`."""
        host = self.hosts[index]
        if host.state not in ("lost", "fenced") or host.is_left_out:
            return []
        host.engine_is_gone = False
        return self._prove(index, proof, now_ns) if host.state == "lost" else []

    def may_begin_anew(self, index: int) -> bool:
        """May another agent be started on this host, since the one before is gone?"""
        host = self.hosts[index]
        return host.engine_is_gone and not host.is_left_out and host.state in ("lost", "fenced")

    def fence(self, incarnation: int, final: bool = False) -> list[Effect]:
        """Make sure that no rank up to this incarnation runs. `final`: no others are to be started."""
        if final:
            self.has_to_restart = False
        self.fencing = incarnation
        joined = [index for index, host in self.hosts.items() if host.state == "joined"]
        self.waiting = {index for index in joined if self.hosts[index].had_ranks}
        told: list[Effect] = [TellFence(index, incarnation) for index in joined]
        return told + self._check_fenced()

    def fenced(self, index: int, incarnation: int) -> list[Effect]:
        """A host has reaped all its ranks up to this incarnation."""
        if incarnation == self.fencing:
            self.waiting.discard(index)
        return self._check_fenced()

    def tick(self, now_ns: int) -> list[Effect]:
        """Time has passed."""
        self.now_ns = now_ns
        effects, silences = self._check_fenced() if self.waits or self.hesitates else [], dict[int, int]()
        for index, host in self.hosts.items():
            if host.state in ("joined", "lost") and now_ns >= self._over_ns(host):
                if host.state == "joined":
                    silent_s = round((now_ns - host.came_ns) / 1e9, 1)
                    effects += self._lose(index, f"nothing was heard of it for {silent_s} s", now_ns)
                effects += self._prove(index, "lease", now_ns)
            elif self._is_to_be_recorded(host, now_ns):
                self.silences += 1
                silences[index] = host.silence = self.silences
        return [*effects, *([Record(silences)] if silences else [])]

    def _is_to_be_recorded(self, host: Host, now_ns: int) -> bool:
        if not self.records or host.silence:
            return False
        is_silent = host.state == "joined" and now_ns >= host.came_ns + look_ns(self.lease_ns)
        return is_silent or host.state == "lost"

    def _over_ns(self, host: Host) -> int:
        """When its lease is over, if nothing more is heard of it or written down."""
        if not self.records:
            return over_ns(host.came_ns, self.lease_ns)
        if host.recorded_ns is None:
            return alone_ns(host.came_ns, self.lease_ns)
        return over_ns(host.came_ns, self.lease_ns, host.recorded_ns)

    def recorded(self, silences: Mapping[int, int], now_ns: int) -> None:
        """These silences are in the journal."""
        for index, silence in silences.items():
            if self.hosts[index].silence == silence:
                self.hosts[index].recorded_ns = now_ns

    def not_recorded(self, silences: Mapping[int, int]) -> None:
        """These silences could not be written: the next `tick` asks for it again."""
        for index, silence in silences.items():
            if self.hosts[index].silence == silence:
                self.hosts[index].silence = 0

    def deadline_ns(self) -> int | None:
        """When `tick` is due next."""
        found = [self._over_ns(host) for host in self.hosts.values() if host.state in ("joined", "lost")]
        return min(found, default=None)

    def give_up(self, reason: str, now_ns: int) -> list[Effect]:
        """The ranks that run are not gone on with: all hosts end them, and their agents."""
        effects: list[Effect] = []
        for index, host in self.hosts.items():
            if host.state == "joined":
                host.is_left_out = True
                effects += [TellEnd(index, reason), *self._lose(index, reason, now_ns)]
        return effects

    def _lose(self, index: int, reason: str, now_ns: int) -> list[Effect]:
        host = self.hosts[index]
        host.state, host.lost_ns, host.reason = "lost", now_ns, reason
        self.waiting.discard(index)
        name = host.node.name
        note = Note("host-lost", {"host": name, "reason": reason})
        if self.tolerant or not host.ranks:
            return [note]
        self.has_to_restart = True
        return [note, Gone(f"host {name} is lost: {reason}")]

    def _prove(self, index: int, proof: str, now_ns: int) -> list[Effect]:
        host = self.hosts[index]
        host.state, self.now_ns = "fenced", now_ns
        took_ms = round((now_ns - host.lost_ns) / 1e6, 3)
        note = Note("host-fenced", {"host": host.node.name, "proof": proof, "ms": took_ms})
        dead: list[Effect] = []
        if self.tolerant and host.ranks:
            dead.append(Dead(index, host.reason, tuple(sorted(host.ranks.items()))))
        host.ranks, host.had_ranks = {}, False
        return [note, *dead, *self._check_fenced()]

    def _check_fenced(self) -> list[Effect]:
        may_run = any(host.state == "lost" and host.had_ranks for host in self.hosts.values())
        if self.fencing is None or self.waiting or may_run:
            return []
        self.hesitates = self.has_to_restart and self._are_all_silent()
        if self.hesitates:
            return []
        limit_ns = self._return_limit_ns()
        if limit_ns is not None and self.now_ns < limit_ns:
            if self.waits:
                return []
            self.waits = True
            return [Note("waiting-for-hosts", {"s": round((limit_ns - self.now_ns) / 1e9, 1)})]
        incarnation, self.fencing, self.waits = self.fencing, None, False
        return [Fenced(incarnation)]

    def _are_all_silent(self) -> bool:
        """Are hosts left, and none has been heard of for half a lease? Those cut off at once are not given up at once."""
        came = [host.came_ns for host in self.hosts.values() if host.state == "joined"]
        return bool(came) and self.now_ns >= max(came) + look_ns(self.lease_ns)

    def _return_limit_ns(self) -> int | None:
        """All hosts are lost: how long those are waited for that may come back; None: not at all."""
        if not self.returns or not self.has_to_restart or self.nodes():
            return None
        came = [
            host.came_ns
            for host in self.hosts.values()
            if host.state == "fenced" and not host.is_left_out and not host.engine_is_gone
        ]
        return max(came) + (1 + JOIN_LIMIT_LEASES) * self.lease_ns if came else None
