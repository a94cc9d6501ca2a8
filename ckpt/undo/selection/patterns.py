"""Patterns that say which files are meant: shell patterns for canonical absolute paths, and the words of ``ckpt run
--files``.

A pattern is one of :mod:`fnmatch`; ``*`` also stands for what is below a directory. A path matches if it fits the pattern
itself, or lies below a directory that does.

::

    "off"       no file is covered
    "auto"      every file
    PATTERN …   the files that match one of these
    !PATTERN …  but not those that match one of these; alone or with "auto": of all files

Pure. Not here: what a relative pattern means (:mod:`ckpt.undo.selection.covering`), what is never covered
(:mod:`ckpt.undo.watching`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Sequence

from ckpt.transport.records import NamedTuple

__all__ = [
    "AUTO",
    "LEFT_OUT",
    "OFF",
    "SPECIAL",
    "Choice",
    "Choices",
    "Chosen",
    "Patterns",
    "check",
    "chosen",
    "is_recorded",
    "text_of",
    "words_of",
]

AUTO, OFF, LEFT_OUT = "auto", "off", "!"
SPECIAL = re.compile(r"[*?[]")
"""The first special character of a pattern."""

Choice = str | Sequence[str]
"""``"auto"``, ``"off"``, or the words of both kinds of patterns. A value for JSON."""


class Chosen(NamedTuple):
    """A choice, and the directory in which its relative patterns begin."""

    words: list[str]
    directory: str


class Choices:
    """Which files are covered, over the restarts of a job. ``first``: since its start; ``later``: (epoch, choice), by epoch:
    the job has gone on from this checkpoint with another choice.
    """

    def __init__(self, first: Chosen, later: Sequence[tuple[int, Chosen]] = ()) -> None:
        self.first = first
        self.later = list(later)

    def since(self, epoch: int) -> list[Chosen]:
        """All choices that have been in force since this checkpoint: a file has been recorded if all of them cover it."""
        before = [chosen for at, chosen in self.later if at <= epoch][-1:] or [self.first]
        return before + [chosen for at, chosen in self.later if at > epoch]

    def go_on(self, epoch: int, now: Chosen) -> Choices:
        """The job goes back to this checkpoint, and on with the choice ``now``."""
        later = [(at, chosen) for at, chosen in self.later if at < epoch]
        last = later[-1][1] if later else self.first
        return Choices(self.first, later if now == last else [*later, (epoch, now)])


class Patterns:
    """Patterns that a path is compared with. ``texts``: absolute patterns."""

    def __init__(self, texts: Collection[str]) -> None:
        self.texts = list(texts)
        found = "|".join(fnmatch.translate(each) for text in texts for each in (text, _below(text)))
        self._expression = re.compile(found) if found else None

    def match(self, path: str) -> bool:
        """Does this canonical absolute path match one of the patterns?"""
        return self._expression is not None and self._expression.match(path) is not None

    def divide(self, directory: str) -> bool:
        """Is it possible that of the names in this canonical directory some match and some do not?"""
        return any(_divides(text, directory + "/") for text in self.texts)


def _divides(text: str, inside: str) -> bool:
    fixed = text[: special.start()] if (special := SPECIAL.search(text)) else text
    if special is None and inside.startswith(text.rstrip("/") + "/"):
        return False  # all that is below it matches
    return fixed.startswith(inside) or (special is not None and inside.startswith(fixed))


def _below(text: str) -> str:
    return text.rstrip("/") + "/*"


def check(text: str) -> None:
    """Raises ValueError for what is no pattern."""
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is no pattern for paths")


def chosen(words: Sequence[str]) -> Choice:
    """The choice that the words of a command line make. Raises ValueError for words that make no sense."""
    for word in words:
        if word == LEFT_OUT:
            raise ValueError(f"{word!r} is no pattern for paths")
        check(word.removeprefix(LEFT_OUT))
    if OFF in words and len(set(words)) > 1:
        raise ValueError("off goes with no pattern; ./off is a file of that name")
    wanted = [word for word in words if word not in (AUTO, OFF) and not word.startswith(LEFT_OUT)]
    if AUTO in words and wanted:
        raise ValueError(
            f"auto covers all files, {wanted[0]} among them: leave one of the two out; ./auto is a file of that name"
        )
    return words[0] if len(set(words)) == 1 and words[0] in (AUTO, OFF) else list(dict.fromkeys(words))


def words_of(choice: Choice | None) -> list[str]:
    """The words that have made a choice; none: it has not been made."""
    return [choice] if isinstance(choice, str) else list(choice or ())


def text_of(choice: Choice) -> str:
    """The choice, for people."""
    return " ".join(words_of(choice))


def is_recorded(choice: Choice) -> bool:
    """Are changes of any file recorded?"""
    return words_of(choice) != [OFF]
