"""Decides how a job without a controller ends; its agent asks this. Pure.

The ranks go on as long as none has died. When all ranks have finished, or a rank has failed, the job is over and has an
exit code. When a rank was killed, the job is interrupted: no controller can restart it, so the agent ends the other ranks
too, and `ckpt restart` goes on from the last control file. SIGTERM ends the job in the same way. Where the program handles
failures itself (`tolerant`, option `--on-failure continue`), dead ranks count as finished, and the others go on.

    the ranks go on ──verdict──▶ released, or told to stop ──all have left, or the time is over──▶ the job has ended

Not here: what is sent to the ranks, and killing them (`agent`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Protocol

from ckpt.transport.records import dataclass

_STOP_GRACE_S = 1.0
_TERM_GRACE_S = 5.0


class RankFacts(Protocol):
    """What the agent knows about one rank; implemented by `forked.ForkedRank`."""

    @property
    def rank(self) -> int: ...
    @property
    def finished(self) -> int | None: ...
    @property
    def failed(self) -> int | None: ...
    @property
    def status(self) -> int | None: ...
    @property
    def is_alive(self) -> bool: ...
    @property
    def is_late(self) -> bool:
        """Was it started later, by the program (`--spares`)?"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The job is over. `exit_code` None: the job is interrupted. `release`: all ranks have finished, and each may leave."""

    exit_code: int | None
    reason: str
    release: bool = False


def judge(ranks: Iterable[RankFacts], *, tolerant: bool = False) -> Verdict | None:
    """How the job ends; None: the ranks go on."""
    known = list(ranks)
    dead = [rank.rank for rank in known if rank.status is not None and rank.finished is None]
    if tolerant and dead:
        known = [rank for rank in known if rank.rank not in dead or rank.failed]
        if not known:
            return Verdict(None, "all ranks have failed")
    for rank in known:
        if rank.failed or rank.finished:
            code = rank.failed or rank.finished
            return Verdict(code, f"rank {rank.rank} failed with exit code {code}")
        if rank.status is not None and rank.finished is None:
            return _left(rank.rank, rank.status)
    if known and all(rank.finished is not None for rank in known):
        if all(rank.is_late for rank in known):
            return Verdict(None, "all ranks have failed; what they had started has finished", release=True)
        but = f" but {', '.join(map(str, dead))}, which failed," if dead else ""
        return Verdict(0, f"all ranks{but} have finished", release=True)
    return None


def after_release(verdict: Verdict, ranks: Iterable[RankFacts], *, tolerant: bool = False) -> Verdict:
    """The verdict when all released ranks have left: a rank with another exit code than 0 has not written all its output."""
    for rank in ranks:
        if rank.status and (rank.status > 0 or not tolerant) and rank.finished is not None:
            return _left(rank.rank, rank.status)
    return verdict


def _left(rank: int, status: int) -> Verdict:
    if status > 0:
        return Verdict(status, f"rank {rank} left with exit code {status}")
    how = f"was killed by signal {-status}" if status < 0 else "left without finishing"
    return Verdict(None, f"rank {rank} {how}, and there was no controller")


class Ending:
    """The end of one job that has no controller. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.verdict: Verdict | None = None
        self._is_terminated = False
        self._kill_at_s = math.inf

    def terminate(self, now_s: float) -> None:
        """SIGTERM asks for the end of the job: ranks get some time."""
        self._is_terminated = True
        self.verdict = Verdict(None, "stopped by SIGTERM, and there was no controller")
        self._kill_at_s = now_s + _TERM_GRACE_S

    def begin(self, ranks: Iterable[RankFacts], now_s: float, *, tolerant: bool) -> Verdict | None:
        """The verdict, when it has just become known; else None."""
        if self.verdict is not None:
            return None
        self.verdict = judge(ranks, tolerant=tolerant)
        if self.verdict is not None and not self.verdict.release:
            self._kill_at_s = now_s + _STOP_GRACE_S
        return self.verdict

    def reason(self, ranks: Collection[RankFacts], now_s: float, *, tolerant: bool) -> str | None:
        """Why the job has ended; None: it has not. Ranks that still live are to be killed then."""
        if self.verdict is None:
            return None
        if not self._is_terminated and any(rank.is_alive and rank.failed for rank in ranks):
            self._kill_at_s = now_s + _STOP_GRACE_S  # it still flushes the program's files
        if any(rank.is_alive for rank in ranks) and now_s <= self._kill_at_s:
            return None
        if self.verdict.release:
            self.verdict = after_release(self.verdict, ranks, tolerant=tolerant)
        return self.verdict.reason
