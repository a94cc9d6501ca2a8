"""What ranks and hosts say of links that are down, and when that is to be diagnosed. Pure.

    quiet ──a link is down · a host is lost──▶ collecting ──all hosts have answered · SURVEY_NS──▶ asking ──answer──▶ quiet
                                                  └──all that was lost is explained (a new incarnation)──▶ quiet

Rules
- One diagnosis at a time; but one of slow connections is given up where a link is down. Many errors at once are one; a pair
  of hosts that is down is diagnosed once, until it is up again or the ranks are started anew.
- While collecting every host is asked, once, whom it reaches: these are the witnesses (`ckpt.diagnosis.witnesses`). All
  are asked again where a host turns out to be lost that nobody was to try: it had been given up before.
- Reports of another incarnation than the present one say nothing: those ranks have been ended.
- A rank whose process has ended (its agent says so) is no loss of the network.
- A host that was found at fault is left out when its links have been down for `patience_ns`, the time of a lease: a network
  that comes back before costs the job nothing. A host that the controller does not reach, too, is given up by then anyway.
- Where nothing was found, and two hosts only do not reach each other, nobody can say whose side it is, as there is no third
  one. One of them goes all the same, or their ranks would wait for ever; but later, when a host that is lost would have lost
  its lease.

Times are of the owner's clock. Not here: processes (`locator.py`), what the answer leads to (`locator.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ckpt.transport.records import dataclass, field

__all__ = [
    "COLLECT_NS",
    "SURVEY_LIMIT_S",
    "SURVEY_NS",
    "Action",
    "Ask",
    "Drop",
    "LeaveOut",
    "LinkFailures",
    "Survey",
    "which_goes",
]

COLLECT_NS = 300_000_000
SURVEY_NS = 1_500_000_000
UNREACHED_NS = 1_000_000_000
"""For the answers of hosts that the controller's host does not reach: they may not come either."""
UNDECIDED_NS = 2_000_000_000
"""Beside two leases, until one of two hosts goes of which it is not known whose side it is."""
SURVEY_LIMIT_S = 0.35
"""After so long a host tries once more to reach those that have not answered."""

_REFUSALS = (errno.ECONNREFUSED, errno.ECONNRESET)

State = Literal["quiet", "collecting", "asking"]


@dataclass(frozen=True)
class Survey:
    """Ask all hosts whom they reach; call `surveying` with whom each will try. `lost`: hosts that are to be tried, too."""

    number: int
    lost: tuple[str, ...]


@dataclass(frozen=True)
class Ask:
    """Start the diagnosis of these facts (`ckpt.diagnosis.jobs`)."""

    facts: dict[str, Any]


@dataclass(frozen=True)
class Drop:
    """What was begun is not needed any more."""


@dataclass(frozen=True)
class LeaveOut:
    """One of these is to get no ranks any more: `which_goes`. Lost already: it is only to be said why."""

    hosts: tuple[str, ...]
    reason: str
    is_lost: bool = False


Action = Survey | Ask | Drop | LeaveOut


@dataclass
class Loss:
    """A rank that another one cannot reach, as it was said."""

    here: str
    there: str
    error: str
    peer: int
    came_ns: int
    silent_ns: int
    accepts: bool = False
    """The peer's host accepts connections, and acknowledges nothing that comes over this one."""


