"""The driver of the fleet: carries out what `Fleet` decides about hosts, with connection, processes and clock. (driver)

    packets of agents ──▶ Fleet ──▶ effects ──▶ packets to agents, records in the journal, events for the service
    renewals of leases ──▶ Fleet, in the helper thread of the connection
    ends of the engine's commands, time ──▶ Fleet

Rules
- Renewals are answered in the helper thread: a disk that holds the controller up for longer than a lease must not cost the
  job its hosts. So the fleet is called under the port's lock (`ask`).
- A renewal is not answered when this may be the job's controller no more (`JournalWatch`).
- Where there is a journal, agents without a controller look into it, so a host that is given up is written down there,
  before its ranks count as gone (`_record`).
- Of a host whose agent is gone, the next agent is heard as soon as it has dialled in, and no earlier one (`Agents`).

Not here: what the service asks of a launcher (:mod:`ckpt.controller.hosts.launch.launcher`), and what all hosts are asked at
once (:mod:`ckpt.controller.hosts.launch.inquiries`).
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ckpt.controller.hosts.clock import now_ns
from ckpt.controller.hosts.engine import Started
from ckpt.controller.hosts.fleet import (
    Answer,
    Dead,
    Effect,
    Fleet,
    Gone,
    Note,
    Record,
    TellEnd,
    TellFence,
)
from ckpt.controller.hosts.launch.agents import Agents
from ckpt.controller.hosts.launch.journal_watch import JournalWatch
from ckpt.controller.hosts.link import Link, host_of
from ckpt.controller.launch.following import text_of
from ckpt.controller.launch.imports import Imports, lacks
from ckpt.controller.supervision.events import Fenced
from ckpt.store import StoreError
from ckpt.store.job.journal_files import Journal
from ckpt.version import VERSION

__all__ = ["POLL_S", "FleetDriver"]

POLL_S = 0.01
_ATTENTIVE_NS = 200_000_000


class FleetDriver:
    """All hosts of one controller. Call `connect` first, then `look` again and again."""

    def __init__(self, fleet: Fleet, agents: Agents, poller: select.epoll) -> None:
        """`poller`: readable when `look` has something to do."""
        self.fleet = fleet
        self.agents = agents
        self.link: Link | None = None
        self.watch: JournalWatch | None = None
        self.events: list[dict[str, Any]] = []
        """For the service: packets of agents and what follows from them (key "e")."""
        self.gone: list[str] = []
        """Losses of hosts that had ranks, and why: the ranks are to be started again."""
        self.ended: set[int] = set()
        """Hosts whose agents have said that they end."""
        self.doors: dict[int, str] = {}
        self.answers: dict[str, dict[int, dict[str, Any]]] = {}
        """By kind (see `inquire`) and host."""
        self.writers: dict[int, int] = {}
        """By rank: the host that has sent output of it last."""
        self.rosters: dict[int, dict[str, Any]] = {}
        """By host: the ranks with which it has dialled in (`ckpt.controller.adoption.roster`)."""
        self.incarnation = 0
        """That of the ranks which run, or ran last."""
        self.is_adopting = self.gives_up = self.is_closing = False
        """Are hosts that dial in with ranks welcome? Are none, because ranks are not gone on with? Do all end?"""
        self._poller = poller
        self.processors: dict[int, str] = {}
        """By host: the model of its processor."""
        self._python = ""
        self._script: str | None = None
        self._modules: Imports | None = None
        self._noted: list[Started] = []
        self._returning: dict[int, int] = {}  # hosts that ask for a new lease: the number of the renewal
        self._is_refused = False  # the journal could not be written
        self._tenure_is_over = self._tenure_is_said = False

    def connect(self, link: Link, python: str, script: str | None, modules: Imports | None = None) -> None:
        """Agents dial in at `link` from now on. `python`: the version under which the job runs; `script`: the digest of the
        program as this host sees it (`script_of`); `modules`: what it imports (`modules_of`)."""
        self.link, self._python, self._script, self._modules = link, python, script, modules
        link.on_renewal = self._renewal
        link.port.attentive_ns = _ATTENTIVE_NS
        fd = link.fileno()
        link.port.on_idle_tick = lambda: os.eventfd_write(fd, 1)
        self._poller.register(fd, select.EPOLLIN)

    def keep_watch(self, journal: Journal) -> None:
        """From now on look into the journal, and renew leases only as `Tenure` allows; agents may look there, too. Raises
        LockLost, StorageFailed."""
        if self.watch is not None:
            return
        assert self.link is not None
        watch = JournalWatch(journal, self.fleet.lease_ns, self.wake)
        with self.link.port.lock:
            self.fleet.records = True  # before an agent may look
            self.watch = watch
        self.tell(self.joined(), {"a": "journal", "number": watch.number})
        watch.start()

    # ---- hosts -------------------------------------------------------------------------------------------

    def joined(self) -> list[int]:
        return [index for index, host in self.fleet.hosts.items() if host.state == "joined"]

    def name_of(self, index: int) -> str:
        return self.fleet.hosts[index].node.name

    def tell(self, indices: Iterable[int], command: dict[str, Any]) -> None:
        if self.link is not None:
            for index in indices:
                self.link.send(self.agents.number_of(index), command)

    def inquire(
        self, commands: Mapping[int, dict[str, Any]], kind: str, limit_s: float
    ) -> dict[int, dict[str, Any]]:
        """Send each host its command, and wait until all that have joined have answered with packets of this kind, `limit_s`
        at most. Returns the answers by host; "came_ns": when each came, by the clock of the day."""
        answers = self.answers[kind] = {}
        for index, command in commands.items():
            self.tell([index], command)
        deadline = time.monotonic() + limit_s
        while not answers.keys() >= set(self.joined()) and time.monotonic() < deadline:
            self.look()
            time.sleep(POLL_S)
        return answers

    def ask(self, method: Callable[..., list[Effect]], *arguments: Any) -> None:
        """Call a method of the fleet, under the port's lock: the helper thread tells it of renewals."""
        assert self.link is not None
        with self.link.port.lock:
            effects = method(*arguments)
        self._do(effects)

    def wake(self) -> None:
        """Have the owner's loop call `look`. From any thread."""
        if self.link is not None:
            os.eventfd_write(self.link.fileno(), 1)

    # ---- what comes --------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take what has come, and see which engines' commands have ended and which leases are over."""
        assert self.link is not None
        for rank, packet in self.link.take():
            index, life = host_of(rank, len(self.fleet.hosts))
            if packet.get("e") == "join" and life:
                self._reborn(index, life, packet)
            elif self.agents.is_heard(index, life):
                self._packet(index, packet)
        self.events += [{"e": "question", "question": each} for each in self.link.questions()]
        for index, started, how in self.agents.ended():
            if started.is_shared and self.fleet.hosts[index].state != "starting":
                self._note_end(started, how)
            elif index not in self.ended:
                self.ask(self.fleet.engine_ended, index, how, now_ns())
            if not (started.is_shared or self.gives_up or self.is_closing) and self.fleet.returns:
                self.agents.plan_another(index)
        self.agents.begin_anew(self.link.expect)
        if self._tenure_is_over:
            self._tenure_is_over = False
            if not self._tenure_is_said:
                self._tenure_is_said = True
                reason = "the journal could not be read for too long"
                self._do([Note("leases-not-renewed", {"reason": reason})])
        elif self._tenure_is_said and self._may_answer():
            self._tenure_is_said = False
        if self._returning and self.fleet.may_return() and self._may_answer():
            returning, self._returning = self._returning, {}
            for index, number in returning.items():
                self.ended.discard(index)
                self.ask(self.fleet.back, index, number, now_ns())
        self.ask(self.fleet.tick, now_ns())

    def _reborn(self, index: int, life: int, packet: dict[str, Any]) -> None:
        """Another agent has been started on a host whose agent is gone. It says how it knows that."""
        problem = self._unfit(packet)
        if problem is None and (self.gives_up or self.fleet.hosts[index].is_left_out):
            problem = "this host is not needed any more"
        self.agents.hear(index, life)
        self.ended.discard(index)
        if problem is not None:
            self.tell([index], {"a": "end", "reason": problem})
            return
        self.agents.identities[index] = json.dumps(packet["identity"])
        self.ask(self.fleet.reborn, index, str(packet["proof"]), now_ns())

    def _note_end(self, started: Started, how: str) -> None:
        """One command for all hosts has ended: which agents that has ended, their leases say."""
        if started not in self._noted:
            self._noted.append(started)
            for host in self.fleet.hosts.values():
                host.engine_is_gone = True
            self._do([Note("engine-ended", {"reason": how})])

    def _packet(self, index: int, packet: dict[str, Any]) -> None:
        match packet.get("e"):
            case "join":
                problem = self._unfit(packet)
                if self.gives_up or (packet["roster"]["ranks"] and not self.is_adopting):
                    self.tell([index], {"a": "end", "reason": "its ranks are not gone on with"})
                    return
                self.rosters[index] = packet["roster"]
                self.agents.identities[index] = json.dumps(packet["identity"])
                if self.fleet.hosts[index].state == "failed":
                    self.tell([index], {"a": "end", "reason": "it has dialled in too late"})
                elif problem is None:
                    self.doors[index] = str(packet["door"])
                    self.processors[index] = str(packet["cpu"])
                    self._note_modules(index, packet)
                    self._note_same_machine(index)
                    self.ask(self.fleet.joined, index, now_ns())
                else:
                    self.ask(self.fleet.failed, index, problem)
                    self.tell([index], {"a": "end", "reason": problem})
            case "knocked" | "shared" | "examined" as kind:
                if kind in self.answers:
                    self.answers[kind][index] = {**packet, "came_ns": time.time_ns()}
            case "surveyed":
                name = self.name_of(index)
                failed = {self.name_of(int(i)): code for i, code in packet["failed"].items()}
                self.events.append(
                    {"e": "surveyed", "host": name, "number": packet["number"], "failed": failed}
                )
            case "looked":
                self.events.append(
                    {name: dict(packet[name]) for name in ("states", "stacks")} | {"e": "looked"}
                )
            case "fenced":
                self.ask(self.fleet.fenced, index, int(packet["incarnation"]))
            case "lost":
                self.ask(self.fleet.fork_server_lost, index, str(packet["reason"]), now_ns())
            case "ended":
                self.ended.add(index)
                self._returning.pop(index, None)
                self.ask(self.fleet.ended, index, str(packet["reason"]), now_ns())
            case "back":
                self._returning[index] = int(packet["number"])
            case "stalled":
                self._do([self.fleet.stalled(index, int(packet["ns"]))])
            case "door":
                self.doors[index] = str(packet["door"])
            case _ if self.fleet.hosts[index].state == "joined":
                if packet.get("e") == "output":
                    self.writers[int(packet["rank"])] = index
                    packet = {**packet, "text": text_of(packet)}
                elif packet.get("e") == "died":
                    self.fleet.died(index, int(packet["rank"]), int(packet["incarnation"]))
                self.events.append({**packet, "host": self.name_of(index)})

    def _unfit(self, packet: dict[str, Any]) -> str | None:
        if packet.get("ckpt") != VERSION:
            return f"it has version {packet.get('ckpt')} of ckpt, this is {VERSION}: install the same"
        if str(packet.get("python")).split(".")[:2] != self._python.split(".")[:2]:
            return f"it has Python {packet.get('python')}, the job runs under {self._python}"
        script = packet.get("script")
        if self._script and script not in (None, self._script):
            what = "another version of the program than here" if script else "no such program"
            return f"it has {what}: the program has to be the same file on all hosts, at the same path"
        if self._modules and (lacking := lacks(self._modules.always, packet["modules"])):
            return (
                f"its Python ({packet['prefix']}) has no module {', '.join(lacking)}, which the program imports: "
                "install there what is installed here"
            )
        return None

    def _note_modules(self, index: int, packet: dict[str, Any]) -> None:
        """Tell of modules that ranks there may come to need."""
        if self._modules and (lacking := lacks(self._modules.perhaps, packet["modules"])):
            reason = (
                f"its Python ({packet['prefix']}) has no module {', '.join(lacking)}, which the program imports in a "
                "function or under a condition: a rank that comes there fails"
            )
            fields = {"host": self.name_of(index), "modules": lacking, "reason": reason}
            self._do([Note("modules-missing", fields)])

    def _note_same_machine(self, index: int) -> None:
        """Tell of a host that has been named twice: what takes one of them takes both."""
        identities = self.agents.identities
        if not all(json.loads(identities[index])[2:]):
            return  # without its boot and process ids, two machines may look alike
        for other in sorted(identities):
            if other == index or identities[other] != identities[index]:
                continue
            reason = (
                f"it is host {self.name_of(other)} under another name: what stops that one stops both, and neither is a "
                "spare for the other. Name each host once, with its number of slots"
            )
            fields = {"host": self.name_of(index), "other": self.name_of(other), "reason": reason}
            self._do([Note("same-machine", fields)])
            return

    # ---- leases ------------------------------------------------------------------------------------------

    def _may_answer(self) -> bool:
        return self.watch is None or self.watch.may_answer()

    def _renewal(self, rank: int, number: int) -> dict[str, Any] | None:
        index, life = host_of(rank, len(self.fleet.hosts))
        if not self.agents.is_heard(index, life):
            return None
        if not self._may_answer():
            self._tenure_is_over = True
            return None
        return self._renewed(number) if self.fleet.renewed(index, number, now_ns()) else None

    def _renewed(self, number: int) -> dict[str, Any]:
        """The answer to a renewal. `journal`: what the host is to know is written behind this record."""
        journal = {} if self.watch is None else {"journal": self.watch.number}
        return {"a": "renewed", "number": number, **journal}

    def _record(self, silences: dict[int, int]) -> None:
        """Write down that ranks of these hosts may not go on. A disk that refuses is asked again."""
        assert self.link is not None and self.watch is not None
        names = [self.name_of(index) for index in silences]
        try:
            if not self.watch.record_restart(self.incarnation, names):
                return
        except StoreError as error:
            with self.link.port.lock:
                self.fleet.not_recorded(silences)
            if not self._is_refused:
                self._do([Note("restart-not-recorded", {"hosts": names, "reason": str(error)})])
            self._is_refused = True
        else:
            self._is_refused = False
            with self.link.port.lock:
                self.fleet.recorded(silences, now_ns())

    # ---- what the fleet wants ----------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(host=index, number=number):
                    self.tell([index], self._renewed(number))
                case Record(silences=silences):
                    self._record(silences)
                case TellFence(host=index, incarnation=incarnation):
                    self.tell([index], {"a": "fence", "incarnation": incarnation})
                case TellEnd(host=index, reason=reason):
                    self.tell([index], {"a": "end", "reason": reason})
                case Gone(reason=reason):
                    self.gone.append(reason)
                case Dead(host=index, reason=reason, ranks=ranks):
                    how = {
                        "signal": None,
                        "code": None,
                        "host": self.name_of(index),
                        "lost": reason,
                    }
                    for rank, incarnation in ranks:
                        self.events.append({"e": "died", "rank": rank, "incarnation": incarnation, **how})
                case Fenced(incarnation=incarnation):
                    self.events.append({"e": "fenced", "incarnation": incarnation})
                case Note(event=name, fields=fields):
                    self.events.append({"e": "note", "event": name, "fields": fields})
