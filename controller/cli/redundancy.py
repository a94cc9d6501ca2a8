"""The options of `ckpt run` for redundant ranks, and which other options do not go with them.

Not here: what they do (`ckpt.controller.replicas`, `ckpt.redundancy`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.controller.errors import NoSuchJob, UsageError

if TYPE_CHECKING:
    from ckpt.controller.service.report import Reporter
    from ckpt.controller.supervision.history import History
    from ckpt.store import ControlFile, JobDirectory

_REPLICAS_MAX = 3
_CLONES_MAX = 1000
_EXPLICIT = "the steps of a program that saves itself explicitly are not compared"
_CONTINUE = "the program is not told of a dead replica: the others compute its rank"
_ONE_HOST = "replicas are processes of one host yet"


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


def add_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--redundancy",
        type=replicas,
        metavar="N",
        help="compute every rank in N processes and compare what they send, print and return: 2 or 3 (default 1)",
    )
    verb.add_argument(
        "--clones",
        type=_clones,
        metavar="K",
        help="with --redundancy: replace each replica that is lost or wrong by a copy of another one, at most K times an "
        "hour (default 4); 0: never",
    )
    verb.add_argument(
        "--compare",
        choices=("late", "sender", "receiver"),
        help="with --redundancy: when messages are compared: while the program goes on (late, the default), before they "
        "leave the process that has made them (sender), or before the program gets them (receiver)",
    )
    verb.add_argument(
        "--compare-memory",
        choices=("all", "arrays"),
        help="with --redundancy: what of the replicas' memory is compared after a checkpoint: arrays and single values (the "
        "default), or arrays alone",
    )


def _clones(text: str) -> int:
    if not text.isdecimal() or int(text) > _CLONES_MAX:
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 0 to {_CLONES_MAX}")
    return int(text)


def check_restart(job: JobDirectory, arguments: argparse.Namespace) -> None:
    """Raise UsageError for a job whose kind does not go with the ``--redundancy`` that is asked for."""
    asked, options = arguments.redundancy or job.options.get("redundancy", 1), job.options
    if asked == 1:
        return
    if options.get("explicit"):
        raise UsageError(f"--redundancy {asked}: {_EXPLICIT}")
    if options.get("on_failure") == "continue" or arguments.on_failure == "continue":
        raise UsageError(f"--redundancy {asked} and --on-failure continue: {_CONTINUE}")
    if options.get("engine") not in (None, "local") or options.get("hosts") or arguments.hosts is not None:
        raise UsageError(f"--redundancy {asked} and --hosts: {_ONE_HOST}")


def of(job: JobDirectory, arguments: argparse.Namespace) -> int:
    """How many processes compute each rank from now on."""
    return int(arguments.redundancy or job.options.get("redundancy", 1))


def fields(job: JobDirectory, arguments: argparse.Namespace) -> dict[str, int | str]:
    """For the entry of the event log that a controller begins with: ``replicas``, where the job has or had several, and how
    these ``compare`` messages."""
    replicas = of(job, arguments)
    if max(replicas, job.options.get("redundancy", 1)) == 1:
        return {}
    return {"replicas": replicas, "compare": arguments.compare or job.options.get("compare", "late")}


def finished_code(job: JobDirectory, history: History) -> int | None:
    """As `history.finished_code`; also None where the agent has ended the job, without a controller, while several processes
    computed each rank: nobody has compared them, and the job goes on from its last line."""
    from ckpt.controller.supervision import history as histories

    code = histories.finished_code(history)
    if code is None or history.outcome is None or history.outcome.get("by") != "agent":
        return code
    began = [event for event in job.events.read().events if event["event"] == "controller"]
    return None if began and began[-1].get("replicas", 1) > 1 else code


def usable(
    job: JobDirectory, lines: Mapping[int, ControlFile], reporter: Reporter, replicas: int, *, or_start: bool
) -> list[int]:
    """Those of the lines from which a restart may go on by itself, ascending: not those that replicas have not verified.
    Raises NoSuchJob if these are all there are, and the program is not to be started over."""
    has_replicas = any(line.meta.get("verified") is not None for line in lines.values())
    compared, distrusted = _told_of(job) if has_replicas else (set(), set())
    good = [
        epoch
        for epoch, control in lines.items()
        if control.meta.get("verified") is not False and epoch not in distrusted
    ]
    full = [epoch for epoch in good if epoch in compared or lines[epoch].meta.get("verified") is None]
    if full:
        good = full
    elif good:
        from ckpt.controller.replicas.lines import no_memory

        reporter.say(f"{no_memory(good[-1])}: no checkpoint is verified in full")
    passed = [epoch for epoch in lines if epoch > max(good, default=0)]
    if passed:
        numbers = ", ".join(map(str, passed))
        kept = (
            "newer checkpoints that replicas have not verified, whose memory they have not compared, or that may hold an "
            f"error of one: {numbers}"
        )
        ask = f"`ckpt restart {job.path}@{passed[-1]}` goes on from there nevertheless"
        if not good and not or_start:
            raise NoSuchJob(f"{job.path}: there is no verified checkpoint; {kept}; {ask}")
        job.events.append("unverified-passed-over", epochs=passed, reason="restart")
        reporter.say(f"passing over {kept}; {ask}")
    if good and replicas > 1:
        say_unverified(lines[good[-1]], reporter)
    return good


def _told_of(job: JobDirectory) -> tuple[set[int], set[int]]:
    """The lines whose memory has been compared, and those that came from replicas which were found wrong later. Raises
    StorageFailed: nobody can say which."""
    from ckpt.controller.supervision import history as histories

    history = histories.summarise(job.events.read().events)
    return set(history.compared), set(history.distrusted)


def say_unverified(control: ControlFile, reporter: Reporter, job: JobDirectory | None = None) -> None:
    """Say so if this line, from which the job is about to go on, has not been verified. `job`: say also if its memory has
    not been compared."""
    verified = control.meta.get("verified")
    if verified and job is not None and control.epoch not in _told_of(job)[0]:
        from ckpt.controller.replicas.lines import no_memory

        reporter.say(f"{no_memory(control.epoch)}, as asked")
    if verified is False:
        reporter.say(f"going on from checkpoint {control.epoch}, which replicas have not verified, as asked")
    elif verified is None:
        reporter.say(
            f"going on from checkpoint {control.epoch}, which was taken without --redundancy: nothing has verified it"
        )


def check(arguments: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go with ``--redundancy``."""
    if arguments.redundancy in (None, 1):
        if arguments.compare is not None:
            raise UsageError("--compare says how replicas are compared: give --redundancy 2 or 3, too")
        if arguments.clones is not None:
            raise UsageError("--clones says how often replicas are replaced: give --redundancy 2 or 3, too")
        if arguments.compare_memory is not None:
            raise UsageError("--compare-memory says what replicas compare: give --redundancy 2 or 3, too")
        return
    refused = {
        "--explicit": (arguments.explicit, _EXPLICIT),
        "--on-failure continue": (
            arguments.on_failure == "continue",
            _CONTINUE,
        ),
        "--files": (
            arguments.files is not None,
            "what replicas write is not recorded: a restart undoes what was appended and made, and no more",
        ),
        "--hosts": (arguments.hosts is not None, _ONE_HOST),
        "--engine": (arguments.engine not in (None, "local"), _ONE_HOST),
        "--hostfile": (arguments.hostfile is not None, _ONE_HOST),
    }
    for name, (given, why) in refused.items():
        if given:
            raise UsageError(f"--redundancy {arguments.redundancy} and {name}: {why}")


_EVENTS = (
    *("replica-differs", "replica-lost", "leader-changed", "cluster-unverified", "result-compared"),
    *("replica-cloned", "clone-failed", "not-replaced"),
    "unverified-passed-over",
    "lines-distrusted",
)


_WAYS = {
    "sender": "; messages are compared before they leave",
    "receiver": "; messages are compared before the program gets them",
}


def describe(job: JobDirectory, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """For `ckpt status`: the number of replicas, and what has become of them; None: the job has none."""
    began = [event for event in events if event["event"] == "controller"]
    given = job.options.get("redundancy", 1)
    replicas = began[-1].get("replicas", given) if began else given
    if replicas == 1:
        return None
    kept = [
        {name: value for name, value in event.items() if name != "ns"}
        for event in events
        if event["event"] in _EVENTS
    ]
    return {
        "replicas": replicas,
        "compare": began[-1].get("compare", "late") if began else "",
        "events": kept,
    }


def render(found: Mapping[str, Any] | None) -> list[str]:
    """The state of the replicas as lines for people."""
    if found is None:
        return []
    way = _WAYS.get(found["compare"], "")
    lines = [f"replicas   {found['replicas']} of each rank; process {found['replicas']}·rank + replica{way}"]
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
