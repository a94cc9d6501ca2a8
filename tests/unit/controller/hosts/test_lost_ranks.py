"""Lost hosts and lost ranks: fleet and supervisor together, in every order of what can happen.

Host a has ranks 0 and 1, host b has rank 2. A rank is killed or finishes; a report arrives or, when its host is lost, does
not; a host is lost while its ranks run on until its lease is over; its fork server is killed; its agent says that all has
ended; a host that was given up comes back; one is reset, and another agent is started there; the program goes back. What
must hold, whatever the order:

- nobody is told that a rank is dead while its process runs,
- when nothing more happens, each survivor has been told of all dead ranks (`--on-failure continue`), or all ranks run, or
  the job has ended, and nothing runs,
- no rank of an incarnation is started while one of an older incarnation runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from ckpt.controller.hosts.fleet import Dead, Effect, Fleet, Gone, TellEnd, TellFence
from ckpt.controller.hosts.lease import over_ns
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    AgentLost,
    BackRequested,
    Begin,
    Died,
    End,
    Event,
    Fence,
    Fenced,
    Finished,
    Hello,
    Launch,
    Send,
    Tick,
)
from ckpt.controller.supervision.plan import Node, place
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.controller.supervision.supervisor import Supervisor

LEASE_NS = 1_000_000_000
SIZE = 3
DEPTH = 6


class Broken(AssertionError):
    pass


class Job:
    """The machines of the controller, and the hosts as they are."""

    def __init__(self, make_fleet: Callable[..., Fleet], tolerant: bool) -> None:
        self.fleet = make_fleet([Node("a", 3), Node("b", 3)], lease_ns=LEASE_NS, tolerant=tolerant)
        self.supervisor = Supervisor(
            Coordinator(SIZE, options=RoundOptions()),
            on_failure="continue" if tolerant else "restart",
            max_restarts=1,
        )
        self.running: dict[int, tuple[int, int]] = {}  # by rank: host and incarnation
        self.reports: list[tuple[int, dict[str, Any]]] = []  # on their way from a host
        self.told: set[int] = set()
        self.agents = {1, 2}  # that have not ended
        self.ended = False
        for index in (1, 2):
            self.fleet.joined(index, 0)
        self.feed(Begin())

    # ---- the controller ----------------------------------------------------------------------------------

    def feed(self, event: Event, now_ns: int = 0) -> None:
        for action in self.supervisor.handle(event, now_ns=now_ns):
            self.act(action)

    def act(self, action: Action) -> None:
        match action:
            case Launch(incarnation=incarnation):
                if self.running:
                    raise Broken(f"started beside {self.running}")
                nodes = self.fleet.nodes()
                if not nodes:
                    self.ended = True  # the service says: no host is left
                    return
                at = {p.rank: self.fleet.index_of(p.node) for p in place(SIZE, self.places(nodes))}
                self.fleet.start({i: {r: incarnation for r in at if at[r] == i} for i in (1, 2)})
                self.running = {r: (host, incarnation) for r, host in at.items() if host in self.agents}
                self.told = set()
                for rank in self.running:
                    self.feed(Hello(rank, incarnation, "x"))
            case Send(packet={"m": "failed", "ranks": ranks}):
                if alive := self.running.keys() & set(ranks):
                    raise Broken(f"{alive} were called dead")
                self.told = set(ranks)
            case Send(packet={"m": "release" | "stop"}):
                for rank, (host, _) in list(self.running.items()):
                    if self.fleet.hosts[host].state == "joined":
                        self.end(rank, code=0)
            case Fence(incarnation=incarnation):
                self.effects(self.fleet.fence(incarnation))
            case End():
                if self.running:
                    raise Broken(f"the end, and {self.running} run")
                self.ended = True

    def places(self, nodes: list[Node]) -> list[Node]:
        """Rank 2 on b at the start; all on one host when only that is left."""
        return [Node(node.name, 3 if len(nodes) == 1 else 2) for node in nodes]

    def effects(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case TellFence(host=host) | TellEnd(host=host) if host not in self.agents:
                    pass
                case Dead(ranks=ranks):
                    for rank, incarnation in ranks:
                        self.feed(Died(rank, incarnation, host="x"))
                case Fenced(incarnation=incarnation):
                    self.feed(Fenced(incarnation))
                case TellFence(host=host, incarnation=incarnation):
                    self.kill_all(host)
                    self.reports.append((host, {"e": "fenced", "incarnation": incarnation}))
                case TellEnd(host=host):
                    self.agent_ends(host)
                case Gone(reason=reason):
                    self.feed(AgentLost(reason))

    # ---- the hosts ---------------------------------------------------------------------------------------

    def end(self, rank: int, **how: int) -> None:
        host, incarnation = self.running.pop(rank)
        self.reports.append((host, {"e": "died", "rank": rank, "incarnation": incarnation, "how": how}))

    def kill_all(self, host: int) -> None:
        for rank in [rank for rank, (at, _) in self.running.items() if at == host]:
            self.end(rank, signal=9)

    def agent_ends(self, host: int) -> None:
        self.kill_all(host)
        self.agents.discard(host)
        self.reports.append((host, {"e": "ended"}))

    def deliver(self) -> None:
        host, report = self.reports.pop(0)
        state = self.fleet.hosts[host].state
        if report["e"] == "fenced":
            self.effects(self.fleet.fenced(host, report["incarnation"]))
        elif report["e"] == "ended":
            self.effects(self.fleet.ended(host, "said so", 0))
        elif report["e"] == "lost":
            self.effects(self.fleet.fork_server_lost(host, "killed", 0))
        elif state == "joined":
            self.fleet.died(host, report["rank"], report["incarnation"])
            self.feed(Died(report["rank"], report["incarnation"], **report["how"]))

    # ---- what can happen ---------------------------------------------------------------------------------

    def choices(self) -> list[tuple[str, int]]:
        if self.ended:
            return []
        found = [("kill", rank) for rank in self.running]
        found += [("finish", rank) for rank in self.running if rank not in self.supervisor.finished]
        found += [("back", rank) for rank in list(self.running)[:1] if self.supervisor.failed]
        for index, host in self.fleet.hosts.items():
            if host.state == "joined":
                found += [("lose", index)]
            if index in self.agents:
                found += [("agent ends", index), ("fork server", index)]
            if host.state == "lost":
                found += [("lease", index), ("reset", index)]
            if host.state == "fenced" and index in self.agents:
                found += [("comes back", index)]
        return found + ([("deliver", 0)] if self.reports else [])

    def do(self, what: str, which: int) -> None:
        match what:
            case "kill":
                self.end(which, signal=9)
            case "finish":
                host, incarnation = self.running[which]
                if self.fleet.hosts[host].state == "joined":
                    self.feed(Finished(which, incarnation, 0))
            case "back":
                host, incarnation = self.running[which]
                if self.fleet.hosts[host].state == "joined":
                    self.feed(BackRequested(which, incarnation, "lost"))
            case "lose":
                self.effects(self.fleet.engine_ended(which, "killed", 0))
            case "fork server":
                self.kill_all(which)
                self.reports.append((which, {"e": "lost"}))
            case "agent ends":
                self.agent_ends(which)
            case "lease":
                self.kill_all(which)  # the agent's clock says so before the controller's
                for index in (1, 2):
                    if index != which:
                        self.fleet.renewed(index, 1, over_ns(0, LEASE_NS))
                lost = self.fleet.hosts[which]
                others = [h for h in self.fleet.hosts.values() if h is not lost and h.state == "lost"]
                for other in others:
                    other.came_ns += 10 * LEASE_NS  # its lease is over later
                self.effects(self.fleet.tick(over_ns(lost.came_ns, LEASE_NS)))
            case "reset":
                self.kill_all(which)
                # Nobody sends them any more
                self.reports = [report for report in self.reports if report[0] != which]
                self.agents.add(which)
                self.effects(self.fleet.reborn(which, "reset", 0))
            case "comes back":
                self.effects(self.fleet.back(which, 1, 0))
            case "deliver":
                self.deliver()

    def settle(self) -> None:
        """All reports arrive, and all leases of lost hosts end; then the rules hold."""
        for _ in range(60):
            if self.ended:
                break
            if self.reports:
                self.deliver()
                continue
            lost = [index for index, host in self.fleet.hosts.items() if host.state == "lost"]
            if lost:
                self.do("lease", lost[0])
            elif (due_ns := self.supervisor.deadline_ns()) is not None:
                self.feed(Tick(), due_ns)  # ranks that do not leave are ended
            else:
                break
        dead = set(range(SIZE)) - self.running.keys()
        if not self.ended and (self.reports or not dead <= self.told | set(self.supervisor.finished)):
            raise Broken(f"{dead} are dead, told {self.told}, {self.supervisor.phase}")
        if self.ended and self.running:
            raise Broken(f"the job has ended, and {self.running} run")

    def key(self) -> str:
        supervisor = self.supervisor
        state = (supervisor.phase, supervisor.incarnation, supervisor.restarts, sorted(supervisor.failed))
        hosts = [(h.state, sorted(h.ranks), h.had_ranks, h.came_ns) for h in self.fleet.hosts.values()]
        gone, finished = sorted(supervisor.gone), sorted(supervisor.finished)
        fencing = self.fleet.fencing, sorted(self.fleet.waiting)
        return repr((state, hosts, gone, finished, fencing, sorted(self.running), self.reports, self.told))


def explore(
    make_fleet: Callable[..., Fleet] = Fleet,
    depth: int = DEPTH,
    *,
    tolerant: bool = True,
    make_job: Callable[[Callable[..., Fleet], bool], Job] | None = None,
    to_first: bool = False,
) -> tuple[int, list[str]]:
    """How many states there are up to this depth, and what is broken in them, with the way there. `to_first`: the first of
    these ends it."""
    level: dict[str, tuple[Job, tuple[Any, ...]]] = {"": ((make_job or Job)(make_fleet, tolerant), ())}
    seen: set[str] = set()
    broken: list[str] = []
    for _ in range(depth):
        following: dict[str, tuple[Job, tuple[Any, ...]]] = {}
        for job, way in level.values():
            for choice in job.choices():
                other = copy.deepcopy(job)
                try:
                    other.do(*choice)
                    key = other.key()
                    if key in seen:
                        continue
                    seen.add(key)
                    following[key] = other, (*way, choice)
                    copy.deepcopy(other).settle()
                except Broken as error:
                    broken.append(f"{(*way, choice)}: {error}")
                    if to_first:
                        return len(seen), broken
        level = following
    return len(seen), broken


@pytest.mark.rotate(2)
@pytest.mark.parametrize("tolerant", [True, False])
def test_in_every_order(tolerant: bool) -> None:
    states, broken = explore(depth=4, tolerant=tolerant)
    assert not broken, broken[:3]
    assert states > 200


@pytest.mark.nightly
@pytest.mark.timeout(1200)  # 80,000 states: a minute of an idle processor
@pytest.mark.parametrize("tolerant", [True, False])
def test_in_every_order_further(tolerant: bool) -> None:
    states, broken = explore(tolerant=tolerant)
    assert not broken, broken[:3]
    assert states > 2000


class DeadWhenLost(Fleet):
    """Taken out: a host's ranks are dead when it is fenced, not when it is lost."""

    def _lose(self, index: int, reason: str, now_ns: int) -> list[Effect]:
        effects = super()._lose(index, reason, now_ns)
        ranks, self.hosts[index].ranks = self.hosts[index].ranks, {}
        return [*effects, Dead(index, reason, tuple(ranks.items()))]


