"""The next controller goes on with ranks that run, or starts others: on the shipped code of all sides, never two.

Host a has the ranks. Its controller G may die, be cut off from the host, from the journal, or from both, for a while or for
good; another controller N may take the job over at any time, and may or may not be reached by the host; clocks are wrong by
one percent. Looks into the journal may fail, and take time. What must hold:

- no controller starts ranks elsewhere while those of the host run,
- the host obeys one controller: the ranks that N goes on with are not kept alive by G.

Every combination of a few times and faults (`cases`), and random runs. Each rule is taken out, and noticed (`MUTANTS`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from ckpt.controller.adoption.roster import Adopted, Roster, adoptable
from ckpt.controller.adoption.verdict import Verdict, judge
from ckpt.controller.hosts.fleet import Answer, Fleet, Note, Record
from ckpt.controller.hosts.lease import AgentLease
from ckpt.controller.hosts.tenure import Tenure, patience_ns, wait_ns
from ckpt.controller.supervision.plan import Node
from ckpt.store.records.journal import JournalRecord
from ckpt.transport.records import replace

S = 1_000_000_000
LEASE_NS = 4 * S
KILL_NS = S  # what an agent may need to kill its ranks
STEP_NS = S // 4
END_NS = 60 * S
NEVER = 1 << 62
Window = tuple[int, int]
"""From when until when something is cut"""


@dataclass(frozen=True)
class Case:
    """`dies`, `taken`: when G ends and N takes over. `cable`, `storage`: when the host is cut off from G, and G from the
    journal; `blind`, `away`: when the host is cut off from the journal, and from N."""

    dies: int = NEVER
    taken: int = NEVER
    cable: Window = (NEVER, NEVER)
    storage: Window = (NEVER, NEVER)
    blind: Window = (NEVER, NEVER)
    away: Window = (NEVER, NEVER)
    slow: int = 0  # the time of a look
    rates: tuple[float, float, float] = (1.0, 1.0, 1.0)


@dataclass
class Rules:
    """The shipped ones, unless they are replaced."""

    lease: type[AgentLease] = AgentLease
    judge: Callable[..., Verdict] = judge
    records: bool = True
    generations: bool = True
    each_time: bool = False
    wait: Callable[[int, int], int] = wait_ns


class Violation(AssertionError):
    pass


@dataclass
class Side:
    """One controller."""

    fleet: Fleet
    tenure: Tenure
    generation: int
    number: int = 1  # of its last record
    ended: bool = False


def cut(window: Window, now: int) -> bool:
    return window[0] <= now < window[1]


@dataclass
class World:
    case: Case
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        self.records = [JournalRecord(1, "", 1, "takeover", 0)]
        self.former = self.side(1)
        self.former.fleet.start({1: {0: 0}})
        self.later: Side | None = None
        self.lease = self.rules.lease(LEASE_NS, 0)
        self.lease.answered(0)
        self.base, self.mine = 1, 1  # record, and generation of the controller that the host obeys
        self.newest = 1  # generation that has been found
        self.joins = False  # it has gone over to N, which has not heard it yet
        self.looking: tuple[int, int, tuple[JournalRecord, ...] | None] | None = None
        self.gone: int | None = None  # when the ranks have ended
        self.adopted = False
        self.wait_ends = NEVER

    def side(self, generation: int) -> Side:
        fleet = Fleet([Node("a", 1), Node("b", 1)], lease_ns=LEASE_NS)
        fleet.records = self.rules.records
        return Side(fleet, Tenure(patience_ns(LEASE_NS), 0), generation, len(self.records))

    def run(self) -> str:
        """Returns how it ends. Raises Violation."""
        self.former.fleet.joined(1, 0)
        for now in range(0, END_NS, STEP_NS):
            self.controller(self.former, now, int(now * self.case.rates[0]))
            self.host(now, int(now * self.case.rates[1]))
            if now >= self.case.taken:
                self.next_controller(now, int(now * self.case.rates[2]))
        return "adopted" if self.adopted else "runs" if self.gone is None else "ended"

    def starts_others(self, who: str, now: int) -> None:
        if self.gone is None or now < self.gone:
            raise Violation(
                f"{who} starts ranks at {now / S} s, those of the host end at {self.gone}: {self.case}"
            )

    # ---- controllers

    def controller(self, side: Side, now: int, clock: int) -> None:
        """A turn of G, or of N once it has the ranks."""
        if side.ended or (side is self.former and now >= self.case.dies):
            return
        if side is not self.former or not cut(self.case.storage, now):
            if self.records[-1].generation > side.generation:
                side.ended = True
                return
            side.tenure.looked(clock)
        for effect in side.fleet.tick(clock):
            if isinstance(effect, Record):
                self.write(side, effect, now, clock)
            elif isinstance(effect, Note) and effect.event == "host-fenced":
                self.starts_others(f"generation {side.generation}", now)

    def write(self, side: Side, effect: Record, now: int, clock: int) -> None:
        if side is self.former and cut(self.case.storage, now):
            side.fleet.not_recorded(effect.silences)
            return
        hosts = tuple(side.fleet.hosts[index].node.name for index in effect.silences)
        self.append(side, "restart", hosts=hosts)
        side.fleet.recorded(effect.silences, clock)

    def append(self, side: Side, what: str, **fields: object) -> None:
        record = JournalRecord(len(self.records) + 1, "", side.generation, what, 0)  # type: ignore[arg-type]
        self.records.append(replace(record, **fields))
        side.number = len(self.records)

    def answer(self, side: Side, number: int, now: int, clock: int) -> None:
        """A renewal has come; its answer arrives at once."""
        if side.ended or not side.tenure.may_answer(clock):
            return
        if any(isinstance(effect, Answer) for effect in side.fleet.renewed(1, number, clock)):
            self.lease.answered(number)
            if side.generation == self.mine:
                self.base = side.number

    def next_controller(self, now: int, clock: int) -> None:
        if self.later is None:
            generation = self.records[-1].generation + 1
            self.records.append(JournalRecord(len(self.records) + 1, "", generation, "takeover", 0))
            self.later = self.side(generation)
            self.later.tenure.looked(clock)
            self.append(self.later, "contact", contact="there there")
            patience = 0 if now >= self.case.dies else patience_ns(LEASE_NS)
            self.wait_ends = clock + self.rules.wait(LEASE_NS, patience)
        if self.adopted:
            self.controller(self.later, now, clock)
        elif clock >= self.wait_ends:
            self.starts_others("the next one", now)
            self.later.ended = True

    # ---- the host

    def host(self, now: int, clock: int) -> None:
        if self.gone is not None:
            return
        if self.lease.is_over(clock):
            self.gone = now + KILL_NS
            return
        self.look(now, clock)
        if self.joins and not cut(self.case.away, now):
            self.joins = False
            self.meet(0, now, int(now * self.case.rates[2]))
        number = self.lease.renewal(clock)
        if number is None:
            return
        reaches_former = not cut(self.case.cable, now) and now < self.case.dies
        if reaches_former and (self.mine == 1 or not self.rules.generations):
            self.answer(self.former, number, now, int(now * self.case.rates[0]))
        if self.later is not None and self.mine == self.later.generation and not cut(self.case.away, now):
            self.meet(number, now, int(now * self.case.rates[2]))

    def meet(self, number: int, now: int, clock: int) -> None:
        """The host reaches N, whose first answer is that to its join."""
        assert self.later is not None
        if not self.adopted and not self.later.ended and clock < self.wait_ends:
            self.later.fleet.joined(1, clock)
            self.later.fleet.start({1: {0: 0}})
            self.adopted = True
        self.answer(self.later, number, now, clock)

    def look(self, now: int, clock: int) -> None:
        if self.looking is not None and now >= self.looking[0]:
            _, began, found = self.looking
            self.looking = None
            if found is not None:
                self.believe(
                    self.rules.judge(found, host="a", index=1, generation=self.mine, began_ns=began), clock
                )
        if self.looking is None and self.lease.look_is_due(clock):
            seen = None if cut(self.case.blind, now) else tuple(self.records[self.base :])
            self.looking = (now + self.case.slow, clock, seen)

    def believe(self, verdict: Verdict, clock: int) -> None:
        if verdict.what == "alone":
            self.lease.looked(verdict.began_ns)
            return
        if verdict.generation > self.newest or self.rules.each_time:
            self.newest = verdict.generation
            self.lease.taken_over(verdict.began_ns)
        if verdict.what == "taken over" and verdict.contact and verdict.generation > self.mine:
            self.mine = verdict.generation
            self.lease = self.lease.handed_on(clock)
            self.joins = True


TIMES = (3 * S, 37 * S // 4)
CUTS: tuple[Window, ...] = ((NEVER, NEVER), (2 * S, 12 * S), (4 * S, NEVER))
STORAGE: tuple[Window, ...] = ((NEVER, NEVER), (2 * S, NEVER), (4 * S, NEVER))
BLIND: tuple[Window, ...] = ((NEVER, NEVER), (2 * S, 51 * S // 4))
AWAY: tuple[Window, ...] = ((NEVER, NEVER), (0, NEVER), (13 * S, NEVER))
RATES = ((1.0, 1.0, 1.0), (1.01, 0.99, 1.01), (0.99, 0.99, 1.01))


def cases() -> Iterator[Case]:
    for dies, taken, cable, storage in itertools.product(
        (NEVER, *TIMES), (NEVER, 4 * S, 10 * S, 20 * S), CUTS, STORAGE
    ):
        for blind, away, slow, rates in itertools.product(BLIND, AWAY, (0, 3 * S), RATES):
            yield Case(dies, taken, cable, storage, blind, away, slow, rates)


def random_case(seed: int) -> Case:
    dice = random.Random(seed)

    def when() -> int:
        return dice.choice((NEVER, dice.randrange(40) * S // 2))

    def window() -> Window:
        begin = when()
        return begin, begin + dice.randrange(1, 60) * S // 2

    rates = (dice.uniform(0.99, 1.01), dice.uniform(0.99, 1.01), dice.uniform(0.99, 1.01))
    slow = dice.randrange(0, 6) * S
    return Case(when(), when(), window(), window(), window(), window(), slow, rates)


@pytest.mark.rotate(2)
def test_never_two_in_every_case() -> None:
    ends = {World(case).run() for case in cases()}
    assert ends == {"adopted", "runs", "ended"}


@pytest.mark.rotate(8)
@pytest.mark.parametrize("part", range(8))
def test_never_two_in_random_runs(part: int) -> None:
    for seed in range(part, 8 * 150, 8):
        World(random_case(seed)).run()


class FromTheEndOfTheLook(AgentLease):
    def looked(self, began_ns: int) -> None:
        super().looked(began_ns + 3 * S)


class ForAWholeLease(AgentLease):
    def looked(self, began_ns: int) -> None:
        super().looked(began_ns + self.lease_ns // 2)


class BeforeAnAnswer(AgentLease):
    """A look counts although the next controller has never answered."""

    def looked(self, began_ns: int) -> None:
        self._kept_ns = max(began_ns + self.lease_ns // 2, self._kept_ns or 0)

    def handed_on(self, now_ns: int) -> AgentLease:
        lease = BeforeAnAnswer(self.lease_ns, now_ns)
        lease._kept_ns = self.until_ns()
        return lease


class WithoutAnEnd(AgentLease):
    """Going over to the next controller is itself a lease."""

    def handed_on(self, now_ns: int) -> AgentLease:
        lease = super().handed_on(now_ns)
        lease._kept_ns = now_ns + self.lease_ns
        return lease


def blind_to_restarts(records: tuple[JournalRecord, ...], **of: object) -> Verdict:
    return judge([each for each in records if each.what != "restart"], **of)  # type: ignore[arg-type]


def without_contact(records: tuple[JournalRecord, ...], **of: object) -> Verdict:
    """The next controller does not say where it is."""
    return judge([each for each in records if each.what != "contact"], **of)  # type: ignore[arg-type]


def takeover_first(records: tuple[JournalRecord, ...], **of: object) -> Verdict:
    """A takeover counts more than that the host was given up before it."""
    newest = max((each.generation for each in records), default=0)
    return judge([each for each in records if each.what != "restart" or each.generation == newest], **of)  # type: ignore[arg-type]


def blind_to_takeovers(records: tuple[JournalRecord, ...], **of: object) -> Verdict:
    return judge([each for each in records if each.what == "restart"], **of)  # type: ignore[arg-type]


MUTANTS = {
    "a restart that is not recorded": Rules(records=False),
    "adoption without generation": Rules(generations=False),
    "a look that counts from its end": Rules(lease=FromTheEndOfTheLook),
    "a look that counts for a whole lease": Rules(lease=ForAWholeLease),
    "a look that counts before the next controller has answered": Rules(lease=BeforeAnAnswer),
    "going over that is a lease": Rules(lease=WithoutAnEnd),
    "a look that does not see restarts": Rules(judge=blind_to_restarts),
    "a look that does not see takeovers": Rules(judge=blind_to_takeovers),
    "each look that finds a takeover is a lease": Rules(each_time=True, judge=without_contact),
    "a host that was given up goes over": Rules(judge=takeover_first),
    "no wait for those that look for the next controller": Rules(
        judge=without_contact, wait=lambda lease, patience: wait_ns(lease, patience) - lease // 2
    ),
    "no wait for the tenure": Rules(wait=lambda lease, patience: wait_ns(lease, 0)),
    "no margin": Rules(wait=lambda lease, patience: lease + patience),
}


def found(mutant: Rules, runs: Iterator[Case]) -> bool:
    for case in runs:
        try:
            World(case, mutant).run()
        except Violation:
            return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    assert found(MUTANTS[mutant], cases()), "in every case"


RARE = ("no wait for those that look for the next controller", "going over that is a lease")
"""They need a look just before the lease is over."""


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant not in RARE])
def test_random_runs_notice_each_rule(mutant: str) -> None:
    assert found(MUTANTS[mutant], map(random_case, range(20_000)))


def test_a_host_that_cannot_be_written_down_is_given_up_when_its_agent_looks_no_more() -> None:
    fleet = Fleet([Node("a", 1)], lease_ns=LEASE_NS)
    fleet.records = True
    fleet.joined(1, 0)
    lease = AgentLease(LEASE_NS, 0)
    lease.answered(0)
    gone = fenced = None
    for now in range(0, 60 * LEASE_NS, STEP_NS):
        for effect in fleet.tick(now):
            if isinstance(effect, Record):
                fleet.not_recorded(effect.silences)
            elif isinstance(effect, Note) and effect.event == "host-fenced":
                fenced = now
        if lease.look_is_due(now):
            lease.looked(now)
        if gone is None and lease.is_over(now):
            gone = now + KILL_NS
    assert gone is not None and fenced is not None and 40 * LEASE_NS < gone <= fenced


# ---- the ranks of a host ---------------------------------------------------------------------------------


def roster(ranks: range, incarnation: int = 2, *, without: str = "") -> Roster:
    found = Roster()
    for rank in ranks:
        started = {"rank": rank, "incarnation": incarnation, "pid": 100 + rank, "start_ticks": 7}
        found.heard({"e": "started", **started})
        if without != "hello":
            found.heard({"e": "packet", "rank": rank, "packet": {"m": "hello", "address": f"at {rank}"}})
    return found


def told(**rosters: Roster) -> Adopted | str | None:
    return adoptable(4, {name: each.told() for name, each in rosters.items()}, incarnation=2)


def test_ranks_are_gone_on_with_when_all_hosts_have_told_of_theirs() -> None:
    a, b = roster(range(2)), roster(range(2, 4))
    a.sent({"m": "checkpoint", "epoch": 5, "mode": "auto"})
    b.heard({"e": "packet", "rank": 3, "packet": {"m": "finished", "exit_code": 0}})
    assert told(a=a) is None
    found = told(a=a, b=b, spare=Roster())
    assert isinstance(found, Adopted)
    assert (found.incarnation, found.epoch) == (2, 5)
    assert [found.ranks[rank].host for rank in range(4)] == ["a", "a", "b", "b"]
    assert [found.ranks[rank].finished for rank in range(4)] == [None, None, None, 0]


def dies(host: Roster) -> None:
    host.heard({"e": "died", "rank": 1, "pid": 101, "incarnation": 2})


def fails(host: Roster) -> None:
    host.heard({"e": "packet", "rank": 1, "packet": {"m": "error", "exit_code": 1, "traceback": ""}})


def is_stopped(host: Roster) -> None:
    host.sent({"m": "stop", "exit_code": 3})


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (dies, "rank 1 has ended"),
        (fails, "rank 1 has failed"),
        (is_stopped, "the job was being stopped"),
        (Roster.lost, "a fork server has ended"),
    ],
)
def test_ranks_of_which_one_cannot_go_on_are_not_gone_on_with(
    what: Callable[[Roster], None], reason: str
) -> None:
    host = roster(range(2))
    what(host)
    assert told(a=host) == told(a=host, b=roster(range(2, 4))) == reason
    host.begin()
    assert told(a=host, b=roster(range(2, 4))) is None


def test_ranks_that_were_being_started_are_not_gone_on_with() -> None:
    assert told(a=roster(range(2)), b=roster(range(2, 4), 3)) == "ranks were being started again"
    assert told(a=roster(range(4), 1)) == "ranks were being started again"
    assert told(a=roster(range(2), without="hello")) == "rank 0 was being started"
    assert told(a=roster(range(4)), b=roster(range(3, 4))) == "rank 3 is on two hosts"
