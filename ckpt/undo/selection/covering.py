"""Decides which files the patterns of a job or a program mean: relative ones begin at a given directory, links are followed.

Paths that patterns are compared with are canonical: no symbolic link leads to them. So links are followed in the directories
of a pattern up to its first special character; of a pattern without one, the name itself and what it leads to are meant.

Not here: how a path is compared with a pattern (:mod:`ckpt.undo.selection.patterns`).
"""

from __future__ import annotations

import os

from ckpt.undo.selection.patterns import AUTO, LEFT_OUT, SPECIAL, Choice, Patterns, check, words_of

__all__ = ["Covering", "absolute", "covering"]


def absolute(text: str, directory: str) -> list[str]:
    """The absolute patterns for a pattern. ``directory``: where a relative one begins. Raises ValueError: it is none."""
    from glob import escape

    check(text)
    special = SPECIAL.search(text)
    if special is None:
        path = os.path.normpath(os.path.join(directory, text))
        head, name = os.path.split(path)
        names = os.path.join(os.path.realpath(head), name), os.path.realpath(path)
        return [escape(each) for each in dict.fromkeys(names)]
    head, slash, rest = text[: special.start()].rpartition("/")
    above = os.path.realpath(os.path.join(directory, head + slash))
    return [os.path.join(escape(above), rest + text[special.start() :])]


class Covering:
    """Says of a canonical absolute path whether it is covered."""

    def __init__(self, wanted: Patterns, left_out: Patterns) -> None:
        self._wanted, self._left_out = wanted, left_out

    def __call__(self, path: str) -> bool:
        return (not self._wanted.texts or self._wanted.match(path)) and not self._left_out.match(path)

    def divides(self, directory: str) -> bool:
        """Is it possible that of the names in this canonical directory some are covered and some are not?"""
        return self._wanted.divide(directory) or self._left_out.divide(directory)


def covering(choice: Choice, directory: str) -> Covering | None:
    """The function that says whether a canonical absolute path is covered; None: all are. Raises ValueError: a word is no
    pattern."""
    words = [word for word in words_of(choice) if word != AUTO]
    if not words:
        return None
    wanted = _patterns([word for word in words if not word.startswith(LEFT_OUT)], directory)
    left_out = _patterns([word[1:] for word in words if word.startswith(LEFT_OUT)], directory)
    return Covering(wanted, left_out)


def _patterns(words: list[str], directory: str) -> Patterns:
    return Patterns([text for word in words for text in absolute(word, directory)])