class OnlyReported(Fleet):
    """Taken out: ranks whose end a lost host has not reported are dead with it."""

    def _prove(self, index: int, proof: str, now_ns: int) -> list[Effect]:
        return [effect for effect in super()._prove(index, proof, now_ns) if not isinstance(effect, Dead)]


class JoinedWhenReborn(Fleet):
    """Taken out: a host on which another agent is started is none of the job before that asks for a lease."""

    def reborn(self, index: int, proof: str, now_ns: int) -> list[Effect]:
        effects = super().reborn(index, proof, now_ns)
        self.hosts[index].state = "joined"
        return [effect for effect in effects if not isinstance(effect, Dead)]


class AnyAgentIsAProof(Fleet):
    """Taken out: that an agent can be started on a host says nothing of the one before."""

    def engine_ended(self, index: int, reason: str, now_ns: int) -> list[Effect]:
        effects = super().engine_ended(index, reason, now_ns)
        return effects + self.reborn(index, "reset", now_ns)


class AllAreSpares(Fleet):
    """Taken out: hosts on which ranks were started are waited for."""

    def start(self, ranks: Mapping[int, Mapping[int, int]]) -> None:
        super().start(ranks)
        for host in self.hosts.values():
            host.had_ranks = False


@pytest.mark.parametrize("mutant", [DeadWhenLost, OnlyReported, JoinedWhenReborn, AnyAgentIsAProof])
def test_a_rule_taken_out_is_found(mutant: type[Fleet]) -> None:
    assert explore(mutant, depth=3)[1]


def test_that_lost_hosts_with_ranks_are_waited_for_taken_out_is_found() -> None:
    assert explore(AllAreSpares, depth=2, tolerant=False)[1]
