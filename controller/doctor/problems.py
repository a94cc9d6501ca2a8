"""The problems that `ckpt doctor` finds, each with a remedy, from the facts of a trial. Pure.

A *problem* is state that would not survive a restart, or a reason why checkpoints cannot be taken. Equal findings of several
examinations and ranks are one problem, with the number of examinations.

    problem   {"kind", "what", "where", "why", "remedy", "ranks", "seen"}      seen: in how many examinations

Kinds: object, package, addresses, thread, child, descriptor, file, refusal, late, image, restart, program, interpreter,
trouble.

Not here: notes, sizes and the whole of the report (`report`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ckpt.controller.doctor.facts import Difference, Facts, last_samples, lines_of, listed, place
from ckpt.controller.supervision import remedies

__all__ = [
    "Problem",
    "children_waited_for",
    "left_out",
    "may_hold",
    "problems",
    "puts_files_back",
    "refusals",
]

Problem = dict[str, Any]

_REFUSED_SHARE = 0.2
_REFUSED_LONG_S = 1.0
_LATE_LONG_S = 2.0


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
    found += _left_out(facts)
    found += _surroundings(facts)
    found += children_waited_for(facts)[0]
    found += _not_undone(facts) if puts_files_back(facts) else _appended(facts)
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


def _objects(facts: Facts) -> list[Problem]:
    found = []
    for rank, line in lines_of(facts, "examination"):
        waiting = _waiting_frame(line)
        for finding in line["findings"]:
            if waiting is not None and _frame_number(finding["where"]) > waiting:
                continue  # an object of subprocess for a running child: see `children_waited_for`
            where = place(finding["where"]) + finding["path"]
            remedy = remedies.for_object(finding["type"], finding["reason"], finding["bases"])
            what = f"an object of type {finding['type']} cannot be saved"
            found.append(_problem("object", what, where, finding["reason"], remedy, rank))
    if not lines_of(facts, "examination"):
        found += [
            _problem(
                "trouble", "an examination failed", "", line["text"], remedies.TROUBLE[line["is_known"]], rank
            )
            for rank, line in lines_of(facts, "trouble")
        ]
    return found


_LEFT_OUT: Final = {
    "unsaved": (
        "package",
        "what has changed in the package {package} since its import is lost",
        remedies.PACKAGE,
    ),
    "not-plain": (
        "package",
        "what has changed in the package {package} since its import is not kept",
        remedies.PACKAGE_NOT_KEPT,
    ),
    "ids": ("addresses", "addresses that are not rewritten", remedies.ADDRESSES),
}
"""{kind of `left_out`: (kind, text and remedy of the problem)}; what an image leaves out for another reason is a note."""


def left_out(facts: Facts, *, harmful: bool) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(rank, row) of what images leave out; `harmful`: a restart loses it. Otherwise it is made anew."""
    for rank, line in lines_of(facts, "examination"):
        for row in line.get("left_out", ()):
            if (row["kind"] in _LEFT_OUT) == harmful:
                yield rank, row


def _left_out(facts: Facts) -> list[Problem]:
    """One problem for each package whose changes are lost, and one for each place of addresses that are not rewritten."""
    found = []
    for rank, row in left_out(facts, harmful=True):
        kind, what, remedy = _LEFT_OUT[row["kind"]]
        places = map(place, row["variables"]) if row["kind"] == "ids" else [", ".join(row["variables"])]
        found += [
            _problem(kind, what.format_map(row), where, row["reason"], remedy, rank) for where in places
        ]
    return found


def _surroundings(facts: Facts) -> list[Problem]:
    found = []
    waited = {
        (rank, line["t_s"])
        for rank, line in lines_of(facts, "examination")
        if _waiting_frame(line) is not None
    }
    for rank, line in lines_of(facts, "surroundings"):
        found += [_thread(thread, rank) for thread in line["threads"] if not thread["harmless"]]
        if (rank, line["t_s"]) in waited:
            continue
        if not line["has_hooks"]:
            found += [_child(child, rank) for child in line["children"]]
        if not may_hold(line):
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


def children_waited_for(facts: Facts) -> tuple[list[Problem], list[str]]:
    """Places where the program waits for a child process: (problems, notes).

    Checkpoints wait as long as the program waits. A place is a problem if the program waited there at every examination.
    """
    looked: dict[int, int] = {}
    waited: dict[tuple[int, str], int] = {}
    for rank, line in lines_of(facts, "examination"):
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


def may_hold(line: Mapping[str, Any]) -> str:
    """Registered types and hooks that may restore descriptors which no file or socket object holds; ``""``: none."""
    hooks = ["the on_restart hooks"] if line["has_hooks"] else []
    return ", ".join([*line["types"], *hooks])


def _child(child: Mapping[str, Any], rank: int) -> Problem:
    why = "it is not part of a checkpoint"
    return _problem("child", "a child process runs", child["command"], why, remedies.CHILD, rank)


def _thread(thread: Mapping[str, Any], rank: int) -> Problem:
    why = "C code has started it, and what that code does cannot be part of a checkpoint"
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


def puts_files_back(facts: Facts) -> bool:
    """Is the program meant for ``--files auto``?"""
    return facts.get("files") == "auto"


def _not_undone(facts: Facts) -> list[Problem]:
    """Changes of files that a restart does not undo; those of processes, where the first of these is started."""
    started = [process["where"] for process in facts.get("processes", ())]
    return [
        _problem(
            "file",
            f"a restart does not undo what is done with {change['path'] or 'files'}",
            change.get("where") or ("" if change["rank"] is not None else next(iter(started), "")),
            change["reason"],
            _remedy(change),
            change["rank"],
        )
        for change in facts.get("not_undone", ())
    ]


def _remedy(change: Mapping[str, Any]) -> str:
    if change["path"].startswith("/dev/"):
        return remedies.OF_MEMORY
    return (
        remedies.NOT_KEPT
        if "limit" in change["reason"] or "space" in change["reason"]
        else remedies.NOT_UNDONE
    )


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
        for rank, line in last_samples(facts)
        for file in line["appended"]
    ]


def refusals(facts: Facts) -> list[dict[str, Any]]:
    """Where the program could not be captured: ``{"reason", "where", "share", "longest_s", "ranks"}``, longest first."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    taken = max(1, sum(line["taken"] for _, line in last_samples(facts)))
    for rank, line in last_samples(facts):
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
    for rank, line in last_samples(facts):
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
    ] + [_difference(restart) for restart in facts["restarts"] if restart["ok"] and restart["differs"]]


def _difference(restart: Mapping[str, Any]) -> Problem:
    difference = Difference.of(restart["differs"])
    return _problem(
        "restart",
        f"a program restored from its image {difference.did} something else than the first run",
        f"{difference.output} {difference.position}",
        f"{difference.restored!r}, twice alike, where the first run {difference.did} "
        f"{difference.first!r}{_also(restart['also'])}",
        remedies.LOST,
        restart["differs"].get("rank"),
    )


def _also(names: Sequence[str]) -> str:
    return f"; other files differ, too: {listed(names)}" if names else ""
