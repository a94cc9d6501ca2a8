"""The options of `ckpt run` for redundant ranks, and which other options do not go with them.

Not here: what they do (`ckpt.controller.replicas`, `ckpt.redundancy`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.controller.errors import NoSuchJob, UsageError

if TYPE_CHECKING:
    from ckpt.store import JobDirectory

_REPLICAS_MAX = 3


def replicas(text: str) -> int:
    """The number of processes for each rank. Raises argparse.ArgumentTypeError for what is none, or not supported."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if not 1 <= value <= _REPLICAS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text}: 3 (the odd one of three is found), 2 (a difference is found) or 1 (none)"
        )
    return value


def add_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--redundancy",
        type=replicas,
        default=1,
        metavar="N",
        help="compute every rank in N processes and compare what they send, print and return: 2 or 3 (default 1)",
    )
    run.add_argument(
        "--compare",
        choices=("late", "sender", "receiver"),
        help="with --redundancy: when messages are compared; late: while the program goes on (the default)",
    )


def check_restart(job: JobDirectory) -> None:
    """Raise NoSuchJob for a job that has no checkpoints, by its kind."""
    if job.options.get("redundancy", 1) > 1:
        raise NoSuchJob(
            f"{job.path}: a job with --redundancy has no checkpoints to go on from; `ckpt run` starts it"
        )


def check(arguments: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go with ``--redundancy``."""
    if arguments.redundancy == 1:
        if arguments.compare is not None:
            raise UsageError("--compare says how replicas are compared: give --redundancy 2 or 3, too")
        return
    if arguments.compare in ("sender", "receiver"):
        raise UsageError(f"--compare {arguments.compare} is not there yet: only late is")
    no_lines = "there are no checkpoints under --redundancy yet"
    refused = {
        "--every": (arguments.every is not None, no_lines),
        "--time-limit": (arguments.time_limit is not None, f"{no_lines}, and none to stop with"),
        "--checkpoint-on-signal": (arguments.checkpoint_on_signal, no_lines),
        "--resume auto": (arguments.resume == "auto", no_lines),
        "--explicit": (arguments.explicit, no_lines),
        "--on-failure continue": (
            arguments.on_failure == "continue",
            "the program is not told of a dead replica: the others compute its rank",
        ),
        "--files": (arguments.files is not None, "a program with replicas may not write files"),
        "--hosts": (arguments.hosts is not None, "replicas are processes of one host yet"),
        "--engine": (arguments.engine not in (None, "local"), "replicas are processes of one host yet"),
        "--hostfile": (arguments.hostfile is not None, "replicas are processes of one host yet"),
    }
    for name, (given, why) in refused.items():
        if given:
            raise UsageError(f"--redundancy {arguments.redundancy} and {name}: {why}")


_EVENTS = ("replica-differs", "replica-lost", "leader-changed", "cluster-unverified", "result-compared")


def describe(job: JobDirectory, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """For `ckpt status`: the number of replicas, and what has become of them; None: the job has none."""
    replicas = job.options.get("redundancy", 1)
    if replicas == 1:
        return None
    kept = [
        {name: value for name, value in event.items() if name != "ns"}
        for event in events
        if event["event"] in _EVENTS
    ]
    return {"replicas": replicas, "events": kept}


def render(found: Mapping[str, Any] | None) -> list[str]:
    """The same for people."""
    if found is None:
        return []
    lines = [f"replicas   {found['replicas']} of each rank; process {found['replicas']}·rank + replica"]
    for event in found["events"]:
        when = str(event["t"])[11:19]
        match event["event"]:
            case "result-compared":
                state = "verified" if event["verified"] else "not verified"
                lines.append(
                    f"           {when} {event['compared']} messages compared; the result is {state}"
                )
            case "replica-differs":
                lines.append(f"           {when} {_differs(event)}")
            case _:
                lines.append(f"           {when} {event['event']}: {event.get('reason')}")
    return lines


def _differs(event: Mapping[str, Any]) -> str:
    if event["replica"] is None:
        return f"replica-differs: {event.get('reason')}"
    who = f"replica {event['replica']} of rank {event['rank']}"
    place = f" (pid {event['pid']}, {event['host']})" if event.get("pid") else ""
    number = f" (number {event['first']})" if "first" in event else ""
    return f"replica-differs: {who}{place} in {event['what']}{number}"
