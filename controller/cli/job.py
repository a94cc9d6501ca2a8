"""`ckpt checkpoint`, `ckpt stop`, `ckpt status`: questions to the controller of a running job.

For a job that does not run any more, `status` prints how it ended, from the event log alone.
"""

from __future__ import annotations

import argparse
import os
from signal import SIGTERM
from typing import TYPE_CHECKING, Any

from ckpt.controller.cli import redundancy
from ckpt.controller.cli.common import find_job, show, size_text
from ckpt.controller.cli.hosts import notes
from ckpt.controller.errors import EXIT_DAMAGED, EXIT_FAILURE, EXIT_NO_SUCH_JOB, EXIT_OK, NoSuchJob
from ckpt.controller.launch.whereabouts import agent_lives, clear, location_of, runtime_of
from ckpt.controller.service.clients import ask
from ckpt.controller.supervision import past
from ckpt.controller.supervision.history import History
from ckpt.transport.records import asdict

if TYPE_CHECKING:
    from ckpt.store import JobDirectory

_STATUS_PATIENCE_S = 3.0


def checkpoint(arguments: argparse.Namespace) -> int:
    """Exit code 1 when the checkpoint was not committed; the reason is printed."""
    job = _open(arguments)
    question = {"do": "checkpoint", "wait": not arguments.no_wait, "stop": arguments.stop}
    answer = _ask(job, question)
    if not answer["ok"]:
        show(answer, f"no checkpoint: {answer.get('reason')}", as_json=arguments.json)
        return EXIT_FAILURE
    if arguments.no_wait:
        show(answer, "asked for", as_json=arguments.json)
        return EXIT_OK
    if "epoch" not in answer:
        show({**answer, "ok": False}, f"no checkpoint: {answer.get('reason')}", as_json=arguments.json)
        return EXIT_FAILURE
    stopped = ", stopped" if arguments.stop else ""
    text = (
        f"epoch {answer['epoch']}: committed in {answer['ms']:.0f} ms, {size_text(answer['bytes'])}{stopped}"
    )
    show(answer, text, as_json=arguments.json)
    return EXIT_OK


def stop(arguments: argparse.Namespace) -> int:
    """Exit code 1 when a last checkpoint was asked for and failed."""
    job = _open(arguments)
    try:
        answer = _ask(job, {"do": "stop", "checkpoint": arguments.checkpoint})
    except NoSuchJob as error:
        answer = _stop_without_controller(job, error, checkpoint=arguments.checkpoint)
    show(answer, f"stopped: {answer['reason']}", as_json=arguments.json)
    return EXIT_FAILURE if arguments.checkpoint and "epoch" not in answer else EXIT_OK


def _stop_without_controller(job: JobDirectory, why: NoSuchJob, *, checkpoint: bool) -> dict[str, Any]:
    """End the ranks that an earlier controller has left behind. NoSuchJob when there are none that are ours to end."""
    if location_of(job)[1] in ("elsewhere", "copied"):
        raise why
    if checkpoint and agent_lives(job):
        raise NoSuchJob(
            "the ranks run without a controller, and without one there is no checkpoint; nothing was stopped. "
            "`ckpt restart` takes over from the last checkpoint; `ckpt stop` without --checkpoint ends them"
        )
    with job.lock() as lock:
        history, _ = past.known(job, lock.record)
        ended = clear(job, lock, history, None)
        lock.clear_location()
        if not ended:
            raise NoSuchJob("the job is not running: nothing of it is left (`ckpt restart` goes on with it)")
        reason, code = "stopped by `ckpt stop`; its controller was gone", 128 + SIGTERM
        job.events.append("job-finished", exit_code=code, reason=reason, kind="stopped")
    return {"ok": True, "exit_code": code, "reason": reason}


def _ask(job: JobDirectory, question: dict[str, Any], limit_s: float | None = None) -> dict[str, Any]:
    """The answer of the job's controller, wherever it is. Raises NoSuchJob, TimeoutError."""
    location, relation = location_of(job)
    if location is None or not location.contact or relation not in ("elsewhere", "hidden"):
        return ask(runtime_of(job), question, limit_s)
    from ckpt.controller.hosts.link import ask as ask_from_afar

    try:
        return ask_from_afar(location.contact, job.key, question, limit_s)
    except NoSuchJob as error:
        where = f"the job is on host {location.host} (pid {location.pid}), or was when that was last heard of"
        raise NoSuchJob(
            f"{where}: {error}. `ckpt restart` goes on with it, if that controller has ended"
        ) from error


def _open(arguments: argparse.Namespace) -> JobDirectory:
    from ckpt.store import JobDirectory

    return JobDirectory.open(find_job(arguments.job))


