"""Carries out a diagnosis for a job: asks the hosts, runs the diagnosis in a process of its own, logs the answer. (driver)

The decisions are those of `link_failures`; the diagnosis is `python -m ckpt.diagnosis`, which is started when the first loss
is known and gets the facts when all hosts have answered. Its process reads the user's credentials; this one never has them,
nor has a rank.

It ends five seconds after the first error, whatever is dead (`_WHOLE_NS`): its process ends before, and is killed if it does
not. Then the answer is what the hosts have said, with the reason.

    fault-located   the record (`ckpt.diagnosis.jobs`), with `lost`: the errors that were diagnosed

    host-drained    host, fault: it is drained in Slurm (`drains`); `reason`: why not

A host at fault is left out (`avoid`), which ends its ranks and starts them elsewhere.
"""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ckpt.controller.faults.baseline import JobBaseline
from ckpt.controller.faults.link_failures import (
    SURVEY_LIMIT_S,
    Action,
    Ask,
    Drop,
    LeaveOut,
    LinkFailures,
    Survey,
    which_goes,
)
from ckpt.controller.faults.oneshot import OneShotProcess
from ckpt.controller.faults.record import is_back, statuses
from ckpt.controller.faults.slowness import Counts, Slowness
from ckpt.controller.faults.topology import JobTopology
from ckpt.store.disk.privacy import open_regular
from ckpt.store.job.eventlog import iso_time
from ckpt.transport.records import asdict, dataclass

__all__ = ["FaultLocator", "FaultOptions", "HostsControl"]

_WHOLE_NS = 5_000_000_000
"""From the first loss to the answer."""
_RESERVE_NS = 400_000_000
"""So much earlier the process is to end by itself."""
_LEAST_NS = 300_000_000
"""For its answer, where this process has come so late itself that nothing is left: for what the hosts have said."""
_DRAIN_NS = 90_000_000_000
_LOST_SHOWN = 20
_TEXT_LIMIT = 4000


class HostsControl(Protocol):
    """What a launcher for several hosts can do beside starting ranks."""

    def survey(self, number: int, limit_s: float, lost: Collection[str]) -> Mapping[str, Sequence[str]]: ...

    def leave_out(self, name: str, reason: str) -> None: ...

    def slots_without(self, name: str) -> int: ...

    def addresses(self) -> Mapping[str, str]: ...

    def own(self) -> str | None: ...


@dataclass(frozen=True)
class FaultOptions:
    """`topology`: a file, or None: the user's, if there is one. `avoid`: leave hosts at fault out, when their links have
    been down for `patience_ns`. `log_path`: for what the diagnosis says on its standard error; beside it the
    topology is kept that LLDP has completed (`topology`), and what counters were at the start (`baseline`)."""

    hosts: HostsControl
    topology: str | None
    avoid: bool
    log_path: str
    patience_ns: int = 0
    drains: bool = False
    """Drain a host at fault in Slurm."""
    record_path: str | None = None
    """A file to which a record of each fault is added (`record`)."""
    tolerant: bool = False
    """Ranks of a host that is left out are not started elsewhere, so nobody has to have room for them."""


