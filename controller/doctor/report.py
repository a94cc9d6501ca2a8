"""The report of `ckpt doctor`: problems with their remedies, notes, and the text, all from the facts of a trial. Pure.

*Facts* come from `ckpt.controller.doctor.trial` (and there from the rank's side, `ckpt.doctor`). A *problem* is state that
would not survive a restart, or a reason why checkpoints cannot be taken. A *note* is useful to know and does no harm. Equal
findings of several examinations and ranks are one problem, with the number of examinations.

    problem   {"kind", "what", "where", "why", "remedy", "ranks", "seen"}      seen: in how many examinations

Kinds: object, package, thread, child, descriptor, file, refusal, late, image, restart, program, interpreter, trouble.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ckpt.controller.supervision import remedies

Problem = dict[str, Any]
Facts = Mapping[str, Any]

_REFUSED_SHARE = 0.2
_REFUSED_LONG_S = 1.0
_LATE_LONG_S = 2.0
_LARGEST_SHOWN = 8
_SMALLEST_SHOWN = 64
_NAMES_SHOWN = 5


def problems(facts: Facts) -> list[Problem]:
    """All problems, in the order of the report."""
    if facts.get("unsupported"):
        return [
            {
                "kind": "interpreter",
                "what": "this interpreter cannot be imaged",
                "where": "",
                "why": facts["unsupported"],
                "remedy": remedies.INTERPRETER,
                "ranks": [],
                "seen": 1,
            }
        ]
    found: list[Problem] = []
    found += _program(facts)
    found += _objects(facts)
    found += _packages(facts)
    found += _surroundings(facts)
    found += _children_waited_for(facts)[0]
    found += _appended(facts)
    found += _refusals(facts)
    found += _images(facts, found)
    found += _restarts(facts)
    return _merged(found)


def _problem(kind: str, what: str, where: str, why: str, remedy: str, rank: int | None) -> Problem:
    ranks = [] if rank is None else [rank]
    return {
        "kind": kind,
        "what": what,
        "where": where,
        "why": why,
        "remedy": remedy,
        "ranks": ranks,
        "seen": 1,
    }


def _merged(found: Iterable[Problem]) -> list[Problem]:
    """The problems without duplicates, each with all its ranks and the number of times it was found."""
    kept: dict[tuple[str, str, str], Problem] = {}
    for problem in found:
        key = (problem["kind"], problem["what"], problem["where"])
        first = kept.setdefault(key, {**problem, "seen": 0, "ranks": []})
        first["seen"] += 1
        first["ranks"] = sorted({*first["ranks"], *problem["ranks"]})
    return list(kept.values())


def _program(facts: Facts) -> list[Problem]:
    code = facts["exit_code"]
    if not facts["ended_by_itself"]:
        return []
    if code == 0:
        if facts["images"]:
            return []
        text, why = (
            "nothing could be tried",
            f"the program ended after {facts['ran_s']:.1f} s, before an image was taken",
        )
        return [_problem("program", text, "", why, "give it more to do: a larger input, more steps", None)]
    text = f"the program ended with exit code {code}"
    return [
        _problem("program", text, "", facts["error"] or "it printed no traceback", "make it run first", None)
    ]


def place(where: str) -> str:
    """``frame 3 (solve) local 'x'`` → ``solve() variable 'x'``; modules likewise. Equal places get equal texts."""
    text = re.sub(r"^frame \d+ \((.*?)\) local ", r"\1() variable ", where)
    text = re.sub(r"^frame \d+ \((.*?)\)", r"\1()", text)
    return re.sub(r"^module (\S+) variable ", r"\1 variable ", text)


def _objects(facts: Facts) -> list[Problem]:
    found = []
    for rank, line in _lines(facts, "examination"):
        waiting = _waiting_frame(line)
        for finding in line["findings"]:
            if waiting is not None and _frame_number(finding["where"]) > waiting:
                continue  # an object of subprocess for a running child: see `_children_waited_for`
            where = place(finding["where"]) + finding["path"]
            remedy = remedies.for_object(finding["type"], finding["reason"], finding["bases"])
            what = f"an object of type {finding['type']} cannot be saved"
            found.append(_problem("object", what, where, finding["reason"], remedy, rank))
    if not _lines(facts, "examination"):
        found += [
            _problem("trouble", "an examination failed", "", line["text"], "please report this", rank)
            for rank, line in _lines(facts, "trouble")
        ]
    return found


def _packages(facts: Facts) -> list[Problem]:
    """Packages in which the program has changed something that no image can hold."""
    return [
        _problem(
            "package",
            f"what has changed in the package {row['package']} since its import is lost",
            ", ".join(row["variables"]),
            row["reason"],
            remedies.PACKAGE,
            rank,
        )
        for rank, line in _lines(facts, "examination")
        for row in line.get("left_out", ())
        if row["kind"] == "unsaved"
    ]


def _surroundings(facts: Facts) -> list[Problem]:
    found = []
    waited = {
        (rank, line["t_s"]) for rank, line in _lines(facts, "examination") if _waiting_frame(line) is not None
    }
    for rank, line in _lines(facts, "surroundings"):
        found += [_thread(thread, rank) for thread in line["threads"] if not thread["harmless"]]
        if (rank, line["t_s"]) in waited:
            continue
        if not line["has_hooks"]:
            found += [_child(child, rank) for child in line["children"]]
        if not _may_hold(line):
            found += _descriptors(line["descriptors"], rank)
    return found


def _waiting_frame(line: Mapping[str, Any]) -> int | None:
    """Number of the program's frame that waits in `subprocess` for a child process; None: no frame waits."""
    for number, frame in enumerate(line["stack"][1:]):
        if frame["file"].endswith("/subprocess.py") and not line["stack"][number]["file"].endswith(
            "/subprocess.py"
        ):
            return number
    return None


