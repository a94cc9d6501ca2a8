"""Which files the patterns of a job or a program mean: relative ones begin at a given directory, links are followed.

Paths that patterns are compared with are canonical: no symbolic link leads to them. So links are followed in the directories
of a pattern up to its first special character; of a pattern without one, the name itself and what it leads to are meant.

Not here: how a path is compared with a pattern (:mod:`ckpt.undo.selection.patterns`).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable

from ckpt.undo.selection.patterns import AUTO, LEFT_OUT, Choice, Patterns, check, words_of

__all__ = ["absolute", "covering"]

_SPECIAL = re.compile(r"[*?[]")


def absolute(text: str, directory: str) -> list[str]:
    """The absolute patterns for a pattern. ``directory``: where a relative one begins. Raises ValueError: it is none."""
    check(text)
    special = _SPECIAL.search(text)
    if special is None:
        path = os.path.normpath(os.path.join(directory, text))
        head, name = os.path.split(path)
        names = os.path.join(os.path.realpath(head), name), os.path.realpath(path)
        return [glob.escape(each) for each in dict.fromkeys(names)]
    head, slash, rest = text[: special.start()].rpartition("/")
    above = os.path.realpath(os.path.join(directory, head + slash))
    return [os.path.join(glob.escape(above), rest + text[special.start() :])]


def covering(choice: Choice, directory: str) -> Callable[[str], bool] | None:
    """The function that says whether a canonical absolute path is covered; None: all are. Raises ValueError: a word is no
    pattern."""
    words = [word for word in words_of(choice) if word != AUTO]
    if not words:
        return None
    wanted = _patterns([word for word in words if not word.startswith(LEFT_OUT)], directory)
    left_out = _patterns([word[1:] for word in words if word.startswith(LEFT_OUT)], directory)
    return lambda path: (not wanted.texts or wanted.match(path)) and not left_out.match(path)


def _patterns(words: list[str], directory: str) -> Patterns:
    return Patterns([text for word in words for text in absolute(word, directory)])
