"""`ckpt inspect`: what a committed image holds, for people and as JSON. Nothing is unpickled.

The content comes from the manifest (`ckpt.store.upkeep.inspection`). The length of the program's pause and of the writing
are known to the event log only, and are added from there. One rank is shown in full, several ranks as a table.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ckpt
from ckpt.controller.cli.common import find_job, show, size_text, split_epoch
from ckpt.controller.errors import EXIT_DAMAGED, EXIT_OK, EXIT_UNRECOVERABLE

if TYPE_CHECKING:
    from ckpt.store import JobDirectory

_LOGGED_TIMES = {"captured": ("pause_ns", "waited_ns", "fork_ns"), "voted": ("timings",)}
_LIBRARY = os.path.join(os.path.dirname(os.path.realpath(ckpt.__file__)), "")
_WORST_FIRST = (EXIT_UNRECOVERABLE, EXIT_DAMAGED)
_FRAMES_OUTSIDE, _FRAMES_INSIDE = 10, 30
_SMALLEST_SHOWN = 64
_SMALLEST_OPERANDS_SHOWN = 1024
_PACKAGES_SHOWN = 12
_NOT_COVERED_SHOWN = 5
_KEPT_SHOWN = 10


def inspect(arguments: argparse.Namespace) -> int:
    """Exit code 0; 3 or 12 when a rank's manifest does not verify (12: and no other checkpoint is left)."""
    from ckpt.store import JobDirectory
    from ckpt.store.upkeep.inspection import inspect as inspect_line

    path, epoch = (None, None) if arguments.job is None else split_epoch(arguments.job)
    job = JobDirectory.open(find_job(path))
    found = inspect_line(job, epoch, arguments.rank)
    _add_logged_times(job, found)
    found["files"] = _files(job, found["epoch"])
    damaged = [rank["exit_code"] for rank in found["ranks"] if not rank["good"]]
    code = next((code for code in _WORST_FIRST if code in damaged), damaged[0] if damaged else EXIT_OK)
    show({"ok": not damaged, "exit_code": code, **found}, render(found), as_json=arguments.json)
    return code


def _add_logged_times(job: JobDirectory, found: dict[str, Any]) -> None:
    """``logged_ns`` of each rank: what the event log says about its image; empty when it says nothing."""
    from ckpt.store import EventLog, StorageFailed

    wanted = {_key(rank): rank for rank in found["ranks"] if rank["good"]}
    for rank in wanted.values():
        rank["logged_ns"] = {}
    logged = []
    for log in (EventLog(job.events.previous_path), job.events):
        try:
            logged += log.read().events
        except StorageFailed as error:
            print(f"ckpt: the times of the event log are missing: {error}", file=sys.stderr)
    for event in logged:
        names = _LOGGED_TIMES.get(str(event.get("event")))
        rank = wanted.get(_key(event))
        if names is None or rank is None:
            continue
        for name in names:
            value = event.get(name)
            rank["logged_ns"].update(value if isinstance(value, dict) else {name: value} if value else {})


def _files(job: JobDirectory, epoch: int) -> dict[str, Any]:
    """What the undo log has kept of the program's files since this line; ``reason``: why they cannot be put back, or ""."""
    from ckpt.controller.service.file_lines import from_start
    from ckpt.undo.errors import UndoError
    from ckpt.undo.restart.restoring import can_put_back, describe, shared_then

    try:
        reason = can_put_back(job.path, job.key, epoch, from_start=from_start(job))
        shared = shared_then(job.path, job.key)
        return {
            "reason": reason,
            "intervals": describe(job.path, job.key, epoch),
            "shared": shared and [*shared],
        }
    except UndoError as failure:
        return {"reason": str(failure), "intervals": [], "shared": None}


def _render_files(files: Mapping[str, Any]) -> list[str]:
    if files["reason"]:
        return [f"files      cannot be put back: {files['reason']}"]
    lines = []
    if files["shared"] and files["intervals"]:
        lines.append(
            f"files      of several hosts, on file systems that all share: {', '.join(files['shared'])}"
        )
    for each in files["intervals"]:
        host = f", of {each['hosts']}" if each.get("hosts") else ""
        lines.append(
            f"files      changed since epoch {each['epoch']}, incarnation {each['incarnation']}{host}: "
            f"{each['records']} records, "
            f"{each['links']} links, {each['copies']} copies ({size_text(each['bytes'])}), "
            f"{len(each['uncovered'])} not covered"
        )
        lines += [f"           {row['path']}: {_kept(row)}" for row in each["kept"][:_KEPT_SHOWN]]
        if len(each["kept"]) > _KEPT_SHOWN:
            lines.append(f"           {len(each['kept']) - _KEPT_SHOWN} more (--json)")
        lines += [
            f"           not covered: {path or 'files'}: {reason}" for path, reason in each["uncovered"]
        ]
    return lines


def _kept(row: Mapping[str, Any]) -> str:
    size = f", {size_text(row['bytes'])}" if row["bytes"] else ""
    where = f" in {row['where']}" if row["where"] else ""
    return f"{row['kept']}{size}{where}"


