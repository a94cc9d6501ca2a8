"""The batch script that `ckpt submit` writes, for people to read and change. Pure.

Before the time limit Slurm signals the script (and nobody else: `B:`), the script tells `ckpt run`, which takes a last
checkpoint and ends with 75, and the job is queued again. Where that is not possible (no scontrol on the node, or requeueing
is forbidden) a second job, submitted ahead, waits for the end of the first. `--max-starts` ends a job without progress.
What is cancelled is not queued again: `scancel` sends SIGTERM to the script and to all that it has started, and no SIGUSR1.

Source: the manual pages sbatch(1) and scontrol(1) of Slurm 22.05.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from ckpt.controller.errors import UsageError
from ckpt.transport.records import dataclass

__all__ = ["FLAGS", "Divided", "divide", "layout", "lead_s", "script", "seconds_of"]

FLAGS = frozenset({
    *("--contiguous", "--exclusive", "--get-user-env", "--hold", "--ignore-pbs", "--nice", "--no-requeue", "--overcommit"),
    *("--oversubscribe", "--parsable", "--propagate", "--quiet", "--reboot", "--requeue", "--spread-job", "--test-only"),
    *("--use-min-nodes", "--verbose", "-H", "-O", "-Q", "-W", "-s", "-v"),
})  # fmt: skip
"""Options of sbatch without a value, or with one that is given with `=` only."""

_OURS = (
    "--signal",
    "--open-mode",
    "--output",
    "-o",
    "--wrap",
    "--array",
    "-a",
    "--parsable",
    "--no-kill",
    "-k",
    "--ntasks",
)
"""Options of sbatch that the script itself depends on."""

_NOT_HERE = {
    "--test-only": "use --dry-run, then `sbatch --test-only` with the script",
    "-W": "`ckpt submit` returns when the job is submitted; `ckpt status` tells of it",
}
"""Options of sbatch with which nothing is submitted, or it does not return, and what to do in their place."""

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]()|&*!^~-]*")
"""What sbatch takes as it is. It cuts a directive at spaces and #, and refuses a script with a word that is no option."""

_LEAD_MOST_S, _LEAD_LEAST_S = 300, 60
_SCRIPT = """\
#!/bin/bash
{directives}

# Written by `ckpt submit`. Change it as you like, and submit it with `sbatch {script}`.
cd {cwd} || exit 1

# How the job goes on when its time is over or a node dies: Slurm queues it again. Where that is not possible, a second job
# waits for the end of this one, and is cancelled when there is nothing left to do.
next=
if scontrol show job "$SLURM_JOB_ID" 2>/dev/null | grep -q Requeue=1; then
    goes_on="Slurm queues it again"
    export CKPT_ORPHANED="scontrol requeue $SLURM_JOB_ID"   # for the agents that are left when this node is lost
elif next=$(sbatch --parsable --dependency=afterany:"$SLURM_JOB_ID" {script}); then
    goes_on="job $next starts when this one has ended"
    export CKPT_ORPHANED="scancel $SLURM_JOB_ID"
else
    goes_on="nobody starts it again but you"
fi

noticed=
ended=
trap 'noticed=yes; kill -TERM $run' USR1
trap 'ended=yes; kill -TERM $run' TERM
while
    {run} &
    run=$!
    while wait $run; code=$?; kill -0 $run 2>/dev/null; do :; done   # a trapped signal ends `wait` early
    if [ -n "$noticed$ended" ]; then false
    elif [ $code = 137 ]; then :                                     # `ckpt run` was killed: another one goes on
    elif [ $code = 11 ] && [ $SECONDS -lt 180 ]; then                # a node that has died may hold its lock for a while
        sleep 10 & wait $!; [ -z "$noticed$ended" ]
    else false; fi
do :; done

# SIGTERM: the time is over, or others are to have the nodes; or `scancel`, after which Slurm names neither as the reason.
cancelled=
if [ -n "$ended" ]; then
    shown=$(scontrol show job "$SLURM_JOB_ID" 2>/dev/null)
    if grep -Eq 'JobState=RUNNING|Reason=TimeLimit|PreemptTime=[0-9]' <<< "$shown"; then noticed=yes
    elif [ -n "$shown" ] || [ -z "$noticed" ]; then cancelled=yes; fi
fi

again=
case $code in
    75) again=yes ;;                     # stopped after a last checkpoint
    11 | 124 | 143) again=$noticed ;;    # stopped without one: go on from the checkpoint before
    16) again=yes ;;                     # all nodes, or the step on them, were lost
    137) again=yes ;;                    # `ckpt run` was killed when the time was nearly over
esac
if [ -n "$cancelled" ]; then
    again=
    echo "ended by scancel, or by scontrol requeue, which queues it again itself; to go on after scancel: sbatch {script}"
fi
if [ -z "$again" ]; then
    [ -z "$next" ] || scancel "$next"    # the end, or an error that another start does not mend
elif [ -z "$next" ]; then
    scontrol requeue "$SLURM_JOB_ID" || echo "not queued again; to go on: sbatch {script}"
fi
exit $code
"""


@dataclass(frozen=True)
class Divided:
    """The options of `ckpt submit`: its own, those for `ckpt run`, and those for sbatch (by name; None: without a value)."""

    own: list[str]
    run: list[str]
    sbatch: dict[str, str | None]