@dataclass
class LinkFailures:
    """All losses of one job."""

    state: State = "quiet"
    incarnation: int = -1
    hosts: dict[int, str] = field(default_factory=dict)
    losses: dict[tuple[int, int], Loss] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    """Hosts that are lost, and since when."""
    done: set[frozenset[str]] = field(default_factory=set)
    """Pairs of hosts, and single hosts, that were diagnosed."""
    gone: set[str] = field(default_factory=set)
    """Hosts that are given up: they get no ranks any more."""
    named: dict[tuple[str, ...], tuple[str, int]] = field(default_factory=dict)
    """Hosts at fault, or two that do not reach each other: what was said, and when one of them goes."""
    patience_ns: int = 0
    """A host at fault goes when its links have been down for so long."""
    number: int = 0
    began_ns: int = 0
    tries: dict[str, Sequence[str]] = field(default_factory=dict)
    answers: dict[str, dict[str, int | None]] = field(default_factory=dict)
    own: str | None = None
    is_of_slow: bool = False
    """What is asked about are slow connections."""
    asked: frozenset[str] = frozenset()
    """The hosts of which it is asked why nobody reaches them."""

    # ---- what happens ------------------------------------------------------------------------------------

    def started(self, rank: int, incarnation: int, host: str) -> list[Action]:
        """A rank was started on a host."""
        actions: list[Action] = []
        if incarnation > self.incarnation:
            self.incarnation = incarnation
            self.hosts.clear()
            self.losses.clear()
            self.done.clear()
            self.named.clear()
            if self.state == "collecting" and not self.missing:
                self.state = "quiet"
                actions.append(Drop())
        self.hosts[rank] = host
        return actions

    def died(self, rank: int, incarnation: int, *, with_host: bool = False) -> list[Action]:
        """The process of a rank has ended: it is known why nobody reaches it. `with_host`: it is not started again, and
        what it could not reach costs nobody anything more."""
        if incarnation == self.incarnation:
            for pair in [pair for pair in self.losses if rank == pair[1] or (with_host and rank == pair[0])]:
                del self.losses[pair]
        return self._drop()

    def down(
        self,
        rank: int,
        incarnation: int,
        peer: int,
        kind: str,
        silent_ns: int,
        now_ns: int,
        *,
        accepts: bool = False,
    ) -> list[Action]:
        """A rank says that it cannot reach another one."""
        if incarnation != self.incarnation or rank not in self.hosts or peer not in self.hosts:
            return []
        here, there = self.hosts[rank], self.hosts[peer]
        self.losses[rank, peer] = Loss(here, there, kind, peer, now_ns, silent_ns, accepts)
        return self._begin(now_ns)

    def up(self, rank: int, incarnation: int, peer: int) -> list[Action]:
        """It can again."""
        if incarnation == self.incarnation and (loss := self.losses.pop((rank, peer), None)) is not None:
            for hosts in ((loss.here, loss.there), (loss.here,), (loss.there,)):
                if not self.is_down(*hosts):
                    self.done.discard(frozenset(hosts))
        return self._drop()

    def host_lost(self, host: str, now_ns: int) -> list[Action]:
        """A host is given up."""
        if host in self.gone:
            return []  # for what was found
        self.gone.add(host)
        if (host,) in self.named:
            return [LeaveOut((host,), self.named.pop((host,))[0], is_lost=True)]
        self.missing[host] = now_ns
        if self.state == "collecting" and not any(host in others for others in self.tries.values()):
            return [self._survey(now_ns)]
        return self._begin(now_ns)

    def back(self, host: str) -> None:
        """A host that was given up is there again, as a spare."""
        self.gone.discard(host)
        self.missing.pop(host, None)
        self.named.pop((host,), None)
        self.done = {hosts for hosts in self.done if host not in hosts}

    def surveying(self, tries: Mapping[str, Sequence[str]], own: str | None = None) -> None:
        """Whom each host will try to reach. `own`: the controller's host, if it is one of them."""
        self.tries, self.own = dict(tries), own

    def surveyed(self, host: str, number: int, failed: Mapping[str, int | None], now_ns: int) -> list[Action]:
        """A host has tried; `failed`: whom it did not reach, and the error number (None: no answer)."""
        if number == self.number and self.state == "collecting":
            self.answers[host] = dict(failed)
        return self.tick(now_ns)

    def slow(self, facts: dict[str, Any]) -> list[Action]:
        """Some connections are slow (`slowness`): asked about at once, unless something worse is under way."""
        if self.state != "quiet":
            return []
        self.state, self.is_of_slow, self.asked = "asking", True, frozenset()
        return [Ask(facts)]

    def answered(self, now_ns: int) -> list[Action]:
        """The diagnosis has ended."""
        self.state = "quiet"
        known = self.asked | {host for each in self.done if len(each) == 1 for host in each}
        self.missing = {host: since_ns for host, since_ns in self.missing.items() if host not in known}
        return self._begin(now_ns)

    def tick(self, now_ns: int) -> list[Action]:
        """Time has passed."""
        return [*self._leave_out(now_ns), *self._ask(now_ns)]

    def _leave_out(self, now_ns: int) -> list[Action]:
        self.named = {hosts: named for hosts, named in self.named.items() if self.is_down(*hosts)}
        due = [hosts for hosts, (_, due_ns) in self.named.items() if now_ns >= due_ns]
        return [LeaveOut(hosts, self.named.pop(hosts)[0]) for hosts in due]

    def _ask(self, now_ns: int) -> list[Action]:
        if self.state != "collecting":
            return []
        if now_ns < self.began_ns + self._limit_ns():
            return []
        self.state, self.is_of_slow = "asking", False
        facts = self._facts(now_ns)
        unheard = {other for _, other, heard in facts["said"] if not heard}
        self.asked = frozenset({*self.missing, *unheard, *(loss.there for loss in self.losses.values())})
        self.done |= {frozenset((loss.here, loss.there)) for loss in self.losses.values()}
        return [Ask(facts)]

    def deadline_ns(self) -> int | None:
        """When `tick` is due."""
        times = [due_ns for _, due_ns in self.named.values()]
        if self.state == "collecting":
            times.append(self.began_ns + self._limit_ns())
        return min(times, default=None)

    def is_down(self, *hosts: str) -> bool:
        """Is a link of this host down, or, of two, one between them?"""
        return any({*hosts} <= {loss.here, loss.there} for loss in self.losses.values())

    def located(self, record: Mapping[str, Any]) -> None:
        """What was found (`ckpt.diagnosis.jobs`). What is said of hosts at fault further is no news."""
        self.done |= {frozenset((host,)) for host in record["hosts"]}
        alone: list[tuple[str, ...]] = [(str(host),) for host in record["hosts"]]
        patience_ns = self.patience_ns
        between = tuple(map(str, record["between"]))
        if not (alone or between):
            between, patience_ns = self._only_pair(), 2 * self.patience_ns + UNDECIDED_NS
        for hosts in alone or [between]:
            since_ns = [
                loss.came_ns - loss.silent_ns
                for loss in self.losses.values()
                if hosts and {*hosts} <= {loss.here, loss.there}
            ]
            if since_ns and not self.gone & {*hosts}:
                self.named[hosts] = str(record["text"]), min(since_ns) + patience_ns

    def _only_pair(self) -> tuple[str, ...]:
        """The two hosts between which all losses are; (): there are others, or none."""
        pairs = {frozenset((loss.here, loss.there)) for loss in self.losses.values()}
        return tuple(sorted(pairs.pop())) if len(pairs) == 1 else ()

    def lost(self, now_ns: int) -> list[dict[str, Any]]:
        """The errors that there are now, one for each pair of hosts and each direction."""
        found = {
            (loss.here, loss.there): {
                "here": loss.here,
                "there": loss.there,
                "error": loss.error,
                "age_s": round((now_ns - loss.came_ns + loss.silent_ns) / 1e9, 3),
                **({"accepts": True} if loss.accepts else {}),
            }
            for loss in self.losses.values()
        }
        return list(found.values())

    # ---- inside ------------------------------------------------------------------------------------------

    def _limit_ns(self) -> int:
        """So long answers are waited for: all have answered, but for fewer that none of these reaches, and that will not
        answer; all but some that the controller's host does not reach; or others are missing."""
        left = self.tries.keys() - self.answers.keys()
        unreached = {host for failed in self.answers.values() for host in failed}
        reached = {
            host
            for each, failed in self.answers.items()
            for host in self.tries.get(each, ())
            if host not in failed
        }
        if not left or (len(left) < len(self.answers) and left <= unreached - reached):
            return COLLECT_NS
        return UNREACHED_NS if left <= self.answers.get(self.own or "", {}).keys() else SURVEY_NS

    def _drop(self) -> list[Action]:
        if self.state != "collecting" or self.losses or self.missing:
            return []
        self.state = "quiet"
        return [Drop()]

    def _begin(self, now_ns: int) -> list[Action]:
        if not self._is_news():
            return []
        given_up = [Drop()] if self.state == "asking" and self.is_of_slow else []
        if self.state != "quiet" and not given_up:
            return []
        return [*given_up, self._survey(now_ns)]

    def _survey(self, now_ns: int) -> Survey:
        self.state, self.began_ns = "collecting", now_ns
        self.number += 1
        self.answers.clear()
        self.tries.clear()
        return Survey(self.number, tuple(sorted(self.missing)))

    def _is_news(self) -> bool:
        single = {host for each in self.done if len(each) == 1 for host in each}
        single |= self.gone
        return bool(self.missing) or any(
            frozenset((loss.here, loss.there)) not in self.done and not {loss.here, loss.there} & single
            for loss in self.losses.values()
        )

    def _facts(self, now_ns: int) -> dict[str, Any]:
        return {
            "said": [
                # who refuses a connection has a network that works
                [host, other, other not in failed or failed[other] in _REFUSALS]
                for host, failed in sorted(self.answers.items())
                for other in self.tries.get(host, ())
            ],
            "lost": self.lost(now_ns),
            "missing": sorted(self.missing),
        }


def which_goes(hosts: Sequence[str], losses: LinkFailures, slots_without: Callable[[str], int]) -> str | None:
    """The host that is to get no ranks any more; None: all stay. `slots_without`: how many slots the others have.

    A host at fault goes, if another one is there. Of two that only do not reach each other neither is at fault; but ranks on
    both would wait for ever: so the one with fewer ranks goes, where the others have room.
    """
    if len(hosts) == 1:
        return hosts[0] if slots_without(hosts[0]) > 0 else None
    ranks = {host: sum(at == host for at in losses.hosts.values()) for host in hosts}
    roomy = [host for host in hosts if slots_without(host) >= len(losses.hosts)]
    return min(roomy, key=lambda host: (ranks[host], host), default=None)
