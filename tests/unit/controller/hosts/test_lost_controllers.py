"""Lost ranks, lost hosts, and a lost controller: what the next one makes of what hosts and the event log say.

In every order, as in `test_lost_ranks`; besides, the controller is lost at any moment, once: the last death may not be in
the event log, or it is, and the ranks were not told. Meanwhile ranks, agents and fork servers end; the next controller hears
all hosts that are left, or those only that the one before had not lost. It goes on with the ranks that run, or starts all
anew when all have ended. What must hold, too:

- the next controller knows of every rank that runs, and calls none of them dead,
- when all ranks that are left have finished, the job ends,
- under `--on-failure continue` it restarts nothing because of ranks of which it knows that they are dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from ckpt.controller.adoption import roster as shipped
from ckpt.controller.adoption.roster import Adopted, Roster
from ckpt.controller.hosts.fleet import Effect, Fleet
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import Action, Adopt, Begin, Launch, Log, Send
from ckpt.controller.supervision.plan import Node
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.controller.supervision.supervisor import Supervisor
from tests.unit.controller.hosts.test_lost_ranks import LEASE_NS, SIZE, Broken, Job, explore

Adoptable = Callable[..., Adopted | str | None]


class Succession(Job):
    """`adoptable`, `make_supervisor`, `make_roster`: the shipped ones, or mutants."""

    def __init__(
        self,
        make_fleet: Callable[..., Fleet],
        tolerant: bool,
        adoptable: Adoptable = shipped.adoptable,
        make_supervisor: type[Supervisor] = Supervisor,
        make_roster: type[Roster] = Roster,
    ) -> None:
        self.make = make_fleet, adoptable, make_supervisor
        self.tolerant = tolerant
        self.rosters = {1: make_roster(), 2: make_roster()}
        self.written: list[tuple[int, int]] = []  # incarnation and rank of the events `continuing`
        self.is_lost = self.has_successor = False
        self.told_before: set[int] = set()
        super().__init__(make_fleet, tolerant)

    # ---- the controllers

    def act(self, action: Action) -> None:
        match action:
            case Launch(incarnation=incarnation):
                super().act(action)
                for index, each in self.rosters.items():
                    each.begin()
                    for rank, (host, _) in self.running.items():
                        if host == index:
                            self.heard(index, rank, "started", incarnation=incarnation, start_ticks=0)
                            self.packet(index, rank, {"m": "hello", "address": "x"})
                return
            case Log(event="continuing", fields=fields):
                self.written.append((fields["incarnation"], fields["rank"]))  # type: ignore[arg-type]
            case Send(packet=packet):
                if packet["m"] == "failed":
                    self.told_before = self.told
                for index in self.agents:
                    self.rosters[index].sent(packet)
        super().act(action)

    def effects(self, effects: Iterable[Effect]) -> None:
        if not self.is_lost:
            super().effects(effects)

    def succeed(self, *, hears_lost: bool) -> None:
        make_fleet, adoptable, make_supervisor = self.make
        heard = {i for i in self.agents if hears_lost or self.fleet.hosts[i].state == "joined"}
        self.is_lost, self.has_successor = False, True
        last = self.supervisor.incarnation
        self.fleet = make_fleet([Node("a", 3), Node("b", 3)], lease_ns=LEASE_NS, tolerant=self.tolerant)
        self.supervisor = make_supervisor(
            Coordinator(SIZE, options=RoundOptions()),
            incarnation=last + 1,
            on_failure="continue" if self.tolerant else "restart",
            max_restarts=1,
        )
        for index in heard:
            self.fleet.joined(index, 0)
        failed = frozenset(rank for incarnation, rank in self.written if incarnation == last)
        rosters = {self.fleet.hosts[i].node.name: self.rosters[i].told() for i in heard}
        found = adoptable(SIZE, rosters, last, failed if self.tolerant else None)
        if isinstance(found, Adopted):
            self.go_on(found, failed)
            return
        dead = failed | {
            rank for each in self.rosters.values() for rank, at in each.ranks.items() if at["dead"]
        }
        is_known = self.tolerant and dead | self.running.keys() == set(range(SIZE)) and self.running
        if is_known and heard == {1, 2} and not any(each.unfit for each in self.rosters.values()):
            raise Broken(f"not gone on with, though {dead} are dead, and {self.running} run: {found}")
        self.running = {}  # their leases end, and so do they
        for index, each in self.rosters.items():
            each.begin()
            if index not in heard and index in self.agents:
                self.agents.discard(index)
        if heard:
            self.feed(Begin())
        else:
            self.ended = True

    adopted_with_dead = 0
    """How often, in all runs."""

    def go_on(self, found: Adopted, failed: frozenset[int]) -> None:
        Succession.adopted_with_dead += bool(found.failed)
        if found.ranks.keys() != self.running.keys():
            raise Broken(f"{sorted(found.ranks)} are gone on with, {sorted(self.running)} run")
        ranks: dict[int, dict[int, int]] = {1: {}, 2: {}}
        for rank, facts in found.ranks.items():
            ranks[self.fleet.index_of(facts.host)][rank] = found.incarnation
        self.fleet.start(ranks)
        finished = {rank: 0 for rank, facts in found.ranks.items() if facts.finished is not None}
        addresses = dict.fromkeys(found.ranks, "x")
        told = found.failed & failed
        self.feed(Adopt(found.incarnation, addresses, finished, failed=found.failed, told=told))

    # ---- the hosts

    def heard(self, index: int, rank: int, what: str, **more: int) -> None:
        self.rosters[index].heard({"e": what, "rank": rank, "pid": rank, **more})

    def packet(self, index: int, rank: int, packet: Mapping[str, Any]) -> None:
        self.rosters[index].heard({"e": "packet", "rank": rank, "packet": packet})

    def end(self, rank: int, **how: int) -> None:
        host, _ = self.running[rank]
        super().end(rank, **how)
        self.heard(host, rank, "died")

    # ---- what can happen

    def choices(self) -> list[tuple[str, int]]:
        if self.ended:
            return []
        if self.is_lost:
            found = [("kill", rank) for rank in self.running]
            found += [(what, index) for index in self.agents for what in ("agent ends", "fork server")]
            return [*found, ("succeed", 0), ("succeed", 1)]
        found = super().choices()
        if not self.has_successor and self.supervisor.phase == "running":
            found += [("controller", how) for how in ((0, 1, 2) if self.written else (0,))]
        return found

    def do(self, what: str, which: int) -> None:
        match what:
            case "controller":
                if which == 1:
                    self.written.pop()  # it has told the ranks, and had no time to write it down
                elif which == 2:
                    self.told = self.told_before  # what it had sent did not leave its host
                self.is_lost, self.reports = True, []
            case "succeed":
                self.reports = []
                self.succeed(hears_lost=bool(which))
            case "fork server":
                self.rosters[which].lost()
                super().do(what, which)
            case "finish":
                if self.fleet.hosts[self.running[which][0]].state == "joined":
                    self.packet(self.running[which][0], which, {"m": "finished", "exit_code": 0})
                super().do(what, which)
            case "lease":
                super().do(what, which)
                self.rosters[which].begin()
            case _:
                super().do(what, which)

    def settle(self) -> None:
        if self.is_lost:
            self.do("succeed", 0)
        super().settle()
        for rank in list(self.running):
            if rank not in self.supervisor.finished and not self.ended:
                self.do("finish", rank)
        super().settle()
        if not self.ended:
            raise Broken(
                f"all have finished, and the job has not ended: {self.supervisor.phase}, {self.running}"
            )

    def key(self) -> str:
        told = {index: each.told() for index, each in self.rosters.items()}
        more = self.is_lost, self.has_successor, sorted(self.agents), self.told_before
        return repr((super().key(), told, self.written, *more))


@pytest.mark.parametrize("tolerant", [True, False])
def test_in_every_order(tolerant: bool) -> None:
    Succession.adopted_with_dead = 0
    states, broken = explore(depth=3, tolerant=tolerant, make_job=Succession)
    assert not broken, broken[:3]
    assert states > 100
    assert bool(Succession.adopted_with_dead) == tolerant


@pytest.mark.nightly
@pytest.mark.parametrize("tolerant", [True, False])
def test_in_every_order_further(tolerant: bool) -> None:
    states, broken = explore(depth=5, tolerant=tolerant, make_job=Succession)
    assert not broken, broken[:3]
    assert states > 3000


def taken_for_dead(size: int, rosters: Any, incarnation: int, failed: Any = None) -> Adopted | str | None:
    """Taken out: who is not there is not therefore dead."""
    found = shipped.adoptable(size, rosters, incarnation, failed)
    there = {rank for each in rosters.values() for rank, _ in each["ranks"]}
    missing = frozenset(range(size)) - there
    return shipped.adoptable(size, rosters, incarnation, missing) if found is None else found


def without_the_log(size: int, rosters: Any, incarnation: int, failed: Any = None) -> Adopted | str | None:
    """Taken out: what the event log says of ranks whose hosts are lost."""
    return shipped.adoptable(size, rosters, incarnation, None if failed is None else frozenset())


def with_the_dead(size: int, rosters: Any, incarnation: int, failed: Any = None) -> Adopted | str | None:
    """Taken out: a rank that has ended does not run."""
    alive = {
        name: {**told, "ranks": [[rank, {**facts, "dead": False}] for rank, facts in told["ranks"]]}
        for name, told in rosters.items()
    }
    return shipped.adoptable(size, alive, incarnation, failed)


class TellsNobody(Supervisor):
    """Taken out: the next controller tells of all dead ranks, once more."""

    def _adopt_failures(self, event: Adopt, now_ns: int) -> list[Action]:
        return []


class WaitsForTheDead(Supervisor):
    """Taken out: dead ranks are not waited for when the job ends."""

    def _adopt_failures(self, event: Adopt, now_ns: int) -> list[Action]:
        self.gone.clear()
        return super()._adopt_failures(event, now_ns)


class TellsWhatIsNew(Supervisor):
    """Taken out: it tells also of those that are in the event log."""

    def _adopt_failures(self, event: Adopt, now_ns: int) -> list[Action]:
        return super()._adopt_failures(event, now_ns) if event.failed - event.told else []


MUTANTS: dict[str, dict[str, Any]] = {
    "who is missing is dead": {"adoptable": taken_for_dead},
    "without the log": {"adoptable": without_the_log},
    "a dead rank runs": {"adoptable": with_the_dead},
    "nobody is told": {"make_supervisor": TellsNobody},
    "dead ranks are waited for": {"make_supervisor": WaitsForTheDead},
    "who is in the log is not told": {"make_supervisor": TellsWhatIsNew},
}


FAR = "without the log"
"""Four steps away."""


@pytest.mark.parametrize(
    "mutant", [pytest.param(each, marks=[pytest.mark.nightly] if each == FAR else []) for each in MUTANTS]
)
def test_a_rule_taken_out_is_found(mutant: str) -> None:
    def make(fleet: Callable[..., Fleet], tolerant: bool) -> Succession:
        return Succession(fleet, tolerant, **MUTANTS[mutant])

    assert explore(depth=4, make_job=make, to_first=True)[1]
