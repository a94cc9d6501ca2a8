"""The verdict said once more, as plainly as possible: sets and paths, no order, no state.

Written from docs/diagnosis.md, not from the code. States: "f" faulty, "c" clear, "u" unknown, "n" noted. "s": faulty, and a
symptom. `causes[a]`, `hides[a]`: sets of names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Edges = Mapping[str, frozenset[str]]


def paths(causes: Edges, start: str, way: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every way from a fault up its causes, without the fault itself."""
    for cause in causes[start]:
        yield (*way, cause)
        yield from paths(causes, cause, (*way, cause))


def faults(states: Mapping[str, str], causes: Edges, proving: frozenset[str]) -> set[str]:
    known = plain(states)
    return {
        a
        for a in states
        if states[a] == "f" and all(known[b] in ("cun" if a in proving else "c") for b in causes[a])
    }


def plain(states: Mapping[str, str]) -> dict[str, str]:
    """The same without the difference between symptoms and others."""
    return {a: "f" if state == "s" else state for a, state in states.items()}


def consequences(states: Mapping[str, str], causes: Edges) -> dict[str, set[str]]:
    states = plain(states)
    found = {a: {b for b in causes[a] if states[b] == "f"} for a in states if states[a] == "f"}
    return {a: guilty for a, guilty in found.items() if guilty}


def behind(states: Mapping[str, str], causes: Edges, a: str) -> set[str]:
    """What may have caused it: every cause on a way on which nothing is clear."""
    return {way[-1] for way in paths(causes, a) if all(states[b] in "ufns" for b in way)}


def suspects(states: Mapping[str, str], causes: Edges, proving: frozenset[str]) -> set[str]:
    bad = {a for a in states if states[a] in "fs"}
    return bad - faults(states, causes, proving) - set(consequences(states, causes))


def hidden(states: Mapping[str, str], hides: Edges) -> dict[str, set[str]]:
    return {a: {b for b in states if states[b] in "fs" and a in hides[b]} for a in states if states[a] == "u"}
