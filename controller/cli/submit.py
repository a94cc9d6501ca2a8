"""`ckpt submit`: writes a batch script for Slurm, and submits it.

Not here: the script itself (`ckpt.controller.hosts.batch`), the options of `ckpt run` (`arguments`).
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.controller.cli.command import Command
from ckpt.controller.cli.common import new_directory, not_empty, show
from ckpt.controller.errors import EXIT_OK, EXIT_RESTARTS_USED_UP, ControllerError, LaunchFailed, UsageError

if TYPE_CHECKING:
    from ckpt.controller.supervision.history import History

__all__ = ["StartsUsedUp", "add_options", "check_starts", "divided", "submit"]

_SBATCH_LIMIT_S = 60.0
_STARTS = 3
_REFUSED = (
    "--hosts",
    "--hostfile",
    "--engine",
    "--engine-command",
    "--resume",
    "--goes-on",
    "--checkpoint-on-signal",
)


class StartsUsedUp(ControllerError):
    """The job was started `--max-starts` times in a row without progress."""

    exit_code = EXIT_RESTARTS_USED_UP


def check_starts(history: History, most: int | None) -> None:
    """Raise StartsUsedUp if the last `most` starts have brought no new checkpoint."""
    if most is not None and history.starts >= most:
        raise StartsUsedUp(
            f"the last {history.starts} starts have brought no new checkpoint: it is not started again "
            f"(--max-starts {most}). The log of the job says why; `ckpt restart` goes on with it"
        )


def add_options(
    parser: argparse.ArgumentParser, count: Callable[[int], Any], seconds: Callable[[str], float]
) -> None:
    """The options of the verb. `count`, `seconds`: types of values."""
    add = parser.add_argument
    add("-n", "-np", "--ranks", type=count(1), metavar="N", default=1, help="number of ranks (default 1)")
    add(
        "--job",
        type=not_empty,
        metavar="DIR",
        help="job directory, which all nodes see (default: a new one under ./.ckpt)",
    )
    add("-t", "--time", metavar="TIME", help="time limit of each slot, as sbatch takes it")
    add(
        "--spares",
        type=count(0),
        metavar="K",
        default=0,
        help="so many nodes more than needed, for those that are lost",
    )
    add(
        "--lead",
        type=seconds,
        metavar="S",
        help="the last checkpoint begins so long before the time limit (default: a tenth of it, 1 to 5 minutes)",
    )
    add("--dry-run", action="store_true", help="write the script, and do not submit it")


def divided(words: Sequence[str]) -> tuple[list[str], list[str], dict[str, str | None]]:
    """The options of `ckpt submit`: its own, those of `ckpt run`, those of sbatch. Raises UsageError."""
    from ckpt.controller.cli.arguments import names_of
    from ckpt.controller.hosts import batch

    own, run = names_of("submit"), names_of("run")
    found = batch.divide(words, own[0], run[0], own[1] | run[1])
    given = [word.partition("=")[0] for word in found.run]
    for name in _REFUSED:
        if name in given:
            raise UsageError(f"{name} is in the script that `ckpt submit` writes (--dry-run shows it)")
    return found.own, found.run, found.sbatch


def submit(arguments: argparse.Namespace) -> int:
    """Write the script `JOB.sh`, and submit it."""
    import shlex

    from ckpt.controller.hosts import batch

    if arguments.program[:1] == ["-c"] and "".join(arguments.program[1:2]).isdecimal():
        count = arguments.program[1]
        raise UsageError(
            f"-c {count} is a program here, as in `python -c {count}`; for processors: --cpus-per-task={count}"
        )
    command = Command.parse(arguments.program).complete()
    job = os.path.abspath(arguments.job or new_directory(command.name))
    path, log = f"{job}.sh", f"{job}.log"
    nodes, count = batch.layout(arguments.ranks, arguments.spares, arguments.sbatch)
    several = count != 1
    if several:
        _check_options(arguments.run)
    sbatch = dict(arguments.sbatch)
    if arguments.time is not None:
        sbatch["--time"] = arguments.time
    run = [sys.executable, "-m", "ckpt", "run", "-n", str(arguments.ranks), "--job", job, "--resume", "auto"]
    run += ["--engine", "slurm" if several else "local", "--checkpoint-on-signal"]
    run += [] if "--max-starts" in arguments.run else ["--max-starts", str(_STARTS)]
    text = batch.script(
        name=os.path.basename(job),
        log=log,
        path=path,
        cwd=os.getcwd(),
        lead=batch.lead_s(arguments.time, arguments.lead),
        nodes=nodes,
        sbatch=sbatch,
        run=f'{shlex.join(run)} --goes-on "$goes_on" \\\n        {shlex.join([*arguments.run, "--", *command.typed])}',
    )
    kept = _write(path, text)
    fields: dict[str, Any] = {"ok": True, "job": job, "script": path, "log": log, "slurm_job": None}
    fields["kept"] = kept
    said = f"\nanother script was there, and is now {kept}" if kept else ""
    if arguments.dry_run:
        what = f"{path} is written, and not submitted: sbatch {shlex.quote(path)}"
        show(fields, what + said, as_json=arguments.json)
        return EXIT_OK
    fields["slurm_job"] = number = _sbatch(path)
    what = f"Slurm job {number}: script {path}, output {log}, job directory {job}"
    show(fields, what + said, as_json=arguments.json)
    return EXIT_OK


def _write(path: str, text: str) -> str | None:
    """Write the script. What is there is the user's, or has been changed by them: it is kept under another name, which is
    returned. Raises UsageError."""
    kept = None
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            if _has(path, text):
                return None
            kept = next(
                name for number in itertools.count(1) if not os.path.lexists(name := f"{path}.{number}")
            )
            os.rename(path, kept)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as failed:
        raise UsageError(f"the script cannot be written: {failed}; choose another --job") from failed
    return kept


def _has(path: str, text: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() == text
    except IsADirectoryError:
        return False


def _check_options(words: Sequence[str]) -> None:
    from ckpt.controller.cli.arguments import parse

    options = parse(["run", *words])
    if options.redundancy not in (None, 1):
        raise UsageError("--redundancy is for ranks on one host: leave it out, or say --nodes 1")


def _sbatch(path: str) -> str:
    """Submit the script; returns the number that Slurm gives the job. Raises LaunchFailed."""
    from ckpt.controller.hosts.engine import CommandFailed, ask

    try:
        return ask(["sbatch", "--parsable", path], _SBATCH_LIMIT_S).strip().partition(";")[0]
    except CommandFailed as failed:
        what_next = "submit it where Slurm's commands are" if failed.is_missing else "it was not submitted"
        raise LaunchFailed(f"{failed}: {path} is written; {what_next}") from failed
