"""Files whose changes stay at a restart, by the program's own wish: a log for people, a queue to others.

Not here: that changes of such a file are not recorded (:mod:`ckpt.rank.files`), how a restart opens it again
(:mod:`ckpt.image.files.reopen`).
"""

from __future__ import annotations

import os

from ckpt.undo.selection.covering import absolute
from ckpt.undo.selection.patterns import Patterns

__all__ = ["are_kept", "divide", "is_kept", "keep", "patterns"]

_kept: list[Patterns] = []  # one, of all patterns so far


def keep(pattern: str) -> list[str]:
    """Changes of files that match stay from now on. Relative patterns begin in the working directory. Returns the absolute
    patterns. Raises ValueError for what is no pattern.
    """
    added = absolute(pattern, os.getcwd())
    _kept[:] = [Patterns(dict.fromkeys([*patterns(), *added]))]
    return added


def patterns() -> list[str]:
    """The absolute patterns of all files whose changes stay."""
    return [text for each in _kept for text in each.texts]


def are_kept() -> bool:
    """Do changes of any files stay?"""
    return bool(_kept)


def divide(directory: str) -> bool:
    """Is it possible that of the names in this canonical directory some stay and some do not?"""
    return any(each.divide(directory) for each in _kept)


def is_kept(path: str) -> bool:
    """Do changes of the file with this canonical absolute path stay?"""
    return any(each.match(path) for each in _kept)
