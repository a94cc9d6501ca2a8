"""The launcher for several hosts: what the service calls to use all hosts as if they were one. (driver)

    serve   agents are started on all hosts, and enough of them have to dial in
    adopt   the ranks of the controller before this one go on; or none of them runs any more. For a job that is taken over

See `Launcher` for the rest of the interface, and `ckpt.controller.hosts.agent` for the other end.

Not here: decisions about hosts (`Fleet`), how they are carried out (:mod:`ckpt.controller.hosts.launch.driver`), the
engine's commands (:mod:`ckpt.controller.hosts.launch.agents`).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ckpt.controller.adoption.roster import Adopted, adoptable
from ckpt.controller.errors import LaunchFailed, NoHostLeft
from ckpt.controller.hosts.addresses import own_address, own_towards
from ckpt.controller.hosts.clock import now_ns
from ckpt.controller.hosts.engine import Engine
from ckpt.controller.hosts.examine import script_of
from ckpt.controller.hosts.fleet import Fleet
from ckpt.controller.hosts.launch import inquiries
from ckpt.controller.hosts.launch.agents import Agents
from ckpt.controller.hosts.launch.driver import POLL_S, FleetDriver
from ckpt.controller.hosts.launch.ending import Ending
from ckpt.controller.hosts.link import Link, keys_of
from ckpt.controller.hosts.orphan import VARIABLE as ORPHAN
from ckpt.controller.hosts.routes import TOKEN
from ckpt.controller.launch.following import WINDOW_BYTES
from ckpt.controller.launch.imports import modules_of
from ckpt.controller.launch.launcher import AgentGone
from ckpt.controller.launch.spawning import Spawned
from ckpt.controller.sharing.proof import SharedFiles
from ckpt.controller.supervision.plan import Node
from ckpt.store import JobDirectory
from ckpt.store.disk.fsio import commit_file
from ckpt.store.job.journal_files import Journal
from ckpt.store.job.lines import ranks_left
from ckpt.transport.errors import AddressError
from ckpt.transport.wires.addresses import joined, split
from ckpt.transport.wires.hubwire import HubWire

__all__ = ["HostsLauncher"]

_END_PATIENCE_S = 8.0


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
        puts_files_back: bool = False,
    ) -> None:
        """`limit_s`: so long an agent has to dial in. `spawned`: names interpreter, hash seed and entry; it is not used.
        `tolerant`: ranks of a lost host are not started again; events ``died`` with "lost" say that they are gone.
        `puts_files_back`: find out which file systems all hosts share (`shared`)."""
        self.shared: SharedFiles | None = None
        """Which file systems all hosts share; None: it is not known."""
        self._finds_shared = puts_files_back
        self.fleet = Fleet(nodes, lease_ns=lease_ns, tolerant=tolerant)
        self.fleet.returns = ORPHAN not in os.environ
        self.engine = engine
        self.interface, self.ports = interface, ports
        self.limit_s = limit_s
        self.cwd = cwd
        self.hash_seed, self.entry = spawned.hash_seed, spawned.entry
        spawned.discard()
        self._mark = os.urandom(8).hex()
        self._epoll = select.epoll()
        interpreter = spawned.interpreter
        self.agents = Agents(self.fleet, engine, self._epoll, interface=interface, interpreter=interpreter)
        self._driver = FleetDriver(self.fleet, self.agents, self._epoll)
        self._printed: dict[int, int] = {}  # bytes of the output that a host has sent, and is not told of yet
        self._port = ""  # where agents dial in

    # ---- bringing up -------------------------------------------------------------------------------------

    def serve(self, *, job_dir: str, runtime_dir: str, generation: int) -> None:
        """Start an agent on each host, and wait until enough of them have dialled in. Raises LaunchFailed, UsageError; and
        SystemExit or KeyboardInterrupt at a signal that stops the job (`Ending`)."""
        if self._driver.link is not None:
            return  # `adopt` was successful
        job = JobDirectory.open(job_dir)
        self._listen(job, generation)
        hosts = len(self.fleet.hosts)
        common = [*("--job", job.path, "--job-id", job.job_id), *("--hosts", str(hosts))]
        common += [*("--generation", str(generation)), *("--lease", str(self.fleet.lease_ns / 1e9))]
        common += [*("--cwd", self.cwd), *("--entry", self.entry), *("--hash-seed", str(self.hash_seed))]
        common += ["--interface", self.interface] if self.interface else []
        common += ["--ports", self.ports] if self.ports else []
        common += ["--token", self._write_token(job)]
        ending = Ending()
        with ending.until_joined():
            with ending.whole():
                self.agents.begin(common, self._port, os.path.join(job.path, "output"), job.key_text)
            self._await_hosts(ranks_left(job))
            self._find_shared(job)

    def adopt(
        self,
        job: JobDirectory,
        journal: Journal,
        *,
        generation: int,
        incarnation: int,
        limit_s: float,
        failed: frozenset[int] | None = None,
    ) -> Adopted | str:
        """Go on with the ranks of the controller before this one, if all are there; waits for their agents for `limit_s` at
        most. Returns the ranks; or why not: then none of them runs any more, if `limit_s` is long enough for leases that
        this controller has not given. `incarnation`, `failed`: see `adoptable`.

        Raises LockLost, StorageFailed, LaunchFailed, UsageError."""
        driver = self._driver
        driver.is_adopting = True
        self._listen(job, generation)
        self.keep_watch(journal)
        journal.record_contact(" ".join(self._contacts()))
        deadline = time.monotonic() + limit_s
        found: Adopted | str | None = None
        while found is None and time.monotonic() < deadline:
            self._look_or_leave()
            rosters = {self.fleet.hosts[i].node.name: each for i, each in driver.rosters.items()}
            found = adoptable(job.size, rosters, incarnation, failed)
            time.sleep(POLL_S)
        driver.is_adopting = False
        if isinstance(found, Adopted):
            ranks: dict[int, dict[int, int]] = {index: {} for index in self.fleet.hosts}
            for rank, facts in found.ranks.items():
                ranks[self.fleet.index_of(facts.host)][rank] = found.incarnation
            driver.incarnation = found.incarnation
            self.fleet.start(ranks)
            if all(self.fleet.hosts[index].state == "joined" for index, its in ranks.items() if its):
                self._find_shared(job)
                return found
        reason = found if isinstance(found, str) else f"not all ranks have answered within {limit_s:g} s"
        driver.gives_up = True
        driver.ask(self.fleet.give_up, f"its ranks are not gone on with: {reason}", now_ns())
        while not self._has_nothing_left(is_over=time.monotonic() >= deadline):
            self._look_or_leave()
            time.sleep(POLL_S)
        return reason

    def _has_nothing_left(self, *, is_over: bool) -> bool:
        """Do no ranks run on any host? `is_over`: those that have not dialled in have ended theirs."""
        states = {host.state for host in self.fleet.hosts.values()}
        return states <= ({"fenced", "starting", "failed"} if is_over else {"fenced"})

    def _look_or_leave(self) -> None:
        """Raises LockLost: another controller has taken the job over."""
        self._driver.look()
        if self._driver.watch is not None:
            self._driver.watch.check()

    def _listen(self, job: JobDirectory, generation: int) -> None:
        """Open the port at which agents dial in."""
        try:
            wire = HubWire(
                f"tcp://{joined(self._where_to_listen(), self.ports or '*')}", curve=keys_of(job.key)
            )
        except AddressError as error:
            raise LaunchFailed(str(error)) from error
        hosts = len(self.fleet.hosts)
        link = Link(wire, job_id=job.job_id, rank=0, hosts=hosts, generation=generation)
        script, modules = script_of(job.options, self.cwd), modules_of(job.command, job.options, self.cwd)
        self._driver.connect(link, job.python, script, modules)
        self._port = split(wire.address.removeprefix("tcp://"))[1]

    def _where_to_listen(self) -> str:
        """At the address of --interface; else at all of this host, those of IPv6 too if hosts are to dial one."""
        if self.interface is not None:
            return own_address(self.interface)
        names = [host.node.name for host in self.fleet.hosts.values()]
        return "::" if any(":" in address for address in own_towards(None, names)) else "0.0.0.0"

    @staticmethod
    def _write_token(job: JobDirectory) -> str:
        """Write into the job directory what each agent is to find there: a copy of the directory does not have it. Raises
        StorageFailed."""
        token = os.urandom(8).hex()
        commit_file(job.fs, job.path, TOKEN, token.encode(), replaces=True)
        return token

    def _await_hosts(self, size: int) -> None:
        deadline = time.monotonic() + self.limit_s
        while any(host.state == "starting" for host in self.fleet.hosts.values()):
            if time.monotonic() > deadline:
                for index, host in self.fleet.hosts.items():
                    if host.state == "starting":
                        started = self.agents.started[index]
                        reason = f"its agent did not dial in within {self.limit_s:g} s"
                        if started.is_shared and (said := started.said()):
                            reason += f"; the engine's command and the agents have said: {said}"
                        self._driver.ask(self.fleet.failed, index, reason)
                        if not started.is_shared:
                            started.stop(0)
                break
            self._driver.look()
            time.sleep(POLL_S)
        if sum(node.slots for node in self.fleet.nodes()) < size:
            raise LaunchFailed(f"{size} ranks need more hosts than have answered. {self._failures()}")
        inquiries.check_routes(self._driver)

    def _find_shared(self, job: JobDirectory) -> None:
        if self._finds_shared:
            self.shared = inquiries.find_shared(self._driver, job.path, self.cwd)

    def examine(self, directory: str, limit_s: float) -> None:
        """Let the hosts look what holds there (`examine.py`); fills `examined`. Waits `limit_s` at most."""
        inquiries.examine(self._driver, directory, limit_s)

    @property
    def examined(self) -> dict[int, tuple[dict[str, Any], float]]:
        """By host: its facts, and when they came (`ckpt doctor`)."""
        return inquiries.examined(self._driver)

    def processors(self) -> dict[str, list[str]]:
        """The models of processors, and the hosts that have them."""
        found: dict[str, list[str]] = {}
        for index, model in sorted(self._driver.processors.items()):
            found.setdefault(model, []).append(self._driver.name_of(index))
        return found

    def _failures(self) -> str:
        return "; ".join(
            f"host {host.node.name}: {host.reason}"
            for host in self.fleet.hosts.values()
            if host.state in ("failed", "lost", "fenced")
        )

    def keep_watch(self, journal: Journal) -> None:
        """See `FleetDriver.keep_watch`."""
        self._driver.keep_watch(journal)

    def contact(self) -> str:
        """Where this controller is reached from other hosts: HOST:PORT, as words."""
        return " ".join(dict.fromkeys(self._contacts()))

    def _contacts(self) -> list[str]:
        """As the hosts see it, in their order."""
        names = [host.node.name for host in self.fleet.hosts.values()]
        return [joined(address, self._port) for address in own_towards(self.interface, names)]

    def nodes(self, size: int) -> list[Node]:
        nodes = self.fleet.nodes()
        if not nodes:
            raise NoHostLeft(f"no host is left. {self._failures()}")
        missing = size - sum(node.slots for node in nodes)
        more = -(-missing // len(nodes)) if missing > 0 else 0  # more to a host than its slots
        return [Node(node.name, node.slots + more) for node in nodes]

    def bring_up(self) -> str:
        return self._mark

    @property
    def is_far(self) -> bool:
        return True

    def printed(self, counts: Mapping[int, int]) -> None:
        for rank, count in counts.items():
            index = self._driver.writers[rank]
            self._printed[index] = self._printed.get(index, 0) + count
        for index, count in list(self._printed.items()):
            if count >= WINDOW_BYTES // 4:
                del self._printed[index]
                self._driver.tell([index], {"a": "printed", "bytes": count})

    def fileno(self) -> int:
        return self._epoll.fileno()

    # ---- commands ----------------------------------------------------------------------------------------

    def start(self, specs: Sequence[dict[str, Any]]) -> None:
        parts: dict[int, list[dict[str, Any]]] = {}
        for spec in specs:
            parts.setdefault(self.fleet.index_of(spec["host"]), []).append(spec)
        self._driver.incarnation = max((spec["incarnation"] for spec in specs), default=0)
        self.fleet.start(
            {index: {spec["rank"]: spec["incarnation"] for spec in part} for index, part in parts.items()}
        )
        for index, part in parts.items():
            self._driver.tell([index], {"a": "start", "specs": part})

    def send(self, packet: dict[str, Any], ranks: Sequence[int] | None = None) -> None:
        to = None if ranks is None else list(ranks)
        self._driver.tell(self._driver.joined(), {"a": "send", "ranks": to, "packet": packet})

    def signal(self, signum: int, ranks: Sequence[int] | None = None, *, caught: bool = False) -> None:
        to = None if ranks is None else list(ranks)
        self._driver.tell(
            self._driver.joined(), {"a": "signal", "ranks": to, "signal": int(signum), "caught": caught}
        )

    def look(self, silent: Sequence[int]) -> bool:
        self._driver.tell(self._driver.joined(), {"a": "look", "silent": list(silent)})
        return True

    def fence(self, incarnation: int, *, final: bool = False) -> None:
        self._driver.ask(self.fleet.fence, incarnation, final)
        self._driver.wake()

    def survey(self, number: int, limit_s: float, lost: Collection[str]) -> dict[str, list[str]]:
        """See `inquiries.survey`."""
        return inquiries.survey(self._driver, number, limit_s, lost)

    def addresses(self) -> dict[str, str]:
        """See `inquiries.addresses`."""
        return inquiries.addresses(self._driver)

    def own(self) -> str | None:
        """See `inquiries.own`."""
        return inquiries.own(self._driver)

    def leave_out(self, name: str, reason: str) -> None:
        """This host gets no ranks any more; those that it has are started elsewhere. Nothing, if it is lost already."""
        self._driver.ask(self.fleet.leave_out, name, reason, now_ns())
        self._driver.wake()

    def slots_without(self, name: str) -> int:
        """How many slots there are without this host."""
        return sum(node.slots for node in self.fleet.nodes() if node.name != name)

    # ---- events ------------------------------------------------------------------------------------------

    def receive(self) -> list[dict[str, Any]]:
        """Raises LockLost, too: another controller has taken the job over."""
        driver = self._driver
        self._look_or_leave()
        events, driver.events = driver.events, []
        if events:
            if driver.gone:
                driver.wake()  # the next call raises
            return events
        if driver.gone:
            raise AgentGone(driver.gone.pop(0), started=True)
        return []

    # ---- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        driver, watch = self._driver, self._driver.watch
        if watch is not None:
            watch.end()
        driver.is_closing = True
        self.agents.plan_none()
        link = driver.link
        are_left = link is not None and watch is not None and watch.is_superseded()
        if link is not None and not are_left:  # else the next controller goes on with the ranks, or ends them
            joined = driver.joined()
            driver.tell(joined, {"a": "end", "reason": "the job has ended"})
            deadline = time.monotonic() + _END_PATIENCE_S
            while time.monotonic() < deadline and not driver.ended.issuperset(joined):
                driver.look()
                time.sleep(POLL_S)
        self.agents.close(driver.ended, are_left=are_left)
        if link is not None:
            driver.link = None
            link.close()
        if not self._epoll.closed:
            self._epoll.close()
