"""What the event log of a job says: numbers already used, how it ended, what it cost. Pure.

A restart needs the first three (`highest_epoch`, `incarnation`, processes to fence), `ckpt status` all of
it. The log is read leniently: lines of a newer version, or half a line at the end, change nothing that can
be known without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Line = Mapping[str, Any]

_EPOCH_EVENTS = ("round-started", "round-aborted", "committed", "captured", "voted")
_OUTCOMES = ("job-finished", "job-interrupted")


@dataclass(slots=True)
class Process:
    """A process as the log knows it: `ticks` (start time) tells it from a later one with the same pid."""

    pid: int
    ticks: int


@dataclass(slots=True)
class RankHistory:
    """One rank. Times in milliseconds."""

    pid: int | None = None
    incarnation: int | None = None
    pauses_ms: list[float] = field(default_factory=list)
    deaths: int = 0
    finished: int | None = None


@dataclass(slots=True)
class History:
    """The whole log, summarised."""

    highest_epoch: int = 0
    incarnation: int = -1  # highest used; -1: none
    committed: dict[int, Line] = field(default_factory=dict)
    aborted: dict[int, str] = field(default_factory=dict)
    open_round: int | None = None
    outcome: Line | None = (
        None  # the last job-finished or job-interrupted, unless something was started since
    )
    restarts: int = 0
    agent: Process | None = None
    processes: list[Process] = field(default_factory=list)  # ranks of the newest incarnation
    ranks: dict[int, RankHistory] = field(default_factory=dict)
    lines: int = 0
    result_reported: bool = False  # the outcome was reported by a `ckpt restart`


def finished_code(history: History) -> int | None:
    """The program's exit code when the job came to its end by itself; None: there is more to do."""
    outcome = history.outcome
    if outcome is None or outcome["event"] != "job-finished" or outcome.get("kind", "finished") != "finished":
        return None
    code = outcome.get("exit_code")
    return code if isinstance(code, int) else None


def summarise(lines: Iterable[Line]) -> History:
    """Read a log from its beginning."""
    history = History()
    for line in lines:
        history.lines += 1
        name = line.get("event")
        if isinstance(name, str):
            _take(history, name, line)
    return history


def _take(history: History, name: str, line: Line) -> None:
    epoch = line.get("epoch")
    if name in _EPOCH_EVENTS and isinstance(epoch, int):
        history.highest_epoch = max(history.highest_epoch, epoch)
        _take_round(history, name, epoch, line)
    elif name == "agent-started":
        history.agent = Process(line["pid"], line.get("start_ticks", 0))
        history.outcome = None
    elif name == "rank-started":
        _take_start(history, line)
    elif name == "rank-died":
        _rank(history, line).deaths += 1
    elif name == "rank-finished":
        _rank(history, line).finished = line.get("exit_code")
    elif name == "restarting":
        history.restarts += 1
        history.open_round = None
    elif name == "result-reported":
        history.result_reported = True
    elif name in _OUTCOMES:
        history.result_reported = False
        history.outcome = line
        history.open_round = None


def _take_round(history: History, name: str, epoch: int, line: Line) -> None:
    if name == "round-started":
        history.open_round = epoch
    elif name == "captured":
        _rank(history, line).pauses_ms.append(line.get("pause_ns", 0) / 1e6)
    elif name == "round-aborted":
        history.aborted[epoch] = str(line.get("reason", ""))
    elif name == "committed":
        history.committed[epoch] = line
    if name in ("round-aborted", "committed") and history.open_round == epoch:
        history.open_round = None


def _take_start(history: History, line: Line) -> None:
    incarnation = int(line.get("incarnation", 0))
    if incarnation > history.incarnation:
        history.processes = []
    history.incarnation = max(history.incarnation, incarnation)
    history.processes.append(Process(line["pid"], line.get("start_ticks", 0)))
    rank = _rank(history, line)
    rank.pid, rank.incarnation, rank.finished = line["pid"], incarnation, None
    history.outcome = None


def _rank(history: History, line: Line) -> RankHistory:
    return history.ranks.setdefault(int(line.get("rank", -1)), RankHistory())
