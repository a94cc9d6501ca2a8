"""The event log of a job, summarised: used numbers, processes, rounds, pauses, the end of the job. Pure.

A restart needs `highest_epoch`, `incarnation` and the processes to fence; `ckpt status` needs all of it. A line that is
incomplete, or has fields of another type (a newer version), is ignored; the other lines count.
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
    """A process in the log. `ticks`: its start time in clock ticks since boot; a later process with the pid has another."""

    pid: int
    ticks: int
    mark: str = ""  # of an agent: see `ckpt.controller.launch.strays`


@dataclass(slots=True)
class Wait:
    """Time from the command to take an image until the capture, in ms; `reason` and `where`: of the last refusal, if any.

    `captured` False: the round was aborted before the capture, so the wait would have been longer.
    """

    epoch: int
    ms: float
    reason: str = ""
    where: str = ""
    captured: bool = True


@dataclass(slots=True)
class RankHistory:
    """One rank. Times are in milliseconds. `refused_rounds`: the number of rounds in which it once could not be captured."""

    pid: int | None = None
    incarnation: int | None = None
    pauses_ms: list[float] = field(default_factory=list)  # may have the newest only
    pauses: int = 0
    pause_max_ms: float | None = None
    deaths: int = 0
    finished: int | None = None
    failed: bool = False  # the rank is dead, and the job went on without it
    absent: int = -1  # the last incarnation that began without the rank, which was dead before its line
    refused_rounds: int = 0
    longest_wait: Wait | None = None
    refusal: Line | None = None  # the last refusal in the open round


@dataclass(slots=True)
class History:
    """The whole log, summarised."""

    highest_epoch: int = 0
    incarnation: int = -1  # the highest number used; -1: none
    committed: dict[int, Line] = field(default_factory=dict)
    aborted: dict[int, str] = field(default_factory=dict)
    commits: int = 0  # number of all commits; `committed` and `aborted` may have the newest only
    burnt: int = 0
    open_round: int | None = None
    round_started_ns: int = 0  # on the clock of the log
    outcome: Line | None = (
        None  # the last job-finished or job-interrupted, unless an agent or rank was started since
    )
    restarts: int = 0
    agent: Process | None = None
    processes: list[Process] = field(default_factory=list)  # ranks of the newest incarnation
    ranks: dict[int, RankHistory] = field(default_factory=dict)
    fault: Line | None = None  # the last fault-located
    lease_s: float = 0.0  # of the hosts of the last controller; 0: it had none
    engine: Line | None = None  # the event `engine` of the last controller
    starts: int = 0  # of controllers since the last commit
    lines: int = 0
    result_reported: bool = False  # a `ckpt restart` has reported the outcome
    # Epoch -> changes of files since, which cannot be undone
    uncovered: dict[int, int] = field(default_factory=dict)
    shared: Line | None = None  # the event `files-shared` of the last controller
    compared: list[int] = field(default_factory=list)  # epochs whose memory replicas have compared
    distrusted: list[int] = field(default_factory=list)  # epochs that may hold an error of a replica

    @property
    def failed(self) -> frozenset[int]:
        """The ranks of the newest incarnation that are dead, and without which the job has gone on."""
        now = self.incarnation
        died = {rank for rank, each in self.ranks.items() if each.failed and each.incarnation == now}
        return self.absent | died

    @property
    def absent(self) -> frozenset[int]:
        """The ranks without which the newest incarnation has begun: the line that it resumed from has no image of them."""
        return frozenset(rank for rank, each in self.ranks.items() if each.absent == self.incarnation >= 0)


def finished_code(history: History) -> int | None:
    """The program's exit code, if the job ended by itself; None: the job has not ended, or was stopped or interrupted."""
    outcome = history.outcome
    if outcome is None or outcome["event"] != "job-finished" or outcome.get("kind", "finished") != "finished":
        return None
    code = outcome.get("exit_code")
    return code if isinstance(code, int) else None


def summarise(lines: Iterable[Line]) -> History:
    """Summarise a log. `lines`: from its beginning."""
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
                continue  # a field is missing, or has another type: ignore the line
    return history


CONTINUED: Final = "continued"
_NEWEST_KEPT: Final = 100
_PAUSES_KEPT: Final = 1000


def dump(history: History) -> dict[str, Any]:
    """The fields of the line `continued`, with which a log begins that replaces an older one. Their size is bounded."""
    fields = asdict(history)
    for name in ("committed", "aborted"):
        newest = sorted(fields[name])[-_NEWEST_KEPT:]
        fields[name] = {str(epoch): fields[name][epoch] for epoch in newest}
    fields["compared"] = fields["compared"][-_NEWEST_KEPT:]
    fields["uncovered"] = {str(epoch): count for epoch, count in fields["uncovered"].items()}
    fields["ranks"] = {str(rank): values for rank, values in fields["ranks"].items()}
    for values in fields["ranks"].values():
        values["pauses_ms"] = values["pauses_ms"][-_PAUSES_KEPT:]
    return {"history": fields}


def _restore(line: Line) -> History:
    """The inverse of `dump`. Fields that this version does not know are ignored."""
    fields = dict(line["history"])
    ranks = {int(rank): _ranks_history(values) for rank, values in fields.pop("ranks").items()}
    agent, processes = fields.pop("agent"), fields.pop("processes")
    history = History(**{name: value for name, value in fields.items() if name in names(History)})
    history.committed = {int(epoch): value for epoch, value in history.committed.items()}
    history.aborted = {int(epoch): value for epoch, value in history.aborted.items()}
    history.uncovered = {int(epoch): count for epoch, count in history.uncovered.items()}
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
    elif name == "controller":
        if not line.get("adopts"):
            history.lease_s, history.engine = 0.0, None
        history.shared = None
        history.starts += 1
    elif name == "engine":
        history.engine = line
        history.lease_s = max(history.lease_s, float(line.get("lease_s", 0.0)))
    elif name == "waiting-for-leases" and history.engine is not None and "generation" in line:
        # Its ranks are the last ones still
        history.engine = {
            **history.engine,
            "generation": line["generation"],
            "unclaimed": bool(line.get("adopts")),  # it may have renewed leases, and may live somewhere
        }
    elif name == "host-joined":
        history.lease_s = max(history.lease_s, float(line["lease_s"]))
    elif name == "files-not-covered" and isinstance(epoch, int):
        history.uncovered[epoch] = history.uncovered.get(epoch, 0) + 1
    elif name == "files-shared":
        history.shared = line
    elif name in ("files-put-back", "files-given-up"):
        history.uncovered.clear()
    elif name == "memory-compared" and isinstance(epoch, int) and line.get("verified") is True:
        history.compared.append(epoch)
    elif name == "lines-distrusted":
        history.distrusted += [each for each in line["epochs"] if isinstance(each, int)]
    elif name == "fault-located":
        history.fault = line
    elif name == "rank-died":
        _rank(history, line).deaths += 1
    elif name == "continuing":
        _rank(history, line).failed = True
    elif name == "rank-absent":
        _rank(history, line).absent = int(line["incarnation"])
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
        history.starts = 0
        history.uncovered = {since: count for since, count in history.uncovered.items() if since >= epoch}
    if name in ("round-aborted", "committed") and history.open_round == epoch:
        history.open_round = None


def _take_wait(rank: RankHistory, epoch: int, waited_ms: float, *, captured: bool) -> None:
    """The wait for one image is over: keep it if it is the longest."""
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