def status(arguments: argparse.Namespace) -> int:
    """Print what the job does, or how it ended."""
    job = _open(arguments)
    history, trouble = past.known(job, job.record())
    past.add_lines(job, history)
    location, relation = location_of(job)
    try:
        live: dict[str, Any] | None = _ask(job, {"do": "status"}, _STATUS_PATIENCE_S)
    except NoSuchJob:
        live = None
    except TimeoutError:
        live = {"phase": "does not answer", "ranks": [], "round": None}
    away = location is not None and relation == "elsewhere" and live is None and history.outcome is None
    fields = describe(job, history, live)
    if trouble is not None:
        fields["log"] = str(trouble)
        if fields["state"] == "gone":
            fields["state"] = "unknown: it does not run, and the event log cannot be read"
    if location is not None and live is None and history.outcome is None:
        fields["host"] = location.host
        if away:
            fields["state"] = f"on host {location.host} when last heard of: ask there"
        elif relation == "copied":
            fields["state"] = f"a copy of {location.path}, not running"
    show(fields, render(fields), as_json=arguments.json)
    if trouble is not None:
        return EXIT_DAMAGED
    return EXIT_NO_SUCH_JOB if away else EXIT_OK


def describe(job: JobDirectory, history: History, live: dict[str, Any] | None) -> dict[str, Any]:
    """The status as JSON: `state`, numbers, lines, ranks, and `live` (None unless a controller answers)."""
    return {
        "ok": True,
        "job": job.path,
        "id": job.job_id,
        "command": job.command,
        "size": job.size,
        "state": _state(job, history, live),
        "outcome": history.outcome,
        "incarnation": history.incarnation,
        "restarts": history.restarts,
        "committed": max(history.committed, default=None),
        "commits": history.commits,
        "burnt_rounds": history.burnt,
        "burnt": {str(epoch): reason for epoch, reason in history.aborted.items()},
        "last_commit": history.committed[max(history.committed)] if history.committed else None,
        "ranks": [
            {
                "rank": rank,
                "pid": record.pid,
                "incarnation": record.incarnation,
                "deaths": record.deaths,
                "finished": record.finished,
                "failed": record.failed,
                "pauses": record.pauses,
                "pause_ms_median": _median(record.pauses_ms),
                "pause_ms_max": record.pause_max_ms,
                "refused_rounds": record.refused_rounds,
                "longest_wait": None if record.longest_wait is None else asdict(record.longest_wait),
            }
            for rank, record in sorted(history.ranks.items())
        ],
        "engine": history.engine,
        "files": _files(job, history, live),
        "redundancy": _redundancy(job),
        "fault": history.fault,
        "live": live,
    }


def _redundancy(job: JobDirectory) -> dict[str, Any] | None:
    from ckpt.store import StoreError

    try:
        return redundancy.describe(job, job.events.read().events)
    except StoreError:
        return None  # that the log cannot be read is said already


def _files(job: JobDirectory, history: History, live: dict[str, Any] | None) -> dict[str, Any]:
    """Which files go back with the program, the bound for copies of them and what is kept."""
    from ckpt.controller.cli.run import DEFAULTS
    from ckpt.undo.allowance import copied_bytes

    now = (live or {}).get("files") or {}
    asked = {
        name: now.get(name) or job.options.get(name) or DEFAULTS[name] for name in ("files", "files_limit")
    }
    try:
        copied: int | None = copied_bytes(os.path.join(job.path, "undo"))
    except FileNotFoundError:
        copied = 0
    except OSError:
        copied = None  # an interval goes at this moment, or a number is damaged
    records = [(rank.get("files") or {}).get("records") for rank in (live or {}).get("ranks", ())]
    known = [count for count in records if count is not None]
    return {
        "files": asked["files"],
        "limit_bytes": asked["files_limit"],
        "copied_bytes": copied,
        "records": sum(known) if known else None,
        "not_covered": sum(history.uncovered.values()),
        "not_covered_of_line": _not_covered_of_line(job),
        **_shared(history),
    }


def _shared(history: History) -> dict[str, Any]:
    """With ranks on several hosts: where the file systems are mounted that all hosts share, and directories on others."""
    if history.shared is None:
        return {}
    return {"shared": history.shared.get("shared"), "not_shared": history.shared.get("refused", {})}


def _not_covered_of_line(job: JobDirectory) -> int | None:
    """How many changes the newest line itself says not to be covered; None: it cannot be read."""
    from ckpt.store import StoreError, list_epochs, load_control

    try:
        return int(load_control(job).meta.get("not_covered", 0)) if list_epochs(job) else 0
    except (StoreError, TypeError, ValueError):
        return None


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _state(job: JobDirectory, history: History, live: dict[str, Any] | None) -> str:
    if live is not None:
        return str(live["phase"])
    if history.outcome is not None:
        return str(
            history.outcome.get("kind", "finished" if "exit_code" in history.outcome else "interrupted")
        )
    if agent_lives(job):
        return "without controller"
    # Hosts go on alone; whether they do, nobody can ask them.
    return f"without controller: {notes.alone(history.lease_s)}" if history.lease_s else "gone"


