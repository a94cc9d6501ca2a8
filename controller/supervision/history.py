"""What the event log of a job says: numbers already used, how it ended, what it cost. Pure.

A restart needs the first three (`highest_epoch`, `incarnation`, processes to fence), `ckpt status` all of
it. The log is read leniently: lines of a newer version, or half a line at the end, change nothing that can
be known without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ckpt.transport.records import asdict, dataclass, field, names

Line = Mapping[str, Any]

_EPOCH_EVENTS = ("round-started", "round-aborted", "committed", "captured", "voted", "refused")
_OUTCOMES = ("job-finished", "job-interrupted")


@dataclass(slots=True)
class Process:
    """A process as the log knows it: `ticks` (start time) tells it from a later one with the same pid."""

    pid: int
    ticks: int
    mark: str = ""  # of an agent: what its ranks have started is found by it


@dataclass(slots=True)
class Wait:
    """How long an image was waited for, from the command on; `reason` and `where` of the last refusal, if any.

    `captured` is false when the round was burnt meanwhile: the image would have taken longer still.
    """

    epoch: int
    ms: float
    reason: str = ""
    where: str = ""
    captured: bool = True


@dataclass(slots=True)
class RankHistory:
    """One rank. Times in milliseconds. `refused_rounds`: rounds in which it could not be captured for a while."""

    pid: int | None = None
    incarnation: int | None = None
    pauses_ms: list[float] = field(default_factory=list)  # the newest ones, in a log that was begun anew
    pauses: int = 0
    pause_max_ms: float | None = None
    deaths: int = 0
    finished: int | None = None
    failed: bool = False  # dead, and the job went on without it
    refused_rounds: int = 0
    longest_wait: Wait | None = None
    refusal: Line | None = None  # of the open round


@dataclass(slots=True)
class History:
    """The whole log, summarised."""

    highest_epoch: int = 0
    incarnation: int = -1  # highest used; -1: none
    committed: dict[int, Line] = field(default_factory=dict)
    aborted: dict[int, str] = field(default_factory=dict)
    commits: int = 0  # all; `committed` and `aborted` have the newest ones
    burnt: int = 0
    open_round: int | None = None
    round_started_ns: int = 0  # of the log's clock
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
            try:
                if name == CONTINUED:
                    history = _restore(line)
                    continue
                _take(history, name, line)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                continue  # a field is missing, or of another kind: as good as a line that is not there
    return history


CONTINUED: Final = "continued"
_NEWEST_KEPT: Final = 100
_PAUSES_KEPT: Final = 1000


def dump(history: History) -> dict[str, Any]:
    """The fields of the line that a log begins with which is not the job's first: bounded, however long the job was."""
    fields = asdict(history)
    for name in ("committed", "aborted"):
        newest = sorted(fields[name])[-_NEWEST_KEPT:]
        fields[name] = {str(epoch): fields[name][epoch] for epoch in newest}
    fields["ranks"] = {str(rank): values for rank, values in fields["ranks"].items()}
    for values in fields["ranks"].values():
        values["pauses_ms"] = values["pauses_ms"][-_PAUSES_KEPT:]
    return {"history": fields}


def _restore(line: Line) -> History:
    """The inverse of `dump`. What a newer version says beside is passed over."""
    fields = dict(line["history"])
    ranks = {int(rank): _ranks_history(values) for rank, values in fields.pop("ranks").items()}
    agent, processes = fields.pop("agent"), fields.pop("processes")
    history = History(**{name: value for name, value in fields.items() if name in names(History)})
    history.committed = {int(epoch): value for epoch, value in history.committed.items()}
    history.aborted = {int(epoch): value for epoch, value in history.aborted.items()}
    history.ranks = ranks
    history.agent = None if agent is None else Process(**agent)
    history.processes = [Process(**process) for process in processes]
    return history


def _ranks_history(values: Mapping[str, Any]) -> RankHistory:
    rank = RankHistory(**{name: value for name, value in values.items() if name in names(RankHistory)})
    if isinstance(rank.longest_wait, Mapping):
        rank.longest_wait = Wait(**rank.longest_wait)
    return rank


def _take(history: History, name: str, line: Line) -> None:
    epoch = line.get("epoch")
    if name in _EPOCH_EVENTS and isinstance(epoch, int):
        history.highest_epoch = max(history.highest_epoch, epoch)
        _take_round(history, name, epoch, line)
    elif name == "agent-started":
        history.agent = Process(line["pid"], line.get("start_ticks", 0), str(line.get("mark", "")))
        history.outcome = None
    elif name == "rank-started":
        _take_start(history, line)
    elif name == "rank-died":
        _rank(history, line).deaths += 1
    elif name == "continuing":
        _rank(history, line).failed = True
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
        history.round_started_ns = int(line.get("ns", 0))
        for each in history.ranks.values():
            each.refusal = None
    elif name == "refused":
        rank = _rank(history, line)
        rank.refused_rounds += rank.refusal is None
        rank.refusal = line
    elif name == "captured":
        rank = _rank(history, line)
        pause_ms = line.get("pause_ns", 0) / 1e6
        rank.pauses_ms.append(pause_ms)
        rank.pauses += 1
        rank.pause_max_ms = max(pause_ms, rank.pause_max_ms or 0.0)
        _take_wait(rank, epoch, line.get("waited_ns", 0) / 1e6, captured=True)
    elif name == "round-aborted":
        history.aborted[epoch] = str(line.get("reason", ""))
        history.burnt += 1
        waited_ms = (int(line.get("ns", 0)) - history.round_started_ns) / 1e6
        for each in history.ranks.values():
            if each.refusal is not None:
                _take_wait(each, epoch, waited_ms, captured=False)
    elif name == "committed":
        history.committed[epoch] = line
        history.commits += 1
    if name in ("round-aborted", "committed") and history.open_round == epoch:
        history.open_round = None


def _take_wait(rank: RankHistory, epoch: int, waited_ms: float, *, captured: bool) -> None:
    """The wait for one image is over."""
    refusal = rank.refusal or {}
    rank.refusal = None
    if rank.longest_wait is None or waited_ms > rank.longest_wait.ms:
        reason, where = str(refusal.get("reason", "")), str(refusal.get("where", ""))
        rank.longest_wait = Wait(epoch, waited_ms, reason, where, captured)


def _take_start(history: History, line: Line) -> None:
    incarnation = int(line.get("incarnation", 0))
    if incarnation > history.incarnation:
        history.processes = []
    history.incarnation = max(history.incarnation, incarnation)
    history.processes.append(Process(line["pid"], line.get("start_ticks", 0)))
    rank = _rank(history, line)
    rank.pid, rank.incarnation, rank.finished = line["pid"], incarnation, None
    rank.failed = False
    history.outcome = None


def _rank(history: History, line: Line) -> RankHistory:
    return history.ranks.setdefault(int(line.get("rank", -1)), RankHistory())
