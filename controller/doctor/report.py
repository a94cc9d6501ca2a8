"""The report of `ckpt doctor`, from the facts of a trial: problems, notes, refusals, sizes. Pure.

A *note* is useful to know and does no harm.

Not here: what is a problem, and its remedy (`problems`); the text of the report (`ckpt.controller.cli.doctor`).
"""

from __future__ import annotations

from typing import Any

from ckpt.controller.doctor.facts import OUTPUT_BYTES, Difference, Facts, last_samples, lines_of, listed
from ckpt.controller.doctor.problems import (
    children_waited_for,
    left_out,
    may_hold,
    problems,
    puts_files_back,
    refusals,
)

_LARGEST_SHOWN = 8
_SMALLEST_SHOWN = 64


def notes(facts: Facts) -> list[str]:
    """The notes: facts that are useful to know and are no problem."""
    if facts.get("unsupported"):
        return []
    found = [
        _unsure(restart["epoch"], Difference.of(restart["unsure"]))
        for restart in facts["restarts"]
        if restart["ok"] and restart["unsure"]
    ]
    if facts.get("not_compared"):
        found.append(f"too large to be compared after a restart: {listed(facts['not_compared'])}")
    if facts.get("laid_out_anew"):
        found.append(
            "not compared, since HDF5 lays a file that is open at a checkpoint out anew: "
            f"{listed(facts['laid_out_anew'])}"
        )
    found += [
        f"of the output of rank {rank} only the first {OUTPUT_BYTES >> 20} MiB are compared after a restart"
        for rank in facts.get("cut_outputs", ())
    ]
    found += children_waited_for(facts)[1]
    found += facts.get("left_files", ())
    if puts_files_back(facts):
        found += [
            f"{process['where']} starts {process['command'] or 'a copy of the program'}: what it changes is not "
            "undone by a restart"
            for process in facts.get("processes", ())
        ]
    examined = {rank for rank, _ in lines_of(facts, "examination")}
    found += [
        f"rank {rank} was not examined: of its variables, threads, child processes and descriptors no more is known than "
        "its images show"
        for rank in sorted(facts["ranks"])
        if facts["images"] and rank not in examined
    ]
    for _, line in lines_of(facts, "surroundings"):
        if may_hold(line):
            found += [
                f"a descriptor of {fd['target']} is left to {may_hold(line)}" for fd in line["descriptors"]
            ]
        if line["has_hooks"]:
            found += [
                f"the child process `{child['command']}` is left to the on_restart hooks"
                for child in line["children"]
            ]
    found += [
        f"{', '.join(row['variables'])}: starts anew after a restart: {row['reason']}"
        for _, row in left_out(facts, harmful=False)
    ]
    threads = [thread for _, line in lines_of(facts, "surroundings") for thread in line["threads"]]
    harmless = sorted({thread["name"] for thread in threads if thread["harmless"]})
    found += [f"thread {name!r} is declared harmless: it is gone after a restart" for name in harmless]
    return list(dict.fromkeys(found))


def _unsure(epoch: int, difference: Difference) -> str:
    return (
        f"restored from epoch {epoch}: {difference.output}, {difference.position}: it {difference.did} "
        f"{difference.restored!r} where the first run {difference.did} {difference.first!r}, and something else again when "
        "it was restored once more. That is no harm if it depends on the clock, on random numbers of the system, or on the "
        "order of messages; whether something is lost there, too, cannot be told"
    )


def sizes(facts: Facts) -> dict[str, Any]:
    """``{"bytes", "largest": [{"where", "type", "bytes"}]}`` of the largest examination of any rank."""
    lines = [line for _, line in lines_of(facts, "examination")]
    if not lines:
        return {"bytes": None, "largest": []}
    line = max(lines, key=lambda each: each["stream_bytes"] + each["buffer_bytes"])
    stack, rows = line["stack"], []
    for module in line["variables"]["modules"]:
        rows += [
            {**entry, "where": f"{module['name']} variable {entry['name']!r}"} for entry in module["largest"]
        ]
    for frame in line["variables"]["frames"]:
        function = (
            stack[frame["frame"]]["function"] if frame["frame"] < len(stack) else f"frame {frame['frame']}"
        )
        rows += [
            {**entry, "where": f"{function}() variable {entry['name']!r}"}
            for entry in frame["largest"]
            if entry["name"] != "<operands>"
        ]
    rows = [row for row in rows if row["bytes"] >= _SMALLEST_SHOWN and not row["name"].startswith("__")]
    rows.sort(key=lambda row: -row["bytes"])
    largest = [{name: row[name] for name in ("where", "type", "bytes")} for row in rows[:_LARGEST_SHOWN]]
    return {"bytes": line["stream_bytes"] + line["buffer_bytes"], "largest": largest}


def report(facts: Facts) -> dict[str, Any]:
    """Everything `--json` prints: ``{"ok", "schema", "problems", "notes", "refusals", "samples", "sizes", …}``."""
    found = problems(facts)
    base = {
        "ok": not found,
        "schema": 1,
        "program": facts["program"],
        "problems": found,
        "notes": notes(facts),
    }
    if facts.get("unsupported"):
        return base
    samples = [line for _, line in last_samples(facts)]
    return {
        **base,
        "ran_s": facts["ran_s"],
        "exit_code": facts["exit_code"] if facts["ended_by_itself"] else None,
        "samples": {
            name: sum(line[name] for line in samples) for name in ("taken", "captured", "in_library")
        },
        "refusals": refusals(facts),
        "sizes": sizes(facts),
        "images": facts["images"],
        "restarts": facts["restarts"],
    }