def render(fields: dict[str, Any]) -> str:
    """The status for people."""
    out = [f"job        {fields['job']} ({fields['size']} ranks: {' '.join(fields['command'])})"]
    outcome = fields["outcome"]
    how = f" ({outcome['reason']})" if outcome is not None and outcome.get("reason") else ""
    out.append(f"state      {fields['state']}{how}")
    last = fields["last_commit"]
    if last is None:
        out.append("committed  nothing yet")
    else:
        took = f", {last['ms']:.0f} ms" if "ms" in last else ""
        size = size_text(last.get("bytes", 0))
        out.append(f"committed  epoch {fields['committed']} ({size}{took}); {fields['commits']} in all")
    if fields["burnt"]:
        epoch, reason = list(fields["burnt"].items())[-1]
        out.append(f"burnt      {fields['burnt_rounds']}, the last: epoch {epoch}: {reason}")
    out.append(f"restarts   {fields['restarts']} (incarnation {fields['incarnation']})")
    if fields["engine"] is not None:
        out.append(f"engine     {notes.describe(fields['engine'])}")
    if "log" in fields:
        out.append(f"log        {fields['log']}")
    if fields["fault"] is not None:
        fault = fields["fault"]
        out.append(
            f"fault      {fault.get('text')} ({fault.get('t')}; all of it: ckpt diagnose {fields['job']})"
        )
    out += _render_files(fields["files"])
    out += _render_longest_wait(fields["ranks"])
    out += redundancy.render(fields["redundancy"])
    live = fields["live"] or {}
    current = live.get("round")
    if current is not None:
        out.append(f"round      epoch {current['epoch']}, open for {current['since_ms'] / 1000:.1f} s")
        out += [f"           rank {w['rank']} {w['what']}: {w['where']}" for w in current["waits_for"]]
    now = {rank["rank"]: rank for rank in live.get("ranks", ())}
    for rank in fields["ranks"]:
        out += _render_rank(rank, now.get(rank["rank"]))
    return "\n".join(out)


def _render_files(files: dict[str, Any]) -> list[str]:
    from ckpt.undo.selection.patterns import is_recorded, text_of

    if not is_recorded(files["files"]):
        return ["files      off: a restart leaves closed files as they are"]
    copied = "unknown" if files["copied_bytes"] is None else size_text(files["copied_bytes"])
    parts = [f"{text_of(files['files'])}; copies {copied} of {size_text(files['limit_bytes'])}"]
    if files["records"] is not None:
        parts.append(f"{files['records']} changes recorded since the last checkpoint")
    if files["not_covered"]:
        parts.append(f"{files['not_covered']} not covered (files-not-covered in the event log)")
    elif files["not_covered_of_line"]:
        parts.append(f"{files['not_covered_of_line']} not covered until the last checkpoint (`ckpt inspect`)")
    out = ["files      " + "; ".join(parts)]
    if files.get("shared") is not None:
        where = ", ".join(files["shared"]) or "none"
        out.append(
            f"           on file systems that all hosts share: {where}; what is on others stays as it is"
        )
        out += [f"           not in {path}: {reason}" for path, reason in files["not_shared"].items()]
    return out


def _render_longest_wait(ranks: list[dict[str, Any]]) -> list[str]:
    """How long an image has been waited for at most, and what made it wait."""
    waits = [(rank["longest_wait"], rank["rank"]) for rank in ranks if rank["longest_wait"] is not None]
    if not waits:
        return []
    wait, rank = max(waits, key=lambda pair: pair[0]["ms"])
    why = f": {wait['reason']}" if wait["reason"] else ""
    end = "" if wait["captured"] else ", in vain"
    refused = sum(rank["refused_rounds"] for rank in ranks)
    rounds = f"; {refused} refused for a while" if refused else ""
    return [
        f"waits      longest for an image {_time_text(wait['ms'])}{end} (epoch {wait['epoch']}, rank {rank}{why}){rounds}"
    ]


def _time_text(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


_ALWAYS_SHOWN = ("retransmitted", "duplicates")
"""Shown also if zero: no message was lost, and none arrived twice."""


def _render_rank(rank: dict[str, Any], now: dict[str, Any] | None) -> list[str]:
    parts = []
    if now is not None:
        parts.append(f"pid {now['pid']} at {now.get('where') or 'unknown'}")
        if not now["answers"]:
            parts.append("does not answer (busy in C code?)")
    elif rank["finished"] is not None:
        parts.append(f"finished with {rank['finished']}")
    if rank["pauses"]:
        median, longest = rank["pause_ms_median"], rank["pause_ms_max"]
        parts.append(f"{rank['pauses']} pauses, median {median:.1f} ms, longest {longest:.1f} ms")
    if now is not None and now.get("mode") == "sync":
        parts.append(f"waits while its images are written ({now.get('mode_reason')})")
    if now is not None and now.get("refused"):
        longest = _time_text(now.get("refused_longest_ns", 0) / 1e6)
        parts.append(f"refused {now['refused']} times, for {longest} at most")
    if rank["failed"]:
        parts.append("failed; the others go on without it")
    elif rank["deaths"]:
        parts.append(f"died {rank['deaths']} times")
    lines = [f"rank {rank['rank']:<5} " + "; ".join(parts)]
    lines += [f"           {text}" for text in (now or {}).get("says", ())]
    counters = {
        name: n
        for name, n in ((now or {}).get("counters") or {}).items()
        if isinstance(n, int) and (n or name in _ALWAYS_SHOWN)
    }
    if counters:
        lines.append("           " + ", ".join(f"{name} {n}" for name, n in counters.items()))
    return lines
