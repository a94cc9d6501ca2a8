"""The roster: what the agent of a host tells the next controller of its ranks, and whether that can go on with them. Pure.

    agent        what its ranks have said and were told ──▶ Roster.told ──▶ the next controller
    controller   rosters of all hosts ──▶ `adoptable`: the ranks, or why not, or not yet

Rules
- All ranks are adopted or none, and all have to be of the last incarnation that was started. Then the controller before
  this one had not ended its fencing (each host would have had to report its ranks as gone), and has started no later
  incarnation.
- Ranks of which one has ended, has failed, or was told to end, are not adopted: the job goes on from the last checkpoint.
- Where the program handles failures itself (`--on-failure continue`), a rank that has ended without a word is a failed rank:
  the others are adopted. It has ended if its host says so, or if the event log says that the job has gone on without it:
  nobody was told that before it had ended. One that runs all the same is a contradiction, and nothing is adopted.
- The next controller counts epochs from the highest one that any rank has heard of, whatever the event log says.

Not here: the lease, within which all that happens (`ckpt.controller.hosts`), what the ranks are told (`supervisor`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt.transport.records import dataclass

__all__ = ["Adopted", "AdoptedRank", "Roster", "adoptable"]

_ROUNDS = ("ask", "checkpoint", "captured", "voted")


@dataclass(frozen=True)
class AdoptedRank:
    """A rank that runs. `host`: the name of its host; `ticks`: when its process was started; `finished`: its exit code, if
    its program has ended."""

    host: str
    pid: int
    ticks: int
    address: str
    finished: int | None


@dataclass(frozen=True)
class Adopted:
    """All ranks of a job, which run. `epoch`: the highest one that any of them has heard of. `failed`: those that have
    ended, and without which the others go on."""

    incarnation: int
    epoch: int
    ranks: dict[int, AdoptedRank]
    failed: frozenset[int] = frozenset()


class Roster:
    """The ranks of one host."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Ranks are about to be started; those before have ended."""
        self.ranks: dict[int, dict[str, Any]] = {}
        self.unfit = ""  # why these ranks cannot be gone on with
        self.epoch = 0

    def sent(self, packet: Mapping[str, Any]) -> None:
        """The controller has sent this packet to ranks."""
        self._note_round(packet)
        if packet.get("m") == "stop":
            self.unfit = "the job was being stopped"

    def heard(self, event: Mapping[str, Any]) -> None:
        """An event of the host's fork server."""
        match event["e"]:
            case "started":
                self.ranks[event["rank"]] = {
                    "incarnation": event["incarnation"],
                    "pid": event["pid"],
                    "ticks": event["start_ticks"],
                    "address": None,
                    "finished": None,
                    "dead": False,
                }
            case "packet" if event["rank"] in self.ranks:
                self._packet(event["rank"], event["packet"])
            case "died" if self._pid(event["rank"]) == event["pid"]:
                if self.ranks[event["rank"]]["finished"] is None:
                    self.ranks[event["rank"]]["dead"] = True
                else:
                    self.unfit = _ended(event["rank"])

    def lost(self) -> None:
        """The fork server has ended, and the ranks with it."""
        self.unfit = "a fork server has ended"

    def _pid(self, rank: int) -> int | None:
        pid: int | None = self.ranks.get(rank, {}).get("pid")
        return pid

    def _packet(self, rank: int, packet: Mapping[str, Any]) -> None:
        self._note_round(packet)
        match packet["m"]:
            case "hello":
                self.ranks[rank]["address"] = packet["address"]
            case "finished" if not packet["exit_code"]:
                self.ranks[rank]["finished"] = 0
            case "finished" | "error":
                self.unfit = f"rank {rank} has failed"

    def _note_round(self, packet: Mapping[str, Any]) -> None:
        epoch = packet.get("epoch")
        if packet.get("m") in _ROUNDS and isinstance(epoch, int):
            self.epoch = max(self.epoch, epoch)

    def told(self) -> dict[str, Any]:
        """For the next controller: JSON."""
        ranks = [[rank, facts] for rank, facts in self.ranks.items()]
        return {"ranks": ranks, "unfit": self.unfit, "epoch": self.epoch}


def _ended(rank: int) -> str:
    return f"rank {rank} has ended"


def adoptable(
    size: int,
    rosters: Mapping[str, Mapping[str, Any]],
    incarnation: int,
    failed: frozenset[int] | None = None,
) -> Adopted | str | None:
    """All ranks; or why they cannot be gone on with; None: not all hosts have told of theirs.

    `rosters`: by host, what `Roster.told` has returned there. `incarnation`: the last one that was started, as far as the
    job directory says. `failed`: the ranks of that one without which the job has gone on, as far as it says; None: the job
    goes on without none.
    """
    ranks: dict[int, AdoptedRank] = {}
    incarnations, dead = set(), set()
    for host, roster in rosters.items():
        if roster["unfit"] and roster["ranks"]:
            return str(roster["unfit"])
        for rank, facts in roster["ranks"]:
            if rank in ranks or rank in dead:
                return f"rank {rank} is on two hosts"
            if facts["dead"] and failed is None:
                return _ended(rank)
            if facts["address"] is None:
                return f"rank {rank} was being started"
            incarnations.add(facts["incarnation"])
            if facts["dead"]:
                dead.add(rank)
                continue
            ranks[rank] = AdoptedRank(host, facts["pid"], facts["ticks"], facts["address"], facts["finished"])
    if len(incarnations) > 1 or any(each < incarnation for each in incarnations):
        return "ranks were being started again"
    if failed is not None and incarnations == {incarnation}:
        if runs := failed & ranks.keys():
            return f"rank {min(runs)} runs, and the job has gone on without it"
        dead |= failed
    if ranks.keys() | dead != set(range(size)):
        return None
    if not ranks:
        return "all ranks have ended"
    epoch = max(roster["epoch"] for roster in rosters.values())
    return Adopted(incarnations.pop(), epoch, ranks, frozenset(dead))