def divide(
    words: Sequence[str], own: Iterable[str], run: Iterable[str], without_value: Iterable[str]
) -> Divided:
    """Divide the options: `own` and `run` are names; any other one is sbatch's. `without_value`: names of ours and of
    `ckpt run`.

    Raises UsageError for options of sbatch that the script itself gives.
    """
    mine, theirs, flags = frozenset(own), frozenset(run), frozenset(without_value)
    divided = Divided([], [], {})
    position = 0
    while position < len(words):
        name, equals, value = words[position].partition("=")
        if not name.startswith("--") and len(name) > 2 and name not in theirs | mine:
            name, equals, value = words[position][:2], "=", words[position][2:]  # -N4
        known = name in mine or name in theirs
        width = 1 if equals or name in (flags if known else FLAGS) else 2
        part = list(words[position : position + width])
        if width == 2 and len(part) < 2:
            raise UsageError(f"{name}: which value?")
        position += width
        if name in mine:
            divided.own.extend(part)
        elif name in theirs:
            divided.run.extend(part)
        elif name in _OURS:
            raise UsageError(f"{name} is in the script that `ckpt submit` writes (--dry-run shows it)")
        elif name in _NOT_HERE:
            raise UsageError(f"{name}: {_NOT_HERE[name]}")
        else:
            divided.sbatch[name] = value if equals else (part[1] if width == 2 else None)
    return divided


def layout(ranks: int, spares: int, sbatch: Mapping[str, str | None]) -> tuple[list[str], int | None]:
    """The options of sbatch that give the ranks their nodes, and how many nodes these are (None: as Slurm likes).

    `--nodes` counts the spares too. Raises UsageError.
    """
    nodes, per_node = _number(sbatch, "--nodes", "-N"), _number(sbatch, "--ntasks-per-node")
    if nodes is None and per_node is None:
        if spares:
            raise UsageError(
                "--spares: how many ranks are to be on a node? --ntasks-per-node K, or --nodes N"
            )
        return [f"--ntasks={ranks}"], None
    if per_node is None:
        assert nodes is not None
        if nodes <= spares:
            raise UsageError(f"--nodes {nodes}: with {spares} spares there is none for the ranks")
        per_node = -(-ranks // (nodes - spares))
    needed = -(-ranks // per_node) + spares
    if nodes is None:
        nodes = needed
    elif nodes < needed:
        raise UsageError(
            f"--nodes {nodes} --ntasks-per-node {per_node}: {ranks} ranks and {spares} spares need {needed} nodes"
        )
    return [f"--nodes={nodes}", f"--ntasks-per-node={per_node}"], nodes


def _number(sbatch: Mapping[str, str | None], *names: str) -> int | None:
    for name in names:
        text = sbatch.get(name)
        if text is not None:
            if not text.isdecimal() or not int(text):
                raise UsageError(f"{name} {text}: a number is needed here")
            return int(text)
    return None


def _written(option: str, value: str) -> str:
    """A value as it stands in a directive. Raises UsageError: no directive can hold it."""
    if _PLAIN.fullmatch(value):
        return value
    if "\n" in value:
        raise UsageError(f"{option}: a directive of sbatch cannot hold more than one line: {value!r}")
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def seconds_of(time: str) -> int:
    """A time limit as sbatch takes it: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].

    Raises UsageError."""
    found = _TIME.fullmatch(time)
    if found is None:
        raise UsageError(
            f"--time {time}: give MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS, as sbatch takes it"
        )
    days, first, second, third = (None if text is None else int(text) for text in found.groups())
    if days is not None:
        return ((days * 24 + (first or 0)) * 60 + (second or 0)) * 60 + (third or 0)
    if third is not None:
        return ((first or 0) * 60 + (second or 0)) * 60 + third
    return (first or 0) * 60 + (second or 0)


def lead_s(time: str | None, asked_s: float | None) -> int:
    """How long before the time limit the signal is to come: what is asked for; else a tenth of the time, in bounds.

    Raises UsageError: it does not fit into the time."""
    limit = None if time is None else seconds_of(time)
    if asked_s is None:
        lead = _LEAD_MOST_S if limit is None else min(_LEAD_MOST_S, max(_LEAD_LEAST_S, limit // 10))
        lead = lead if limit is None else min(lead, limit // 2)
    else:
        lead = round(asked_s)
    if lead < 1 or (limit is not None and lead >= limit):
        raise UsageError(f"--lead {lead}: the signal is to come within --time {time}")
    return lead


def script(
    *,
    name: str,
    log: str,
    path: str,
    cwd: str,
    lead: int,
    nodes: Sequence[str],
    sbatch: Mapping[str, str | None],
    run: str,
) -> str:
    """The text. `nodes`: from `layout`; `path`: of the script; `run`: the command, for a shell. Raises UsageError."""
    if any(character in text for text in (name, log) for character in "\n\"'\\%"):
        raise UsageError(f"{log}: a directive of sbatch cannot hold such a name; choose another --job")
    given = [
        text if value is None else f"{text}{' ' if len(text) == 2 else '='}{_written(text, value)}"
        for text, value in sbatch.items()
        if text not in ("--nodes", "-N", "--ntasks-per-node")
    ]
    lines = [
        *([] if "--job-name" in sbatch or "-J" in sbatch else [f"--job-name={_written('--job', name)}"]),
        " ".join(nodes),
        *given,
        f"--signal=B:USR1@{lead}",
        *([] if "--no-requeue" in sbatch else ["--requeue"]),
        "--open-mode=append --no-kill",
        f'--output="{log}"',
    ]
    return _SCRIPT.format(
        directives="\n".join(f"#SBATCH {line}" for line in lines),
        script=shlex.quote(path),
        cwd=shlex.quote(cwd),
        run=run,
    )
