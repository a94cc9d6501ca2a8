"""The launcher for several hosts: starts an agent on each, and uses them as if they were one. (driver)

Decisions about hosts are the `Fleet`'s; this module has the engine's processes, the connection and the clock. See `Launcher`
for the interface, and `agent.py` for the other end.

Renewals of leases are answered in the helper thread of the connection: a disk that holds the controller up for longer than a
lease must not cost the job its hosts. Another thread looks into the journal whether this is the job's controller still
(`tenure.py`).

This module is long because it joins engine, connection, clock and journal to what the service sees as one launcher.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from ckpt.controller.errors import LaunchFailed, NoHostLeft
from ckpt.controller.hosts.addresses import own_address
from ckpt.controller.hosts.engine import Engine, Started
from ckpt.controller.hosts.fleet import AllFenced, Answer, Dead, Effect, Fleet, Gone, Note, TellEnd, TellFence
from ckpt.controller.hosts.link import Link, keys_of
from ckpt.controller.hosts.routes import others_of
from ckpt.controller.hosts.tenure import Tenure, patience_ns
from ckpt.controller.launch.launcher import AgentGone
from ckpt.controller.launch.spawning import Spawned
from ckpt.controller.supervision.plan import Node
from ckpt.store import JobDirectory, LockLost, StoreError
from ckpt.store.job.journal_files import Journal
from ckpt.transport.errors import AddressError
from ckpt.transport.wires.hubwire import HubWire
from ckpt.version import VERSION

__all__ = ["HostsLauncher", "now_ns"]

_ATTENTIVE_NS = 200_000_000
_END_PATIENCE_S = 8.0
_POLL_S = 0.01
_ROUTES_LIMIT_S = 15.0
_LOOKS = 5
"""So many looks into the journal in the time of one lease."""


def now_ns() -> int:
    """The clock of leases: it goes on while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class HostsLauncher:
    """Implements `Launcher`. Call `serve` first."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        engine: Engine,
        lease_ns: int,
        interface: str | None,
        ports: str | None = None,
        limit_s: float,
        cwd: str,
        spawned: Spawned,
        tolerant: bool = False,
    ) -> None:
        """`limit_s`: so long an agent has to dial in. `spawned`: names interpreter, hash seed and entry; it is not used.
        `tolerant`: ranks of a lost host are not started again; events ``died`` with "lost" say that they are gone."""
        self.fleet = Fleet(nodes, lease_ns=lease_ns, tolerant=tolerant)
        self.engine = engine
        self.interface, self.ports = interface, ports
        self.limit_s = limit_s
        self.cwd = cwd
        self.hash_seed, self.entry = spawned.hash_seed, spawned.entry
        self.interpreter = spawned.interpreter
        spawned.discard()
        self._mark = os.urandom(8).hex()
        self._link: Link | None = None
        self._started: dict[int, Started] = {}
        self._pidfds: dict[int, int] = {}
        self._epoll = select.epoll()
        self._events: list[dict[str, Any]] = []
        self._gone: list[str] = []
        self._ended: set[int] = set()
        self._noted: list[Started] = []
        self._doors: dict[int, str] = {}
        self._knocked: dict[int, dict[str, str]] = {}
        self._returning: dict[int, int] = {}  # hosts that ask for a new lease: the number of the renewal
        self._version = ""
        self.examined: dict[int, tuple[dict[str, Any], float]] = {}
        """By host: its facts, and when they came (`ckpt doctor`)."""
        self._tenure: Tenure | None = None
        self._tenure_is_over = False
        self._lost: LockLost | None = None
        self._watch = threading.Event()  # set: the watch of the journal is to end

    # ---- bringing up -------------------------------------------------------------------------------------

    def serve(self, *, job_dir: str, runtime_dir: str, generation: int) -> None:
        """Start an agent on each host, and wait until enough of them have dialled in. Raises LaunchFailed, UsageError."""
        job = JobDirectory.open(job_dir)
        self._version = job.python
        address = own_address(self.interface)
        try:
            listen = f"{address if self.interface else '0.0.0.0'}:{self.ports or '*'}"
            wire = HubWire(f"tcp://{listen}", curve=keys_of(job.key))
        except AddressError as error:
            raise LaunchFailed(str(error)) from error
        port = wire.address.rpartition(":")[2]
        hosts = len(self.fleet.hosts)
        self._link = Link(wire, job_id=job.job_id, rank=0, hosts=hosts, generation=generation)
        self._link.on_renewal = self._renewal
        self._link.port.attentive_ns = _ATTENTIVE_NS
        fd = self._link.fileno()
        self._link.port.on_idle_tick = lambda: os.eventfd_write(fd, 1)
        self._epoll.register(fd, select.EPOLLIN)
        common = [*("--job", job.path, "--job-id", job.job_id), *("--hosts", str(hosts))]
        common += [*("--generation", str(generation)), *("--lease", str(self.fleet.lease_ns / 1e9))]
        common += [*("--cwd", self.cwd), *("--entry", self.entry), *("--hash-seed", str(self.hash_seed))]
        common += ["--interface", self.interface] if self.interface else []
        common += ["--ports", self.ports] if self.ports else []
        self._start_agents(common, port, os.path.join(job.path, "output"))
        self._await_hosts(job.size)

    def _start_agents(self, common: Sequence[str], port: str, directory: str) -> None:
        """`common`: the options of all agents; `port`: of this process."""
        names = {index: host.node.name for index, host in self.fleet.hosts.items()}

        def words(index: int | None) -> list[str]:
            # A name that does not resolve here is no obstacle: an engine may know it.
            address = own_address(self.interface, names[min(names) if index is None else index])
            begin = [self.interpreter.executable, "-P", *self.interpreter.options, "-m", "ckpt", "agent"]
            if index is None:
                place = ["--among", ",".join(names.values())]
                place += ["--naming", self.engine.naming] if self.engine.naming else []
            else:
                place = ["--host", names[index], "--index", str(index)]
            return [*begin, *common, *place, "--controller", f"{address}:{port}"]

        self._started = self.engine.start(names, words, directory)
        for index, started in self._started.items():
            self._pidfds[index] = os.pidfd_open(started.process.pid)
            self._epoll.register(self._pidfds[index], select.EPOLLIN)

    def _await_hosts(self, size: int) -> None:
        deadline = time.monotonic() + self.limit_s
        while any(host.state == "starting" for host in self.fleet.hosts.values()):
            if time.monotonic() > deadline:
                for index, host in self.fleet.hosts.items():
                    if host.state == "starting":
                        started = self._started[index]
                        reason = f"its agent did not dial in within {self.limit_s:g} s"
                        if started.is_shared and (said := started.said()):
                            reason += f"; the engine's command and the agents have said: {said}"
                        self._ask(self.fleet.failed, index, reason)
                        if not started.is_shared:
                            started.stop(0)
                break
            self._look()
            time.sleep(_POLL_S)
        if sum(node.slots for node in self.fleet.nodes()) < size:
            raise LaunchFailed(f"{size} ranks need more hosts than have answered. {self._failures()}")
        self._check_routes()

    def _check_routes(self) -> None:
        """Raise LaunchFailed unless the hosts can reach each other."""
        joined = self._joined()
        doors = {index: self._doors[index] for index in joined}
        if len(joined) < 2:
            return
        for index in joined:
            self._tell([index], {"a": "knock", "doors": others_of(index, doors)})
        deadline = time.monotonic() + _ROUTES_LIMIT_S
        while not self._knocked.keys() >= set(self._joined()) and time.monotonic() < deadline:
            self._look()
            time.sleep(_POLL_S)
        for index in self._joined():
            name = self.fleet.hosts[index].node.name
            for other, reason in self._knocked.get(index, {}).items():
                there, address = self.fleet.hosts[int(other)].node.name, doors[int(other)].rpartition(":")[0]
                raise LaunchFailed(
                    f"host {name} cannot reach host {there} at {address}: {reason}. Ranks talk by tcp between all hosts, at "
                    "any port (or --ports): open it, or name another network (--interface)"
                )
            if index not in self._knocked:
                raise LaunchFailed(
                    f"host {name} did not say within {_ROUTES_LIMIT_S:g} s whether it reaches the others"
                )

    def examine(self, directory: str, limit_s: float) -> None:
        """Let the hosts look what holds there (`examine.py`); fills `examined`. Waits `limit_s` at most."""
        self._tell(self._joined(), {"a": "examine", "directory": directory})
        deadline = time.monotonic() + limit_s
        while not self.examined.keys() >= set(self._joined()) and time.monotonic() < deadline:
            self._look()
            time.sleep(_POLL_S)

    def _failures(self) -> str:
        return "; ".join(
            f"host {host.node.name}: {host.reason}"
            for host in self.fleet.hosts.values()
            if host.state in ("failed", "lost", "fenced")
        )

    def keep_watch(self, journal: Journal) -> None:
        """From now on look into the journal, and renew leases only as `Tenure` allows. Raises LockLost, StorageFailed."""
        began_ns = now_ns()
        journal.check()
        self._tenure = Tenure(patience_ns(self.fleet.lease_ns), began_ns)
        threading.Thread(
            target=self._look_on, args=(journal, self._tenure), name="ckpt-journal", daemon=True
        ).start()

    def _look_on(self, journal: Journal, tenure: Tenure) -> None:
        while not self._watch.wait(self.fleet.lease_ns / _LOOKS / 1e9):
            began_ns = now_ns()
            try:
                journal.check()
            except LockLost as lost:
                self._lost = lost
                self._wake()
                return
            except StoreError:
                continue  # it cannot be known now
            tenure.looked(began_ns)

    def nodes(self, size: int) -> list[Node]:
        nodes = self.fleet.nodes()
        if not nodes:
            raise NoHostLeft(f"no host is left. {self._failures()}")
        missing = size - sum(node.slots for node in nodes)
        more = -(-missing // len(nodes)) if missing > 0 else 0  # more to a host than its slots
        return [Node(node.name, node.slots + more) for node in nodes]

    def bring_up(self) -> str:
        return self._mark

    def fileno(self) -> int:
        return self._epoll.fileno()

    # ---- commands ----------------------------------------------------------------------------------------

    def start(self, specs: Sequence[dict[str, Any]]) -> None:
        parts: dict[int, list[dict[str, Any]]] = {}
        for spec in specs:
            parts.setdefault(self.fleet.index_of(spec["host"]), []).append(spec)
        self.fleet.start(
            {index: {spec["rank"]: spec["incarnation"] for spec in part} for index, part in parts.items()}
        )
        for index, part in parts.items():
            self._tell([index], {"a": "start", "specs": part})

    def send(self, packet: dict[str, Any], ranks: Sequence[int] | None = None) -> None:
        to = None if ranks is None else list(ranks)
        self._tell(self._joined(), {"a": "send", "ranks": to, "packet": packet})

    def signal(self, signum: int, ranks: Sequence[int] | None = None, *, caught: bool = False) -> None:
        to = None if ranks is None else list(ranks)
        self._tell(self._joined(), {"a": "signal", "ranks": to, "signal": int(signum), "caught": caught})

    def look(self, silent: Sequence[int]) -> bool:
        self._tell(self._joined(), {"a": "look", "silent": list(silent)})
        return True

    def fence(self, incarnation: int) -> None:
        self._ask(self.fleet.fence, incarnation)
        self._wake()

    def survey(self, number: int, limit_s: float, lost: Collection[str]) -> dict[str, list[str]]:
        """Let every host try to reach the others, and the `lost` ones; events `surveyed` say whom it did not reach. Returns
        whom each will try."""
        names = {index: host.node.name for index, host in self.fleet.hosts.items()}
        joined = self._joined()
        known = {i: door for i, door in self._doors.items() if i in joined or names[i] in lost}
        asked = {}
        for index in joined:
            doors = others_of(index, known)
            self._tell([index], {"a": "survey", "number": number, "doors": doors, "limit_s": limit_s})
            asked[names[index]] = [names[int(other)] for other in doors]
        return asked

    def leave_out(self, name: str, reason: str) -> None:
        """This host gets no ranks any more; those that it has are started elsewhere. Nothing, if it is lost already."""
        self._ask(self.fleet.leave_out, name, reason, now_ns())
        self._wake()

    def slots_without(self, name: str) -> int:
        """How many slots there are without this host."""
        return sum(node.slots for node in self.fleet.nodes() if node.name != name)

    def _joined(self) -> list[int]:
        return [index for index, host in self.fleet.hosts.items() if host.state == "joined"]

    def _tell(self, indices: Iterable[int], command: dict[str, Any]) -> None:
        if self._link is not None:
            for index in indices:
                self._link.send(index, command)

    # ---- events ------------------------------------------------------------------------------------------

    def receive(self) -> list[dict[str, Any]]:
        """Raises LockLost, too: another controller has taken the job over."""
        self._look()
        if self._lost is not None:
            raise self._lost
        events, self._events = self._events, []
        if events:
            if self._gone:
                self._wake()  # the next call raises
            return events
        if self._gone:
            raise AgentGone(self._gone.pop(0), started=True)
        return []

    def _wake(self) -> None:
        if self._link is not None:
            os.eventfd_write(self._link.fileno(), 1)

    def _look(self) -> None:
        """Take what has come, and see which engines' commands have ended and which leases are over."""
        assert self._link is not None
        for index, packet in self._link.take():
            self._packet(index, packet)
        for index, started in self._started.items():
            if index in self._pidfds and (how := started.end()) is not None:
                self._close_pidfd(index)
                if started.is_shared and self.fleet.hosts[index].state != "starting":
                    self._note_end(started, how)
                elif index not in self._ended:
                    self._ask(self.fleet.engine_ended, index, how, now_ns())
        if self._tenure_is_over:
            self._tenure_is_over = False
            self._do([Note("leases-not-renewed", {"reason": "the journal could not be read for too long"})])
        if self._returning and (self._tenure is None or self._tenure.may_answer(now_ns())):
            returning, self._returning = self._returning, {}
            for index, number in returning.items():
                self._ended.discard(index)
                self._ask(self.fleet.back, index, number, now_ns())
        self._ask(self.fleet.tick, now_ns())

    def _note_end(self, started: Started, how: str) -> None:
        """One command for all hosts has ended: which agents that has ended, their leases say."""
        if started not in self._noted:
            self._noted.append(started)
            self._do([Note("engine-ended", {"reason": how})])

    def _packet(self, index: int, packet: dict[str, Any]) -> None:
        match packet.get("e"):
            case "join":
                problem = self._unfit(packet)
                if self.fleet.hosts[index].state == "failed":
                    self._tell([index], {"a": "end", "reason": "it has dialled in too late"})
                elif problem is None:
                    self._doors[index] = str(packet["door"])
                    self._ask(self.fleet.joined, index, now_ns())
                else:
                    self._ask(self.fleet.failed, index, problem)
                    self._tell([index], {"a": "end", "reason": problem})
            case "examined":
                self.examined[index] = (dict(packet["facts"]), time.time())
            case "knocked":
                self._knocked[index] = dict(packet["failed"])
            case "surveyed":
                name = self.fleet.hosts[index].node.name
                failed = {self.fleet.hosts[int(i)].node.name: code for i, code in packet["failed"].items()}
                self._events.append(
                    {"e": "surveyed", "host": name, "number": packet["number"], "failed": failed}
                )
            case "looked":
                self._events.append(
                    {name: dict(packet[name]) for name in ("states", "stacks")} | {"e": "looked"}
                )
            case "fenced":
                self._ask(self.fleet.fenced, index, int(packet["incarnation"]))
            case "lost":
                self._ask(self.fleet.fork_server_lost, index, str(packet["reason"]), now_ns())
            case "ended":
                self._ended.add(index)
                self._returning.pop(index, None)
                self._ask(self.fleet.ended, index, str(packet["reason"]), now_ns())
            case "back":
                self._returning[index] = int(packet["number"])
            case "door":
                self._doors[index] = str(packet["door"])
            case _ if self.fleet.hosts[index].state == "joined":
                if packet.get("e") == "died":
                    self.fleet.died(index, int(packet["rank"]), int(packet["incarnation"]))
                self._events.append({**packet, "host": self.fleet.hosts[index].node.name})

    def _unfit(self, packet: dict[str, Any]) -> str | None:
        if packet.get("ckpt") != VERSION:
            return f"it has version {packet.get('ckpt')} of ckpt, this is {VERSION}: install the same"
        if str(packet.get("python")).split(".")[:2] != self._version.split(".")[:2]:
            return f"it has Python {packet.get('python')}, the job runs under {self._version}"
        return None

    def _renewal(self, index: int, number: int) -> bool:
        if self._tenure is not None and not self._tenure.may_answer(now_ns()):
            self._tenure_is_over = True
            return False
        return bool(self.fleet.renewed(index, number, now_ns()))

    def _ask(self, method: Callable[..., list[Effect]], *arguments: Any) -> None:
        """Call a method of the fleet, under the port's lock: the helper thread tells it of renewals."""
        assert self._link is not None
        with self._link.port.lock:
            effects = method(*arguments)
        self._do(effects)

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(host=index, number=number):
                    self._tell([index], {"a": "renewed", "number": number})
                case TellFence(host=index, incarnation=incarnation):
                    self._tell([index], {"a": "fence", "incarnation": incarnation})
                case TellEnd(host=index, reason=reason):
                    self._tell([index], {"a": "end", "reason": reason})
                case Gone(reason=reason):
                    self._gone.append(reason)
                case Dead(host=index, reason=reason, ranks=ranks):
                    how = {
                        "signal": None,
                        "code": None,
                        "host": self.fleet.hosts[index].node.name,
                        "lost": reason,
                    }
                    for rank, incarnation in ranks:
                        self._events.append({"e": "died", "rank": rank, "incarnation": incarnation, **how})
                case AllFenced(incarnation=incarnation):
                    self._events.append({"e": "fenced", "incarnation": incarnation})
                case Note(event=name, fields=fields):
                    self._events.append({"e": "note", "event": name, "fields": fields})

    # ---- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        self._watch.set()
        link = self._link
        if link is not None:
            joined = self._joined()
            self._tell(joined, {"a": "end", "reason": "the job has ended"})
            deadline = time.monotonic() + _END_PATIENCE_S
            while time.monotonic() < deadline and not self._ended.issuperset(joined):
                self._look()
                time.sleep(_POLL_S)
        for started in dict.fromkeys(self._started.values()):
            its = [index for index, each in self._started.items() if each is started]
            started.stop(0.0 if self._ended.isdisjoint(its) else 2.0)
        for index in self._started:
            self._close_pidfd(index)
        self._started.clear()
        if link is not None:
            self._link = None
            link.close()
        if not self._epoll.closed:
            self._epoll.close()

    def _close_pidfd(self, index: int) -> None:
        fd = self._pidfds.pop(index, None)
        if fd is not None:
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(fd)
            os.close(fd)
