"""What ranks and hosts say of links that are down, and when that is to be diagnosed. Pure.

    quiet ──a link is down · a host is lost──▶ collecting ──all hosts have answered · SURVEY_NS──▶ asking ──answer──▶ quiet
                                                  └──all that was lost is explained (a new incarnation)──▶ quiet

Rules
- One diagnosis at a time. Many errors at once are one; a pair of hosts that is down is diagnosed once, until it is up again
  or the ranks are started anew.
- While collecting every host is asked, once, whom it reaches: these are the witnesses (`ckpt.diagnosis.witnesses`).
- Reports of another incarnation than the present one say nothing: those ranks have been ended.
- A rank whose process has ended (its agent says so) is no loss of the network.

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
    "Losses",
    "Survey",
    "to_leave_out",
]

COLLECT_NS = 300_000_000
SURVEY_NS = 1_500_000_000
SURVEY_LIMIT_S = 0.5
"""So long a host tries to reach the others, twice."""

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


Action = Survey | Ask | Drop


@dataclass
class Loss:
    """A rank that another one cannot reach, as it was said."""

    here: str
    there: str
    error: str
    peer: int
    came_ns: int
    silent_ns: int


@dataclass
class Losses:
    """All losses of one job."""

    state: State = "quiet"
    incarnation: int = -1
    hosts: dict[int, str] = field(default_factory=dict)
    losses: dict[tuple[int, int], Loss] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    """Hosts that are lost, and since when."""
    done: set[frozenset[str]] = field(default_factory=set)
    """Pairs of hosts, and single hosts, that were diagnosed."""
    number: int = 0
    began_ns: int = 0
    tries: dict[str, Sequence[str]] = field(default_factory=dict)
    answers: dict[str, Mapping[str, int | None]] = field(default_factory=dict)

    # ---- what happens ------------------------------------------------------------------------------------

    def started(self, rank: int, incarnation: int, host: str) -> list[Action]:
        """A rank was started on a host."""
        actions: list[Action] = []
        if incarnation > self.incarnation:
            self.incarnation = incarnation
            self.hosts.clear()
            self.losses.clear()
            self.done = {each for each in self.done if len(each) == 1}
            if self.state == "collecting" and not self.missing:
                self.state = "quiet"
                actions.append(Drop())
        self.hosts[rank] = host
        return actions

    def died(self, rank: int, incarnation: int) -> list[Action]:
        """The process of a rank has ended: it is known why nobody reaches it."""
        if incarnation == self.incarnation:
            for pair in [pair for pair, loss in self.losses.items() if loss.peer == rank]:
                del self.losses[pair]
        if self.state == "collecting" and not self.losses and not self.missing:
            self.state = "quiet"
            return [Drop()]
        return []

    def down(
        self, rank: int, incarnation: int, peer: int, kind: str, silent_ns: int, now_ns: int
    ) -> list[Action]:
        """A rank says that it cannot reach another one."""
        if incarnation != self.incarnation or rank not in self.hosts or peer not in self.hosts:
            return []
        here, there = self.hosts[rank], self.hosts[peer]
        self.losses[rank, peer] = Loss(here, there, kind, peer, now_ns, silent_ns)
        return self._begin(now_ns)

    def up(self, rank: int, incarnation: int, peer: int) -> None:
        """It can again."""
        if incarnation == self.incarnation:
            loss = self.losses.pop((rank, peer), None)
            if loss is not None:
                self.done.discard(frozenset((loss.here, loss.there)))

    def host_lost(self, host: str, now_ns: int) -> list[Action]:
        """A host is given up."""
        if frozenset((host,)) in self.done:
            return []  # for what was found
        self.missing[host] = now_ns
        return self._begin(now_ns)

    def surveying(self, tries: Mapping[str, Sequence[str]]) -> None:
        """Whom each host will try to reach."""
        self.tries = dict(tries)

    def surveyed(self, host: str, number: int, failed: Mapping[str, int | None], now_ns: int) -> list[Action]:
        """A host has tried; `failed`: whom it did not reach, and the error number (None: no answer)."""
        if number == self.number and self.state == "collecting":
            self.answers[host] = dict(failed)
        return self.tick(now_ns)

    def slow(self, facts: dict[str, Any]) -> list[Action]:
        """Some connections are slow (`slowness`): asked about at once, unless something worse is under way."""
        if self.state != "quiet":
            return []
        self.state = "asking"
        return [Ask(facts)]

    def answered(self, now_ns: int) -> list[Action]:
        """The diagnosis has ended."""
        self.state = "quiet"
        self.missing.clear()
        return self._begin(now_ns)

    def tick(self, now_ns: int) -> list[Action]:
        """Time has passed."""
        if self.state != "collecting" or now_ns < self.began_ns + COLLECT_NS:
            return []
        if self.answers.keys() < self.tries.keys() and now_ns < self.began_ns + SURVEY_NS:
            return []
        self.state = "asking"
        facts = self._facts(now_ns)
        self.done |= {frozenset((loss.here, loss.there)) for loss in self.losses.values()}
        self.done |= {frozenset((host,)) for host in self.missing}
        return [Ask(facts)]

    def deadline_ns(self) -> int | None:
        """When `tick` is due."""
        if self.state != "collecting":
            return None
        is_complete = self.answers.keys() >= self.tries.keys()
        return self.began_ns + (COLLECT_NS if is_complete else SURVEY_NS)

    def is_down(self, *hosts: str) -> bool:
        """Is a link of this host down, or, of two, one between them?"""
        return any({*hosts} <= {loss.here, loss.there} for loss in self.losses.values())

    def at_fault(self, hosts: Sequence[str]) -> None:
        """These were found at fault: what is said of them further is no news."""
        self.done |= {frozenset((host,)) for host in hosts}

    # ---- inside ------------------------------------------------------------------------------------------

    def _begin(self, now_ns: int) -> list[Action]:
        if self.state != "quiet" or not self._is_news():
            return []
        self.state, self.began_ns = "collecting", now_ns
        self.number += 1
        self.answers.clear()
        self.tries.clear()
        return [Survey(self.number, tuple(sorted(self.missing)))]

    def _is_news(self) -> bool:
        single = {host for each in self.done if len(each) == 1 for host in each}
        return any(host not in single for host in self.missing) or any(
            frozenset((loss.here, loss.there)) not in self.done and not {loss.here, loss.there} & single
            for loss in self.losses.values()
        )

    def _facts(self, now_ns: int) -> dict[str, Any]:
        lost = {
            (loss.here, loss.there): {
                "here": loss.here,
                "there": loss.there,
                "error": loss.error,
                "age_s": round((now_ns - loss.came_ns + loss.silent_ns) / 1e9, 3),
            }
            for loss in self.losses.values()
        }
        return {
            "said": [
                # who refuses a connection has a network that works
                [host, other, other not in failed or failed[other] in _REFUSALS]
                for host, failed in sorted(self.answers.items())
                for other in self.tries.get(host, ())
            ],
            "lost": list(lost.values()),
            "missing": sorted(self.missing),
        }


def to_leave_out(
    record: Mapping[str, Any], losses: Losses, slots_without: Callable[[str], int]
) -> dict[str, str]:
    """Host → reason, for those that are to get no ranks any more. `slots_without`: how many slots the others have.

    A host at fault goes, if a link of it is down still and another host is there. Of two that only do not reach each other
    neither is at fault; but ranks on both would wait for ever: so one goes where the others have room.
    """
    found = {
        host: str(record["text"])
        for host in record["hosts"]
        if losses.is_down(host) and slots_without(host) > 0
    }
    between = [str(host) for host in record["between"]]
    if found or len(between) != 2 or not losses.is_down(*between):
        return found
    ranks = {host: sum(at == host for at in losses.hosts.values()) for host in between}
    for host in sorted(between, key=lambda host: (ranks[host], host)):
        if slots_without(host) >= len(losses.hosts):
            return {host: f"{record['text']}; one of them is left out"}
    return {}