class FaultLocator:
    """`log(event, fields)` writes the event log, `say` tells the user."""

    def __init__(
        self,
        options: FaultOptions,
        selector: selectors.BaseSelector,
        log: Callable[[str, dict[str, Any]], None],
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._selector = selector
        self._log = log
        self._say = say
        self.losses = LinkFailures(patience_ns=options.patience_ns)
        self._child: OneShotProcess | None = None
        self._facts: dict[str, Any] = {}
        self._slowness = Slowness()
        self._counted_incarnation = -1
        self._found: dict[str, dict[str, Any]] = {}
        folder = os.path.dirname(options.log_path)
        self.baseline = JobBaseline(folder, selector, log)
        self._draining: dict[str, OneShotProcess] = {}
        self._recorded: set[str] = set()
        self.topology = JobTopology(
            options.topology, folder, selector=selector, log=log, say=say, known=self.baseline.begin
        )

    # ---- what happens ------------------------------------------------------------------------------------

    def agent_event(self, event: Mapping[str, Any], now_ns: int) -> None:
        """An event of an agent (`Launcher.receive`)."""
        losses = self.losses
        match event["e"]:
            case "started" if "host" in event:
                self._do(losses.started(event["rank"], event["incarnation"], event["host"]), now_ns)
            case "died":
                self._do(losses.died(event["rank"], event["incarnation"], with_host="lost" in event), now_ns)
            case "surveyed":
                self._do(losses.surveyed(event["host"], event["number"], event["failed"], now_ns), now_ns)
            case "note" if event["event"] == "host-lost":
                self._do(losses.host_lost(event["fields"]["host"], now_ns), now_ns)
            case "note" if event["event"] == "host-back":
                losses.back(event["fields"]["host"])
                self._record_back(event["fields"]["host"])
                self._found.pop(event["fields"]["host"], None)

    def packet(self, rank: int, incarnation: int, packet: Mapping[str, Any], now_ns: int) -> None:
        """An event of a rank, or what it has counted; events of other names are ignored."""
        if packet["m"] == "links":
            self._links(rank, incarnation, packet, now_ns)
            return
        peer = packet.get("peer")
        if not isinstance(peer, int):
            return
        if packet.get("event") == "link-up":
            self._do(self.losses.up(rank, incarnation, peer), now_ns)
        elif packet.get("event") == "link-down":
            kind, silent_ns = packet.get("kind"), packet.get("silent_ns")
            if isinstance(kind, str) and isinstance(silent_ns, int):
                accepts = packet.get("accepts") is True
                actions = self.losses.down(rank, incarnation, peer, kind, silent_ns, now_ns, accepts=accepts)
                self._do(actions, now_ns)

    def _links(self, rank: int, incarnation: int, packet: Mapping[str, Any], now_ns: int) -> None:
        if incarnation != self.losses.incarnation:
            return
        if incarnation != self._counted_incarnation:
            self._counted_incarnation = incarnation
            self._slowness.begin_again()
        try:
            peers = {int(peer): Counts(*map(int, each)) for peer, each in packet["peers"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            return  # no counts: nothing is said of these connections
        slow = self._slowness.counted(rank, packet["epoch"], peers, self.losses.hosts)
        for each in slow:
            fields = asdict(each)
            self._log(
                "link-slow",
                {**fields, "loss": round(each.loss, 5), "others_loss": round(each.others_loss, 5)},
            )
        if slow:
            self._do(self.losses.slow(self._slowness.facts()), now_ns)

    def deadline_ns(self) -> int | None:
        """When `tick` is due."""
        child_ns = None if self._child is None else self._child.deadline_ns()
        at_start = (self.topology.deadline_ns(), self.baseline.deadline_ns())
        draining = (each.deadline_ns() for each in self._draining.values())
        times = (self.losses.deadline_ns(), child_ns, *at_start, *draining)
        return min((when for when in times if when is not None), default=None)

    def tick(self, now_ns: int) -> None:
        """Time has passed."""
        self._do(self.losses.tick(now_ns), now_ns)
        self.topology.tick(now_ns)
        self.baseline.tick(now_ns)
        for each in [child for child in (self._child, *self._draining.values()) if child is not None]:
            each.tick(now_ns)

    def close(self) -> None:
        """End what is under way."""
        self._end_child()
        self.topology.close()
        self.baseline.close()
        for each in self._draining.values():
            each.close()

    # ---- the process -------------------------------------------------------------------------------------

    def _do(self, actions: Iterable[Action], now_ns: int) -> None:
        for action in actions:
            match action:
                case Survey(number=number, lost=lost):
                    self._start_child()
                    if self._child is not None:
                        self._child.tell({"lost": self.losses.lost(now_ns), "missing": lost, **self._known()})
                    hosts = self._options.hosts
                    self.losses.surveying(hosts.survey(number, SURVEY_LIMIT_S, lost), hosts.own())
                case Ask(facts=facts):
                    if self._child is None:
                        self._start_child()
                    until_ns = self._until_ns(facts, now_ns)
                    self._facts = {**facts, **self._known(), "until_s": (until_ns - _RESERVE_NS) / 1e9}
                    self._ask_child(until_ns, now_ns)
                case Drop():
                    self._end_child()
                case LeaveOut():
                    self._leave_out(action)

    def _known(self) -> dict[str, Any]:
        """Facts that do not depend on what the hosts say."""
        files = {"topology": self.topology.path, "counters": self.baseline.path}
        return {**files, "addresses": dict(self._options.hosts.addresses()), "wanted": True}

    def _until_ns(self, facts: Mapping[str, Any], now_ns: int) -> int:
        """When the answer is to be there: of slow connections, so long from now on."""
        began_ns = now_ns if facts.get("slow") else self.losses.began_ns
        return max(began_ns + _WHOLE_NS, now_ns + _LEAST_NS)

    def _leave_out(self, action: LeaveOut) -> None:
        if len(action.hosts) == 1:
            self._drain(action.hosts[0], action.reason)
        if not self._options.avoid:
            return
        if action.is_lost:
            self._log("host-left-out", {"host": action.hosts[0], "reason": action.reason})
            return
        host = which_goes(action.hosts, self.losses, self._room_without)
        if host is None:
            return
        reason = action.reason + ("; one of them is left out" if len(action.hosts) > 1 else "")
        self._say(f"host {host} is left out: {reason}")
        self.losses.gone.add(host)
        self._options.hosts.leave_out(host, reason)

    def _drain(self, host: str, reason: str) -> None:
        """In Slurm, so that nobody else gets it either; once."""
        if not self._options.drains or host in self._draining:
            return

        def drained(answer: Mapping[str, Any]) -> None:
            why_not = answer.get("reason")
            self._log("host-drained", {"host": host, "fault": reason, "reason": why_not})
            if why_not is not None:
                self._say(f"host {host} is not drained in Slurm: {why_not}")

        try:
            child = self._draining[host] = OneShotProcess("ckpt.controller.faults.drain", self._selector)
        except OSError as error:
            drained({"reason": f"scontrol cannot be started: {error.strerror}"})
            return
        failed = {"reason": "the process that drains it has failed"}
        child.ask({"node": host, "reason": reason}, _DRAIN_NS, drained, lambda *_: drained(failed))

    def _room_without(self, host: str) -> int:
        slots = self._options.hosts.slots_without(host)
        return len(self.losses.hosts) if slots and self._options.tolerant else slots

    def diagnosis_of(self, host: str) -> dict[str, Any] | None:
        """The fault that was located last at this host, or why it is lost; None: none, or it is not known yet."""
        return self._found.get(host)

    def _start_child(self) -> None:
        self._end_child()
        try:
            log = open_regular(self._options.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                self._child = OneShotProcess("ckpt.diagnosis", self._selector, stderr=log)
            finally:
                os.close(log)
        except OSError as error:  # a full disk, no more processes: the job goes on without an answer
            self._say(f"the diagnosis could not be started: {error}")

    def _ask_child(self, until_ns: int, now_ns: int) -> None:
        if self._child is None:
            self._conclude({"text": "unknown fault: the diagnosis could not be started"}, now_ns)
            return
        self._child.ask(self._facts, until_ns - now_ns, self._answered, self._failed, now_ns=now_ns)

    def _answered(self, record: Mapping[str, Any]) -> None:
        self._child = None
        self._conclude(record, time.monotonic_ns())

    def _failed(self, is_late: bool, said: Mapping[str, Any] | None) -> None:
        late = f"devices have not answered within {_WHOLE_NS / 1e9:g} s"
        reason = late if is_late else f"the diagnosis failed, see {self._options.log_path}"
        if said is None:  # not even its process was there
            pairs = [
                f"{one} does not reach {other}" for one, other, heard in self._facts["said"] if not heard
            ]
            shown = "; ".join(["", *pairs[:_LOST_SHOWN]])
            said = {"text": f"unknown fault: {reason}{shown}"}
        self._answered({**said, "reason": reason})

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

    # ---- the answer --------------------------------------------------------------------------------------

    def _conclude(self, record: Mapping[str, Any], now_ns: int) -> None:
        empty = dict.fromkeys(
            ("hosts", "between", "faults", "suspects", "consequences", "noted", "unknown", "clear"), ()
        )
        record = {**empty, "witnesses": {}, "reason": None, **record}
        lost = self._facts.get("lost", [])[:_LOST_SHOWN]
        missing, is_slow = self._facts.get("missing", []), bool(self._facts.get("slow"))
        self._log("fault-located", {**record, "lost": lost, "missing": missing, "slow": is_slow})
        self._say(f"fault located: {record['text']}")
        if not is_slow:
            self._record(record)
        self._keep(record, missing)
        if self._facts.get("slow"):
            self._do(self.losses.answered(now_ns), now_ns)
            return
        for host in record["hosts"]:
            if host in self.losses.gone:  # its lease was over before the fault was found
                self._drain(str(host), str(record["text"]))
        self.losses.located(record)
        self._do(self.losses.answered(now_ns), now_ns)

    def _record(self, located: Mapping[str, Any]) -> None:
        """For other tools."""
        lines = statuses(located, iso_time(time.time_ns()))
        self._recorded |= {line["node"] for line in lines if line["node"] is not None}
        self._append(lines)

    def _record_back(self, host: str) -> None:
        if host in self._recorded:
            self._recorded.discard(host)
            self._append([is_back(host, iso_time(time.time_ns()))])

    def _append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        path, data = self._options.record_path, "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        if path is None or not data:
            return
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
            try:
                is_whole = os.write(file, data) == len(data)
            finally:
                os.close(file)
        except OSError as error:
            self._say(f"the record of the fault is not written: {path}: {error.strerror}")
        else:
            if not is_whole:
                self._say(f"the record of the fault is not written wholly: {path}")

    def _keep(self, record: Mapping[str, Any], missing: Iterable[str]) -> None:
        """Keep what programs are told (`diagnosis_of`), if it is more than that nothing was found."""
        if self._facts.get("slow"):
            return
        # what was found before may be over, but for hosts that are given up
        self._found = {
            host: found for host, found in self._found.items() if host in self.losses.gone - {*missing}
        }
        if not any(record[name] for name in ("hosts", "between", "faults", "suspects")):
            return
        told = {name: list(record[name])[:_LOST_SHOWN] for name in ("hosts", "between", "faults", "suspects")}
        for host in {*record["hosts"], *record["between"], *missing}:
            self._found[str(host)] = {"text": str(record["text"])[:_TEXT_LIMIT], **told}