def _frame_number(where: str) -> int:
    found = re.match(r"frame (\d+) ", where)
    return int(found[1]) if found else -1


def _children_waited_for(facts: Facts) -> tuple[list[Problem], list[str]]:
    """Places where the program waits for a child process: (problems, notes).

    Checkpoints wait as long as the program waits. A place is a problem if the program waited there at every examination.
    """
    looked: dict[int, int] = {}
    waited: dict[tuple[int, str], int] = {}
    for rank, line in _lines(facts, "examination"):
        looked[rank] = looked.get(rank, 0) + 1
        number = _waiting_frame(line)
        if number is not None:
            frame = line["stack"][number]
            where = f"{frame['file']}:{frame['line']} {frame['function']}"
            waited[rank, where] = waited.get((rank, where), 0) + 1
    found, notes = [], []
    why = "a process that runs is not part of a checkpoint, and checkpoints wait for its end"
    for (rank, where), times in waited.items():
        if times == looked[rank] > 1:
            found.append(
                _problem("child", "the program waits for a child process", where, why, remedies.CHILD, rank)
            )
        else:
            notes.append(f"{where} waits for a child process: {why}")
    return found, notes


def _may_hold(line: Mapping[str, Any]) -> str:
    """Registered types and hooks that may restore descriptors which no file or socket object holds; ``""``: none."""
    hooks = ["the on_restart hooks"] if line["has_hooks"] else []
    return ", ".join([*line["types"], *hooks])


def _child(child: Mapping[str, Any], rank: int) -> Problem:
    why = "it is not part of a checkpoint"
    return _problem("child", "a child process runs", child["command"], why, remedies.CHILD, rank)


def _thread(thread: Mapping[str, Any], rank: int) -> Problem:
    why = "stacks of other threads cannot be part of a checkpoint"
    what, remedy = f"the thread {thread['name']!r} runs", remedies.for_thread(thread["name"])
    return _problem("thread", what, f"{thread['target']}()", why, remedy, rank)