def _render_not_covered(ranks: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the images themselves say: also of what a log on a full disk could not say."""
    out = []
    for rank in ranks:
        for epoch, path, reason in rank.get("not_covered", ())[:_NOT_COVERED_SHOWN]:
            out.append(
                f"           rank {rank['rank']}: not covered since epoch {epoch}: {path or 'files'}: {reason}"
            )
        more = len(rank.get("not_covered", ())[_NOT_COVERED_SHOWN:]) + rank.get("not_covered_more", 0)
        if more:
            out.append(f"           rank {rank['rank']}: {more} more not covered (--json)")
    return out


def _key(fields: Mapping[str, Any]) -> str:
    """The value as text: in a damaged log it may be no number."""
    return f"{fields.get('rank')} {fields.get('epoch')} {fields.get('incarnation')}"


# ---- for people ------------------------------------------------------------------------------------------


def render(found: Mapping[str, Any]) -> str:
    """The text of `ckpt inspect`."""
    ranks = "1 rank" if found["size"] == 1 else f"{found['size']} ranks"
    out = [
        f"job        {found['job']} ({ranks}: {' '.join(found['command'])})",
        f"epoch      {found['epoch']} of {found['committed_at']}, incarnation {found['incarnation']}; "
        f"{size_text(found['bytes'])}, {size_text(found['bytes_written'])} written",
    ]
    if absent := found.get("absent"):
        out.append(
            f"absent     {', '.join(map(str, absent))}: dead before this epoch; a restart goes on without"
        )
    out += _render_files(found["files"])
    out += _render_not_covered(found["ranks"])
    if len(found["ranks"]) > 1:
        out += ["", *_table(_overview(found["ranks"])), ""]
        out += [
            f"rank {rank['rank']}  DAMAGED: {rank['reason']}" for rank in found["ranks"] if not rank["good"]
        ]
        out.append(f"`ckpt inspect {found['job']}@{found['epoch']} -r RANK` shows one of them in full")
    else:
        for rank in found["ranks"]:
            out += ["", *_render_rank(rank)]
    return "\n".join(out)


def _overview(ranks: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("rank", "bytes", "written", "blocks new/shared", "unacked", "pending", "where")
    ]
    for rank in ranks:
        if not rank["good"]:
            rows.append((str(rank["rank"]), "DAMAGED", "", "", "", "", ""))
            continue
        blocks, messages = rank["blocks"], rank["messages"]
        rows.append(
            (
                str(rank["rank"]),
                size_text(rank["bytes"]["raw"]),
                size_text(rank["bytes"]["written"]),
                f"{blocks['new']}/{blocks['shared']}",
                str(messages["unacked"]["messages"]),
                "?" if messages["pending"] is None else str(messages["pending"]["messages"]),
                _where(rank),
            )
        )
    return rows


def _where(rank: Mapping[str, Any]) -> str:
    """The innermost frame of the program, and whether it was inside this library."""
    if rank["finished"] is not None:
        return f"finished with {rank['finished']}"
    if not rank["stack"]:
        return "unknown"
    own = [frame for frame in rank["stack"] if not os.path.realpath(frame["file"]).startswith(_LIBRARY)]
    inside = "" if own and own[-1] is rank["stack"][-1] else " (in the library)"
    return _frame_text((own or rank["stack"])[-1]) + inside


def _frame_text(frame: Mapping[str, Any]) -> str:
    file, here = frame["file"], os.getcwd() + os.sep
    return f"{file.removeprefix(here)}:{frame['line']} {frame['function']}"


def _render_rank(rank: Mapping[str, Any]) -> list[str]:
    if not rank["good"]:
        return [f"rank {rank['rank']}  DAMAGED: {rank['reason']}"]
    blocks, sizes = rank["blocks"], rank["bytes"]
    out = [f"rank {rank['rank']}, incarnation {rank['incarnation']}"]
    out.append(
        f"  image      {size_text(sizes['raw'])}, {size_text(sizes['written'])} written: "
        f"{blocks['new']} blocks new ({size_text(blocks['new_bytes'])}), "
        f"{blocks['shared']} shared with earlier images ({size_text(blocks['shared_bytes'])})"
    )
    out += _render_versions(rank["versions"])
    out += _render_times(rank)
    out += _render_stack(rank)
    out += _render_variables(rank["variables"])
    out += _render_left_out(rank["left_out"])
    out += _render_messages(rank["messages"])
    return out


def _render_versions(versions: Mapping[str, Any] | None) -> list[str]:
    if versions is None:
        return []
    packages = sorted(versions.get("packages", {}).items(), key=lambda item: item[0].lower())
    named = [f"{name} {version}" for name, version in packages if _is_package(name)]
    more = f" and {len(named) - _PACKAGES_SHOWN} more (--json)" if len(named) > _PACKAGES_SHOWN else ""
    lines = [
        f"  versions   {versions.get('implementation', '')} {versions['python']}, ckpt {versions['ckpt']}"
    ]
    if named:
        lines.append(f"  packages   {', '.join(named[:_PACKAGES_SHOWN])}{more}")
    return lines


def _is_package(name: str) -> bool:
    """Is it a package, and not one of the modules of the standard library that have a `__version__`?"""
    return not name.startswith("_") and name not in sys.stdlib_module_names


def _render_times(rank: Mapping[str, Any]) -> list[str]:
    lines = []
    for title, times in (("timings", rank["timings_ns"]), ("", rank.get("logged_ns") or {})):
        if times:
            parts = [
                f"{name.removesuffix('_ns').replace('_', ' ')} {_ms(value)}" for name, value in times.items()
            ]
            lines.append(f"  {title:<10} {', '.join(parts)}")
    return lines


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.{2 if nanoseconds < 1e7 else 0}f} ms"


def _render_stack(rank: Mapping[str, Any]) -> list[str]:
    stack = rank["stack"]
    if not stack:
        return [f"  stack      {_where(rank)}"]
    sizes = {row["frame"]: row for row in (rank["variables"] or {}).get("frames", ())}
    out = [f"  stack      {len(stack)} frames, innermost last"]
    left_out = range(_FRAMES_OUTSIDE, len(stack) - _FRAMES_INSIDE)
    for index, frame in enumerate(stack):
        if index in left_out:
            if index == left_out[0]:
                out.append(f"    … {len(left_out)} frames left out (--json) …")
            continue
        out.append(f"    {index:>3}  {_frame_text(frame)}")
        if index in sizes:
            out += _render_largest(sizes[index], indent=9)
    return out


def _render_left_out(left_out: Sequence[Mapping[str, Any]]) -> list[str]:
    if not left_out:
        return []
    out = ["  not saved  installed packages in which something has changed; set it again in ckpt.on_restart"]
    return out + [f"    {row['package']}: {', '.join(row['variables'])}: {row['reason']}" for row in left_out]


def _render_variables(variables: Mapping[str, Any] | None) -> list[str]:
    if not variables or not variables["modules"]:
        return []
    out = ["  modules    saved by value, largest first"]
    for row in variables["modules"]:
        out.append(f"    {row['name']}: {size_text(row['bytes'])} in {row['variables']} variables")
        out += _render_largest(row, indent=9)
    for row in variables["rest"]:
        out.append(f"  other      {size_text(row['bytes'])}: messages, streams, random state, …")
    return out


def _render_largest(row: Mapping[str, Any], *, indent: int) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (size_text(entry["bytes"]), entry["name"], entry["type"])
        for entry in row["largest"]
        if entry["bytes"] >= (_SMALLEST_SHOWN if entry["name"] != "<operands>" else _SMALLEST_OPERANDS_SHOWN)
    ]
    return [" " * indent + line for line in _table(rows, right=(0,))]


def _render_messages(messages: Mapping[str, Any]) -> list[str]:
    unacked, pending, receives = messages["unacked"], messages["pending"], messages["receives"]
    parts = [f"{unacked['messages']} sent and not acknowledged{_bytes_text(unacked['bytes'])}"]
    if pending is not None:
        parts.append(f"{pending['messages']} arrived and not received{_bytes_text(pending['bytes'])}")
    if receives is not None and receives["posted"]:
        parts.append(f"{receives['posted']} receives posted")
    if messages["synchronous_sends"]:
        parts.append(f"{messages['synchronous_sends']} synchronous sends waiting")
    out = [
        f"  messages   epoch {messages['epoch']}, incarnation {messages['incarnation']}: {', '.join(parts)}"
    ]
    if messages["peers"]:
        rows: list[tuple[str, ...]] = [
            ("peer", "sent (tx)", "acknowledged (base)", "received (rx)", "unacked")
        ]
        for peer, link in sorted(messages["peers"].items(), key=lambda item: int(item[0])):
            unacked_text = f"{link['unacked']}{_bytes_text(link['unacked_bytes'])}"
            rows.append((peer, str(link["tx"]), str(link["base"]), str(link["rx"]), unacked_text))
        out += ["    " + line for line in _table(rows, right=(0, 1, 2, 3))]
    for row in (pending or {}).get("largest", ()):
        what = "" if row["kind"] == "point-to-point" else f" ({row['kind']})"
        out.append(
            f"    pending    {row['messages']} from {row['from']}, tag {row['tag']}{_bytes_text(row['bytes'])}{what}"
        )
    for row in (receives or {}).get("first", ()):
        source = "any source" if row["source"] == -1 else f"rank {row['source']}"
        tag = "any tag" if row["tag"] == -1 else f"tag {row['tag']}"
        what = "" if row["kind"] == "point-to-point" else f" ({row['kind']})"
        out.append(f"    waits for  a message from {source}, {tag}{what}")
    return out


def _bytes_text(nbytes: int | None) -> str:
    return f" ({size_text(nbytes)})" if nbytes else ""


def _table(rows: list[tuple[str, ...]], *, right: tuple[int, ...] = ()) -> list[str]:
    """Columns of equal width; those in ``right`` are aligned to the right."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
