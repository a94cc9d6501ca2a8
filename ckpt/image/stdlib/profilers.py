"""Profiles as objects in an image: ``cProfile.Profile``.

A profile keeps its counts in C. It is saved as its report. After a restart, the counts before the image are added to those
after it (:class:`Earlier`).

Not here: how a profile watches the program again after a restart (:mod:`ckpt.image.frames.tracing`).
"""

from __future__ import annotations

import itertools
from pickle import PicklingError
from typing import Any

from ckpt.compat.accelerators import PROFILER, loaded
from ckpt.image.frames.tracing import c_method, captured_codes, running_calls
from ckpt.image.reducers.saver import Saver

__all__ = ["Earlier", "make_profile", "reduce_profile"]


class Place:
    """Stands for a code object in what a profiler reports."""

    __slots__ = ("co_filename", "co_firstlineno", "co_name")

    def __init__(self, key: tuple[str, int, str]) -> None:
        self.co_filename, self.co_firstlineno, self.co_name = key


Counts = tuple[int, int, float, float]
_NO_COUNTS: Counts = (0, 0, 0.0, 0.0)
Entries = list[tuple[Any, Counts, list[tuple[Any, Counts]]]]


def _key(code: Any) -> Any:
    return code if isinstance(code, str) else (code.co_filename, code.co_firstlineno, code.co_name)


class Earlier:
    """The counts of a profile before a restart. Stands in the place of the profile's ``getstats``, and adds the counts in C
    since the restart."""

    def __init__(self, profile: Any, entries: Entries) -> None:
        self._profile, self._entries = profile, entries

    def __call__(self) -> list[Any]:
        return merged(self._entries, entries_of(c_method(self._profile, "getstats")()))

    def clear(self) -> None:
        """The program clears the profile."""
        self._entries = []
        c_method(self._profile, "clear")()

    @property
    def entries(self) -> Entries:
        return self._entries


def entries_of(stats: list[Any]) -> Entries:
    """The result of ``getstats`` as tuples, lists and numbers."""
    return [
        (
            _key(entry[0]),
            tuple(entry[1:5]),
            [(_key(subentry[0]), tuple(subentry[1:5])) for subentry in entry[5] or ()],
        )
        for entry in stats
    ]


def sum_of(*parts: Entries) -> Entries:
    """The sums of the counts of several periods, with one entry for each function."""
    totals: dict[Any, Counts] = {}
    callees: dict[Any, dict[Any, Counts]] = {}
    for entries in parts:
        for key, counts, below in entries:
            totals[key] = _add(totals.get(key), counts)
            for other, more in below:
                inner = callees.setdefault(key, {})
                inner[other] = _add(inner.get(other), more)
    return [(key, counts, list(callees.get(key, {}).items())) for key, counts in totals.items()]


def _add(a: Counts | None, b: Counts) -> Counts:
    return b if a is None else (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])


def merged(*parts: Entries) -> list[Any]:
    """The sum in the form that ``getstats`` returns, in which each function is one object."""
    module: Any = loaded(PROFILER)
    places: dict[Any, Any] = {}

    def place(key: Any) -> Any:
        return places.setdefault(key, key if isinstance(key, str) else Place(key))

    return [
        module.profiler_entry(
            (
                place(key),
                *counts,
                [module.profiler_subentry((place(other), *more)) for other, more in below] or None,
            )
        )
        for key, counts, below in sum_of(*parts)
    ]


def reduce_profile(pickler: Saver, obj: Any) -> Any:
    attributes = getattr(obj, "__dict__", None)
    if attributes is None:
        raise PicklingError("a profiler without attributes cannot be saved: use cProfile.Profile")
    earlier = attributes.get("getstats")
    now, running = entries_of(c_method(obj, "getstats")()), 0
    if pickler.is_disposable:
        c_method(obj, "disable")()  # counts the running calls as if they had returned
        now, running = _without_running(now, entries_of(c_method(obj, "getstats")()))
    has_earlier = type(earlier) is Earlier
    entries = sum_of(earlier.entries, now) if has_earlier else now
    saved_attributes = {
        key: value for key, value in attributes.items() if not has_earlier or key not in ("getstats", "clear")
    }
    return make_profile, (type(obj),), (saved_attributes, entries, running), None, None, fill_profile


def _without_running(before: Entries, ended: Entries) -> tuple[Entries, int]:
    """The entries ``ended`` without the calls of running captured functions, and the number of these calls. ``before``: the
    entries before the profile was disabled, which has counted these calls as ended."""
    counts = {key: (calls, dict(below)) for key, calls, below in before}
    active = {key: calls[0] - counts[key][0][0] if key in counts else calls[0] for key, calls, _ in ended}
    running: list[Any] = []
    for code in reversed(captured_codes):
        key = _key(code)
        if active.get(key, 0) < 1:
            break
        active[key] -= 1
        running.append(key)
    inner = [(caller, callee) for callee, caller in itertools.pairwise(running)]
    found = []
    for key, calls, below in ended:
        known, known_below = counts.get(key, (_NO_COUNTS, {}))
        rest = [
            (other, _subtract_running(more, known_below.get(other, _NO_COUNTS), inner.count((key, other))))
            for other, more in below
        ]
        found.append((key, _subtract_running(calls, known, running.count(key)), rest))
    return found, len(running)


def _subtract_running(ended: Counts, before: Counts, running: int) -> Counts:
    """The counts ``ended``, less ``running`` calls. Recursive calls among these are not known, so that number is
    estimated."""
    recursive = max(before[1], ended[1] - running)
    return (ended[0] - running, recursive, ended[2], ended[3])


def make_profile(cls: Any) -> Any:
    profile = cls.__new__(cls)
    c_method(profile, "__init__")()
    return profile


def fill_profile(profile: Any, state: tuple[dict[str, Any], Entries, int]) -> None:
    attributes, entries, running_calls[id(profile)] = state
    profile.__dict__.update(attributes)
    if entries:
        earlier = Earlier(profile, entries)
        profile.__dict__.update(getstats=earlier, clear=earlier.clear)