def _descriptors(descriptors: list[Mapping[str, Any]], rank: int) -> list[Problem]:
    """One problem for each file, and one for all pipes and all sockets."""
    why = "no file object holds it: it would be missing after a restart, without any error before"
    numbers: dict[tuple[str, str], list[str]] = {}
    for fd in descriptors:
        target = fd["target"] if fd["kind"] in ("file", "device") else f"a {fd['kind']}"
        numbers.setdefault((fd["kind"], target), []).append(str(fd["fd"]))
    return [
        _problem(
            "descriptor",
            f"a raw descriptor of {target}"
            if len(fds) == 1
            else f"raw descriptors of {target}, {len(fds)} of them",
            f"descriptor {', '.join(fds)}",
            why,
            remedies.DESCRIPTORS[kind],
            rank,
        )
        for (kind, target), fds in numbers.items()
    ]


def _appended(facts: Facts) -> list[Problem]:
    return [
        _problem(
            "file",
            f"{file['path']} is opened for appending again and again",
            file["where"],
            f"{file['times']} times: it is not open at a checkpoint, so what is appended after one is there twice after a "
            "restart",
            remedies.APPENDED,
            rank,
        )
        for rank, line in _last_samples(facts)
        for file in line["appended"]
    ]


def refusals(facts: Facts) -> list[dict[str, Any]]:
    """Where the program could not be captured: ``{"reason", "where", "share", "longest_s", "ranks"}``, longest first."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    taken = max(1, sum(line["taken"] for _, line in _last_samples(facts)))
    for rank, line in _last_samples(facts):
        for entry in line["refused"]:
            row = merged.setdefault(
                (entry["reason"], entry["where"]),
                {
                    "reason": entry["reason"],
                    "where": entry["where"],
                    "samples": 0,
                    "longest_s": 0.0,
                    "ranks": [],
                },
            )
            row["samples"] += entry["samples"]
            row["longest_s"] = max(row["longest_s"], entry["longest_s"])
            row["ranks"].append(rank)
    for row in merged.values():
        row["share"] = round(row["samples"] / taken, 4)
    return sorted(merged.values(), key=lambda row: (-row["longest_s"], -row["samples"]))


def _refusals(facts: Facts) -> list[Problem]:
    found = []
    in_vain = any(not image["ok"] and "cannot be captured" in image["reason"] for image in facts["images"])
    for row in refusals(facts):
        often = row["share"] >= _REFUSED_SHARE and in_vain
        if row["longest_s"] < _REFUSED_LONG_S and not often:
            continue  # only for short times: a checkpoint is taken a little later
        why = f"{row['share']:.0%} of the moments looked at, for {row['longest_s']:.2f} s at most"
        what = f"no checkpoint can be taken while {row['reason']}"
        problem = _problem("refusal", what, row["where"], why, remedies.for_refusal(row["reason"]), None)
        problem["ranks"] = row["ranks"]
        found.append(problem)
    for rank, line in _last_samples(facts):
        late = line["late"]
        if late["longest_s"] >= _LATE_LONG_S:
            why = f"one call into C took {late['longest_s']:.1f} s; a checkpoint waits until it returns"
            found.append(
                _problem(
                    "late", "a long call into C", late["where"], why, "cut the work into smaller calls", rank
                )
            )
    return found


def _images(facts: Facts, known: list[Problem]) -> list[Problem]:
    """Images that failed; none if a problem found so far (`known`) may explain the failure."""
    if any(problem["kind"] in ("object", "refusal", "late", "program") for problem in known):
        return []
    return [
        _problem("image", "an image could not be taken", "", image["reason"], "see the reason", None)
        for image in facts["images"]
        if not image["ok"]
    ]


def _restarts(facts: Facts) -> list[Problem]:
    return [
        _problem(
            "restart",
            "a program restored from its image did not go on as the first run did",
            "",
            restart["reason"],
            "see the traceback; state that lives outside of Python objects is made anew in ckpt.on_restart(f)",
            None,
        )
        for restart in facts["restarts"]
        if not restart["ok"]
    ] + [
        _problem(
            "restart",
            f"a program restored from its image {_did(restart['differs'])} something else than the first run",
            f"{_where(restart['differs'])} {_place(restart['differs'])}",
            f"{restart['differs']['restored']!r}, twice alike, where the first run {_did(restart['differs'])} "
            f"{restart['differs']['first']!r}{_also(restart['also'])}",
            remedies.LOST,
            restart["differs"].get("rank"),
        )
        for restart in facts["restarts"]
        if restart["ok"] and restart["differs"]
    ]


def _did(difference: Mapping[str, Any]) -> str:
    return "wrote" if "path" in difference else "printed"


def _where(difference: Mapping[str, Any]) -> str:
    return f"file {difference['path']}" if "path" in difference else f"output of rank {difference['rank']}"


def _place(difference: Mapping[str, Any]) -> str:
    return f"byte {difference['byte']}" if "byte" in difference else f"line {difference['line']}"


def _also(names: Sequence[str]) -> str:
    return f"; other files differ, too: {_listed(names)}" if names else ""


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def notes(facts: Facts) -> list[str]:
    """The notes: facts that are useful to know and are no problem."""
    if facts.get("unsupported"):
        return []
    found = [
        f"restored from epoch {restart['epoch']}: {_where(restart['unsure'])}, {_place(restart['unsure'])}: it "
        f"{_did(restart['unsure'])} {restart['unsure']['restored']!r} where the first run {_did(restart['unsure'])} "
        f"{restart['unsure']['first']!r}, and something else again when it was restored once more. That is no harm if it "
        "depends on the clock, on random numbers of the system, or on the order of messages; whether something is lost "
        "there, too, cannot be told"
        for restart in facts["restarts"]
        if restart["ok"] and restart["unsure"]
    ]
    if facts.get("not_compared"):
        found.append(f"too large to be compared after a restart: {_listed(facts['not_compared'])}")
    found += _children_waited_for(facts)[1]
    examined = {rank for rank, _ in _lines(facts, "examination")}
    found += [
        f"rank {rank} was not examined: of its variables, threads, child processes and descriptors no more is known than "
        "its images show"
        for rank in sorted(facts["ranks"])
        if facts["images"] and rank not in examined
    ]
    for _, line in _lines(facts, "surroundings"):
        if _may_hold(line):
            found += [
                f"a descriptor of {fd['target']} is left to {_may_hold(line)}" for fd in line["descriptors"]
            ]
        if line["has_hooks"]:
            found += [
                f"the child process `{child['command']}` is left to the on_restart hooks"
                for child in line["children"]
            ]
    for _, line in _lines(facts, "examination"):
        found += [
            f"{', '.join(row['variables'])}: starts anew after a restart: {row['reason']}"
            for row in line.get("left_out", ())
            if row["kind"] != "unsaved"
        ]
    threads = [thread for _, line in _lines(facts, "surroundings") for thread in line["threads"]]
    harmless = sorted({thread["name"] for thread in threads if thread["harmless"]})
    found += [f"thread {name!r} is declared harmless: it is gone after a restart" for name in harmless]
    return list(dict.fromkeys(found))


def _lines(facts: Facts, kind: str) -> list[tuple[int, Mapping[str, Any]]]:
    return [
        (rank, line)
        for rank, lines in sorted(facts["ranks"].items())
        for line in lines
        if line["kind"] == kind
    ]


def _last_samples(facts: Facts) -> list[tuple[int, Mapping[str, Any]]]:
    newest = dict(_lines(facts, "samples"))
    return sorted(newest.items())


def sizes(facts: Facts) -> dict[str, Any]:
    """``{"bytes", "largest": [{"where", "type", "bytes"}]}`` of the largest examination of any rank."""
    lines = [line for _, line in _lines(facts, "examination")]
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
    samples = [line for _, line in _last_samples(facts)]
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
