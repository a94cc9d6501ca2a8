"""The launcher for several hosts: starts an agent on each, and uses them as if they were one. (driver)

Decisions about hosts are the `Fleet`'s; this module has the engine's processes, the connection and the clock. See `Launcher`
for the interface, and `agent.py` for the other end.

Renewals of leases are answered in the helper thread of the connection: a disk that holds the controller up for longer than a
lease must not cost the job its hosts. Another thread looks into the journal whether this is the job's controller still
(`tenure.py`). Where there is a journal, agents without a controller look into it, so what they need to know is written there
by this module: that a host was given up, and where a controller is that takes the job over (`adopt`).

This module is long because it joins engine, connection, clock and journal to what the service sees as one launcher.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ckpt.controller.adoption.roster import Adopted, adoptable
from ckpt.controller.errors import LaunchFailed, NoHostLeft
from ckpt.controller.hosts.addresses import own_address
from ckpt.controller.hosts.engine import Engine, Started
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
from ckpt.controller.hosts.lease import JOIN_LIMIT_LEASES
from ckpt.controller.hosts.link import LIVES, Link, host_of, keys_of, rank_of
from ckpt.controller.hosts.orphan import VARIABLE as ORPHAN
from ckpt.controller.hosts.routes import TOKEN, others_of
from ckpt.controller.hosts.tenure import Tenure, patience_ns
from ckpt.controller.launch.following import WINDOW_BYTES, text_of
from ckpt.controller.launch.launcher import AgentGone
from ckpt.controller.launch.spawning import Spawned
from ckpt.controller.sharing import facts, proof
from ckpt.controller.supervision.events import Fenced
from ckpt.controller.supervision.plan import Node
from ckpt.store import JobDirectory, LockLost, StoreError
from ckpt.store.disk.fsio import commit_file
from ckpt.store.job.journal_files import Journal
from ckpt.transport.errors import AddressError
from ckpt.transport.wires.addresses import joined, split
from ckpt.transport.wires.hubwire import HubWire
from ckpt.version import VERSION

__all__ = ["HostsLauncher", "now_ns"]

_ATTENTIVE_NS = 200_000_000
_END_PATIENCE_S = 8.0
_POLL_S = 0.01
_ROUTES_LIMIT_S = 15.0
_SHARES_LIMIT_S, _SHARES_TRIES = 15.0, 3
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
        puts_files_back: bool = False,
    ) -> None:
        """`limit_s`: so long an agent has to dial in. `spawned`: names interpreter, hash seed and entry; it is not used.
        `tolerant`: ranks of a lost host are not started again; events ``died`` with "lost" say that they are gone.
        `puts_files_back`: find out which file systems all hosts share (`shared`)."""
        self.shared: proof.SharedFiles | None = None
        self._shares: dict[int, dict[str, Any]] | None = {} if puts_files_back else None
        self.fleet = Fleet(nodes, lease_ns=lease_ns, tolerant=tolerant)
        self.fleet.returns = ORPHAN not in os.environ
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
        self._lives: dict[int, int] = {}  # by host: which of its agents is heard; 0 if it is not there
        self._begun: dict[int, int] = {}  # ... which was started last
        self._anew_ns: dict[int, int] = {}  # ... when another one may be started
        self._common: list[str] = []
        self._identities: dict[int, str] = {}  # by host: of its agent, as JSON (`_identity` there)
        self._is_closing = False
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
        self._journal: Journal | None = None
        self._incarnation = 0
        self._rosters: dict[int, dict[str, Any]] = {}  # of the ranks with which hosts have dialled in
        self._is_adopting = self._gives_up = False
        self._is_refused = False  # the journal could not be written
        self._writers: dict[int, int] = {}  # the host that has sent output of a rank last
        self._printed: dict[
            int, int
        ] = {}  # bytes of the output that a host has sent, of which it is not told yet
        self._port = self._output = ""
        self._tenure: Tenure | None = None
        self._tenure_is_over = self._tenure_is_said = False
        self._lost: LockLost | None = None
        self._watch = threading.Event()  # set: the watch of the journal is to end

    # ---- bringing up -------------------------------------------------------------------------------------

    def serve(self, *, job_dir: str, runtime_dir: str, generation: int) -> None:
        """Start an agent on each host, and wait until enough of them have dialled in. Raises LaunchFailed, UsageError."""
        if self._link is not None:
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
        self._common, self._output = common, os.path.join(job.path, "output")
        self._start_agents()
        self._await_hosts(job.size)
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
        self._is_adopting = True
        self._listen(job, generation)
        self.keep_watch(journal)
        journal.record_contact(" ".join(self._contacts()))
        deadline = time.monotonic() + limit_s
        found: Adopted | str | None = None
        while found is None and time.monotonic() < deadline:
            self._look_or_leave()
            rosters = {self.fleet.hosts[i].node.name: each for i, each in self._rosters.items()}
            found = adoptable(job.size, rosters, incarnation, failed)
            time.sleep(_POLL_S)
        self._is_adopting = False
        if isinstance(found, Adopted):
            ranks: dict[int, dict[int, int]] = {index: {} for index in self.fleet.hosts}
            for rank, facts in found.ranks.items():
                ranks[self.fleet.index_of(facts.host)][rank] = found.incarnation
            self._incarnation = found.incarnation
            self.fleet.start(ranks)
            if all(self.fleet.hosts[index].state == "joined" for index, its in ranks.items() if its):
                self._find_shared(job)
                return found
        reason = found if isinstance(found, str) else f"not all ranks have answered within {limit_s:g} s"
        self._gives_up = True
        self._ask(self.fleet.give_up, f"its ranks are not gone on with: {reason}", now_ns())
        while not self._has_nothing_left(is_over=time.monotonic() >= deadline):
            self._look_or_leave()
            time.sleep(_POLL_S)
        return reason

    def _has_nothing_left(self, *, is_over: bool) -> bool:
        """Do no ranks run on any host? `is_over`: those that have not dialled in have ended theirs."""
        states = {host.state for host in self.fleet.hosts.values()}
        return states <= ({"fenced", "starting", "failed"} if is_over else {"fenced"})

    def _look_or_leave(self) -> None:
        self._look()
        if self._lost is not None:
            raise self._lost

    def _listen(self, job: JobDirectory, generation: int) -> None:
        """Open the port at which agents dial in."""
        self._version = job.python
        try:
            wire = HubWire(
                f"tcp://{joined(self._where_to_listen(), self.ports or '*')}", curve=keys_of(job.key)
            )
        except AddressError as error:
            raise LaunchFailed(str(error)) from error
        hosts = len(self.fleet.hosts)
        self._link = Link(wire, job_id=job.job_id, rank=0, hosts=hosts, generation=generation)
        self._link.on_renewal = self._renewal
        self._link.port.attentive_ns = _ATTENTIVE_NS
        fd = self._link.fileno()
        self._link.port.on_idle_tick = lambda: os.eventfd_write(fd, 1)
        self._epoll.register(fd, select.EPOLLIN)
        self._port = split(wire.address.removeprefix("tcp://"))[1]

    def _where_to_listen(self) -> str:
        """At the address of --interface; else at all of this host, those of IPv6 too if hosts are to dial one."""
        if self.interface is not None:
            return own_address(self.interface)
        names = [host.node.name for host in self.fleet.hosts.values()]
        return "::" if any(":" in own_address(None, name) for name in names) else "0.0.0.0"

    @staticmethod
    def _write_token(job: JobDirectory) -> str:
        """Write into the job directory what each agent is to find there: a copy of the directory does not have it. Raises
        StorageFailed."""
        token = os.urandom(8).hex()
        commit_file(job.fs, job.path, TOKEN, token.encode(), replaces=True)
        return token

    def _start_agents(self, index: int | None = None, former: str = "") -> None:
        """Let the engine start all agents; or another one on host `index`, which is to know that of the one before."""
        names = {i: host.node.name for i, host in self.fleet.hosts.items() if index in (None, i)}

        def words(index: int | None) -> list[str]:
            # A name that does not resolve here is no obstacle: an engine may know it.
            address = own_address(self.interface, names[min(names) if index is None else index])
            begin = [self.interpreter.executable, "-P", *self.interpreter.options, "-m", "ckpt", "agent"]
            if index is None:
                place = ["--among", ",".join(names.values())]
                place += ["--naming", self.engine.naming] if self.engine.naming else []
            else:
                place = ["--host", names[index], "--index", str(index)]
                place += ["--life", str(self._begun[index]), "--former", former] if former else []
            return [*begin, *self._common, *place, "--controller", joined(address, self._port)]

        for each, started in self.engine.start(names, words, self._output, appends=index is not None).items():
            self._started[each] = started
            self._pidfds[each] = os.pidfd_open(started.process.pid)
            self._epoll.register(self._pidfds[each], select.EPOLLIN)

    def _begin_anew(self) -> None:
        """Start other agents on hosts whose agents are gone: what they find there may prove it before the lease does."""
        now = now_ns()
        for index in [i for i, due_ns in self._anew_ns.items() if now >= due_ns]:
            del self._anew_ns[index]
            life = self._begun.get(index, 0) + 1
            late = now > self.fleet.hosts[index].lost_ns + JOIN_LIMIT_LEASES * self.fleet.lease_ns
            if not self.fleet.may_begin_anew(index) or index not in self._identities or late or life >= LIVES:
                continue
            self._begun[index] = life
            assert self._link is not None
            self._link.expect(rank_of(index, life, len(self.fleet.hosts)))
            self._started[index].stop(0)
            with contextlib.suppress(LaunchFailed):  # the lease will be over
                self._start_agents(index, self._identities[index])

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
                there, address = self.fleet.hosts[int(other)].node.name, split(doors[int(other)])[0]
                raise LaunchFailed(
                    f"host {name} cannot reach host {there} at {address}: {reason}. Ranks talk by tcp between all hosts, at "
                    "any port (or --ports): open it, or name another network (--interface)"
                )
            if index not in self._knocked:
                raise LaunchFailed(
                    f"host {name} did not say within {_ROUTES_LIMIT_S:g} s whether it reaches the others"
                )

    def _find_shared(self, job: JobDirectory) -> None:
        """Ask the hosts which file systems they share with this one, and for the time; again if an answer was slow."""
        if self._shares is None:
            return
        own = facts.mounts_of(facts.candidates(job.path, self.cwd))
        name = f".ckpt-shared-{os.urandom(8).hex()}"
        with facts.token(own, name):
            for _ in range(_SHARES_TRIES):
                answers = self._ask_for_shared(list(own), name)
                self.shared = proof.prove(own, answers)
                if not self.shared.unknown_clocks:
                    break

    def _ask_for_shared(self, directories: list[str], name: str) -> dict[str, dict[str, Any] | None]:
        shares = self._shares = {}
        asked_ns = time.time_ns()
        self._tell(self._joined(), {"a": "share", "directories": directories, "name": name})
        deadline = time.monotonic() + _SHARES_LIMIT_S
        while not shares.keys() >= set(self._joined()) and time.monotonic() < deadline:
            self._look()
            time.sleep(_POLL_S)
        answers: dict[str, dict[str, Any] | None] = {}
        for index in self._joined():
            answer = shares.get(index)
            off_ns = answer and proof.clock_off_ns(answer["time_ns"], asked_ns, answer["came_ns"])
            answers[self.fleet.hosts[index].node.name] = answer and {**answer, "off_ns": off_ns}
        return answers

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
        """From now on look into the journal, and renew leases only as `Tenure` allows; agents may look there, too. Raises
        LockLost, StorageFailed."""
        if self._journal is not None:
            return
        began_ns = now_ns()
        journal.check()
        assert self._link is not None
        with self._link.port.lock:
            self.fleet.records = True  # before an agent may look
            self._journal = journal
        self._tell(self._joined(), {"a": "journal", "number": journal.position.number})
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

    def contact(self) -> str:
        """Where this controller is reached from other hosts: HOST:PORT, as words."""
        return " ".join(dict.fromkeys(self._contacts()))

    def _contacts(self) -> list[str]:
        """As the hosts see it, in their order."""
        return [
            joined(own_address(self.interface, host.node.name), self._port)
            for host in self.fleet.hosts.values()
        ]

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
            index = self._writers[rank]
            self._printed[index] = self._printed.get(index, 0) + count
        for index, count in list(self._printed.items()):
            if count >= WINDOW_BYTES // 4:
                del self._printed[index]
                self._tell([index], {"a": "printed", "bytes": count})

    def fileno(self) -> int:
        return self._epoll.fileno()

    # ---- commands ----------------------------------------------------------------------------------------

    def start(self, specs: Sequence[dict[str, Any]]) -> None:
        parts: dict[int, list[dict[str, Any]]] = {}
        for spec in specs:
            parts.setdefault(self.fleet.index_of(spec["host"]), []).append(spec)
        self._incarnation = max((spec["incarnation"] for spec in specs), default=0)
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

    def fence(self, incarnation: int, *, final: bool = False) -> None:
        self._ask(self.fleet.fence, incarnation, final)
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
                self._link.send(rank_of(index, self._lives.get(index, 0), len(self.fleet.hosts)), command)

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
        for rank, packet in self._link.take():
            index, life = host_of(rank, len(self.fleet.hosts))
            if packet.get("e") == "join" and life:
                self._reborn(index, life, packet)
            elif life == self._lives.get(index, 0):
                self._packet(index, packet)
        self._events += [{"e": "question", "question": each} for each in self._link.questions()]
        for index, started in self._started.items():
            if index in self._pidfds and (how := started.end()) is not None:
                self._close_pidfd(index)
                if started.is_shared and self.fleet.hosts[index].state != "starting":
                    self._note_end(started, how)
                elif index not in self._ended:
                    self._ask(self.fleet.engine_ended, index, how, now_ns())
                if not (started.is_shared or self._gives_up or self._is_closing) and self.fleet.returns:
                    was_in_vain = self._begun.get(index, 0) > self._lives.get(index, 0)
                    self._anew_ns[index] = now_ns() + (self.fleet.lease_ns if was_in_vain else 0)
        self._begin_anew()
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
                self._ended.discard(index)
                self._ask(self.fleet.back, index, number, now_ns())
        self._ask(self.fleet.tick, now_ns())

    def _reborn(self, index: int, life: int, packet: dict[str, Any]) -> None:
        """Another agent has been started on a host whose agent is gone. It says how it knows that."""
        problem = self._unfit(packet)
        if problem is None and (self._gives_up or self.fleet.hosts[index].is_left_out):
            problem = "this host is not needed any more"
        self._lives[index] = life
        self._ended.discard(index)
        if problem is not None:
            self._tell([index], {"a": "end", "reason": problem})
            return
        self._identities[index] = json.dumps(packet["identity"])
        self._ask(self.fleet.reborn, index, str(packet["proof"]), now_ns())

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
                if self._gives_up or (packet["roster"]["ranks"] and not self._is_adopting):
                    self._tell([index], {"a": "end", "reason": "its ranks are not gone on with"})
                    return
                self._rosters[index] = packet["roster"]
                self._identities[index] = json.dumps(packet["identity"])
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
            case "shared":
                if self._shares is not None:
                    self._shares[index] = {**packet, "came_ns": time.time_ns()}
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
                if packet.get("e") == "output":
                    self._writers[int(packet["rank"])] = index
                    packet = {**packet, "text": text_of(packet)}
                elif packet.get("e") == "died":
                    self.fleet.died(index, int(packet["rank"]), int(packet["incarnation"]))
                self._events.append({**packet, "host": self.fleet.hosts[index].node.name})

    def _unfit(self, packet: dict[str, Any]) -> str | None:
        if packet.get("ckpt") != VERSION:
            return f"it has version {packet.get('ckpt')} of ckpt, this is {VERSION}: install the same"
        if str(packet.get("python")).split(".")[:2] != self._version.split(".")[:2]:
            return f"it has Python {packet.get('python')}, the job runs under {self._version}"
        return None

    def _may_answer(self) -> bool:
        return self._tenure is None or self._tenure.may_answer(now_ns())

    def _renewal(self, rank: int, number: int) -> dict[str, Any] | None:
        index, life = host_of(rank, len(self.fleet.hosts))
        if life != self._lives.get(index, 0):
            return None
        if not self._may_answer():
            self._tenure_is_over = True
            return None
        return self._renewed(number) if self.fleet.renewed(index, number, now_ns()) else None

    def _renewed(self, number: int) -> dict[str, Any]:
        """The answer to a renewal. `journal`: what the host is to know is written behind this record."""
        journal = {} if self._journal is None else {"journal": self._journal.position.number}
        return {"a": "renewed", "number": number, **journal}

    def _record(self, silences: dict[int, int]) -> None:
        """Write down that ranks of these hosts may not go on. A disk that refuses is asked again."""
        assert self._link is not None and self._journal is not None
        names = [self.fleet.hosts[index].node.name for index in silences]
        try:
            self._journal.record_restart(self._incarnation, names)
        except LockLost as lost:
            self._lost = lost
            self._wake()
        except StoreError as error:
            with self._link.port.lock:
                self.fleet.not_recorded(silences)
            if not self._is_refused:
                self._do([Note("restart-not-recorded", {"hosts": names, "reason": str(error)})])
            self._is_refused = True
        else:
            self._is_refused = False
            with self._link.port.lock:
                self.fleet.recorded(silences, now_ns())

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
                    self._tell([index], self._renewed(number))
                case Record(silences=silences):
                    self._record(silences)
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
                case Fenced(incarnation=incarnation):
                    self._events.append({"e": "fenced", "incarnation": incarnation})
                case Note(event=name, fields=fields):
                    self._events.append({"e": "note", "event": name, "fields": fields})

    # ---- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        self._watch.set()
        self._is_closing = True
        self._anew_ns.clear()
        link = self._link
        started_here = dict(self._started)
        if link is not None and self._is_superseded():
            started_here.clear()  # the next controller goes on with the ranks, or ends them
        elif link is not None:
            joined = self._joined()
            self._tell(joined, {"a": "end", "reason": "the job has ended"})
            deadline = time.monotonic() + _END_PATIENCE_S
            while time.monotonic() < deadline and not self._ended.issuperset(joined):
                self._look()
                time.sleep(_POLL_S)
        for started in dict.fromkeys(started_here.values()):
            its = [index for index, each in started_here.items() if each is started]
            started.stop(0.0 if self._ended.isdisjoint(its) else 2.0)
        for index in self._started:
            self._close_pidfd(index)
        self._started.clear()
        if link is not None:
            self._link = None
            link.close()
        if not self._epoll.closed:
            self._epoll.close()

    def _is_superseded(self) -> bool:
        if self._journal is not None and self._lost is None:
            try:
                self._journal.check()
            except LockLost as lost:
                self._lost = lost
            except StoreError:
                return False
        return self._lost is not None

    def _close_pidfd(self, index: int) -> None:
        fd = self._pidfds.pop(index, None)
        if fd is not None:
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(fd)
            os.close(fd)
