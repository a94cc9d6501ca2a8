"""The search path of modules: ``sys.path`` in an image, translated for the process that resumes the image.

- Entries of the program are not changed.
- Entries of the standard library become those of the resuming interpreter, which may be another patch version in another
  directory.
- Entries below the prefix of the interpreter (``site-packages`` of a virtual environment) that do not exist any more are
  searched for below the new prefix: a virtual environment may have moved, or be on another machine.

Not here: which modules an image names (:mod:`ckpt.image.modules.references`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache

__all__ = ["Roots", "roots", "translated"]

Roots = dict[str, str]
"""Name of a directory as in :func:`sysconfig.get_paths` (``stdlib``, ``purelib``, …), or ``prefix`` → its path."""

_STANDARD = ("platstdlib", "stdlib", "base_prefix")
_INSTALLED = ("platlib", "purelib", "prefix")


@cache
def roots() -> Roots:
    """The directories of this interpreter. They stay the same; the agent has them found before it forks ranks."""
    paths = sysconfig.get_paths()
    found: Roots = {
        name: paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths
    }
    return {**found, "prefix": sys.prefix, "base_prefix": sys.base_prefix}


def translated(entries: list[str], before: Roots, now: Roots) -> list[str]:
    """The entries of ``sys.path`` in an image, translated. ``before``, ``now``: directories of the interpreter that has
    taken the image, and of this one.
    """
    return [_translated(entry, before, now) for entry in entries]


def _translated(entry: str, before: Roots, now: Roots) -> str:
    if not _below(entry, before, ("purelib", "platlib")):
        for name in _STANDARD[:2]:
            if _below(entry, before, (name,)):
                return now.get(name, before[name]) + entry[len(before[name]) :]
        if entry.endswith(".zip") and _below(entry, before, ("base_prefix",)):
            return now["base_prefix"] + entry[len(before["base_prefix"]) :]
    if os.path.exists(entry):
        return entry
    for name in (*_INSTALLED, "base_prefix"):
        if _below(entry, before, (name,)) and name in now:
            moved = now[name] + entry[len(before[name]) :]
            if os.path.exists(moved):
                return moved
    return entry


def _below(entry: str, places: Roots, names: tuple[str, ...]) -> bool:
    return any(
        name in places and (entry == places[name] or entry.startswith(places[name] + os.sep))
        for name in names
    )
