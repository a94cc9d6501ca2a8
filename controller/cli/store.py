"""`ckpt ls`, `ckpt verify`, `ckpt prune`: the checkpoints in a job directory. Nothing is unpickled.

Not here: how checkpoints are read and removed (`ckpt.store.upkeep`).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ckpt.controller.cli.common import find_job, show, size_text, split_epoch
from ckpt.controller.errors import EXIT_OK

if TYPE_CHECKING:
    from ckpt.store import Finding, JobDirectory, Line


def ls(arguments: argparse.Namespace) -> int:
    """Committed checkpoints, oldest first; damaged ones are marked."""
    from ckpt.store import JobDirectory, list_lines

    job = JobDirectory.open(find_job(arguments.job))
    branch = job.record().branch
    entries = [
        {**_entry(line), "left_behind": branch is not None and not branch.holds(line.epoch)}
        for line in list_lines(job)
    ]
    rows = [_row(entry) for entry in entries] or ["nothing was committed yet"]
    show({"ok": True, "job": job.path, "lines": entries}, "\n".join(rows), as_json=arguments.json)
    return EXIT_OK


def _entry(line: Line) -> dict[str, Any]:
    control = line.control
    if control is None:
        return {"epoch": line.epoch, "good": False, "reason": str(line.error)}
    return {
        "epoch": line.epoch,
        "good": True,
        "previous": control.previous,
        "incarnation": control.incarnation,
        "generation": control.generation,
        "committed_at": control.committed_at,
        "size": control.size,
        "bytes": control.bytes_raw,
        "bytes_written": control.bytes_written,
        **({"absent": list(control.absent)} if control.absent else {}),
        **({"verified": control.meta["verified"]} if "verified" in control.meta else {}),
    }


def _row(entry: dict[str, Any]) -> str:
    if not entry["good"]:
        return f"{entry['epoch']:>8}  DAMAGED: {entry['reason']}"
    sizes = f"{size_text(entry['bytes']):>10}  {size_text(entry['bytes_written']):>10} written"
    left = "  (left behind: `ckpt restart JOB@EPOCH` goes back to it)" if entry["left_behind"] else ""
    absent = ""
    if entry.get("absent"):
        from ckpt.controller.supervision.lines import ranks_text

        absent = f"  without {ranks_text(entry['absent'])}"
    state = {True: "  verified", False: "  NOT VERIFIED", None: ""}[entry.get("verified")]
    return f"{entry['epoch']:>8}  {entry['committed_at']}  {sizes}  incarnation {entry['incarnation']}{absent}{state}{left}"


def verify(arguments: argparse.Namespace) -> int:
    """Exit code 0: whole; 3: damaged, yet some checkpoint is whole; 12: none is; 13: of another format."""
    from ckpt.store import JobDirectory
    from ckpt.store import verify as verify_lines

    path, epoch = split_epoch(arguments.job)
    job = JobDirectory.open(path)
    report = verify_lines(job, epoch, _FilesOf(job))
    rows = []
    for line in report.lines:
        state = "whole" if line.good else "DAMAGED"
        rows.append(f"{line.epoch:>8}  {state}: {line.blocks} blocks, {size_text(line.bytes_read)} read")
        rows += [f"          {finding.message}" for finding in line.findings]
    if not report.good and report.newest_good is not None:
        rows.append(
            f"`ckpt restart {path}@{report.newest_good}` goes on from an older checkpoint that is whole"
        )
    fields = {"ok": report.good, "exit_code": report.exit_code, **report.to_json()}
    show(fields, "\n".join(rows), as_json=arguments.json)
    return report.exit_code


class _FilesOf:
    """What is wrong with what was kept of the program's files: by lines."""

    def __init__(self, job: JobDirectory) -> None:
        from ckpt.controller.service.file_lines import notes_of_lines
        from ckpt.undo.restart.verifying import Verifier

        self._verifier = Verifier(job.path, job.key, notes_of_lines(job, 0))

    def __call__(self, epoch: int) -> list[Finding]:
        from ckpt.store import Finding

        failure = self._verifier.failure(epoch)
        return [] if failure is None else [Finding(type(failure).__name__, None, failure.path, str(failure))]


def prune(arguments: argparse.Namespace) -> int:
    """Remove all but the newest checkpoints. Not while a controller runs: it does so itself (`--keep`)."""
    from ckpt.controller.service.file_lines import forget_files
    from ckpt.store import JobDirectory
    from ckpt.store import prune as prune_lines
    from ckpt.undo.restart.restoring import remove_done

    job = JobDirectory.open(arguments.job)
    with job.lock() as lock:
        report = prune_lines(job, arguments.keep_last, lock=lock)
        forget_files(job)
        remove_done(job.path)
    fields = {
        "ok": True,
        "kept": report.kept,
        "removed": report.removed,
        "files": len(report.files),
        "bytes_freed": report.bytes_freed,
    }
    text = f"kept {report.kept}, removed {report.removed}: {size_text(report.bytes_freed)} freed"
    show(fields, text, as_json=arguments.json)
    return EXIT_OK
