"""The words of a program on the command line of `ckpt run` and `ckpt doctor`: what to run, and by which interpreter.

    APP.PY [ARG ...]        -m MODULE [ARG ...]        -c CODE [ARG ...]
    python [OPTION ...] (any of the three)             TOOL [ARG ...]     a Python script found on PATH

The words from the script, ``-m`` or ``-c`` on are kept in the form in which ``python`` itself takes them; `job.json`
contains this form, and ranks get it. A first word ``python``, ``python3`` or ``/path/to/python3.12``, as people type it
after ``mpiexec -n 4``, names the interpreter of the ranks; the options after it are options of that interpreter.

This module is imported before the agent is started, so its top imports only what the interpreter has already loaded.
Not here: the options of `ckpt` itself (`arguments`), and whether another interpreter can be used (`interpreter`).
"""

from __future__ import annotations

import os
import stat

from ckpt.controller.errors import UsageError

TYPE_CHECKING = False  # what typing has, without importing it
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

USAGE = "(APP.PY | -m MODULE | -c CODE | python ...) [ARG ...]"

_TAKEN = "bBdOqsuv"
_TAKEN_WITH_VALUE = "WX"
_REFUSED = {
    "E": "the ranks' hash seed is handed down in the environment",
    "I": "the ranks' hash seed is handed down in the environment",
    "P": "a rank starts from the modules of the launcher",
    "S": "ckpt is found through the site module",
    "i": "a rank has no terminal",
    "x": "a rank reads its script whole",
}


_OTHER_INTERPRETERS = "sh bash dash zsh ksh csh tcsh fish perl ruby Rscript node julia".split()  # noqa: SIM905


class Command:
    """A program as it was typed. Attributes:

    words: from the script, ``-m`` or ``-c`` on, as ``python`` takes them.
    interpreter: the word that names another Python, as typed; None: the one that runs this command.
    options: of that interpreter, to be handed on.
    """

    __slots__ = ("interpreter", "options", "words")

    def __init__(
        self, words: Sequence[str], interpreter: str | None = None, options: Sequence[str] = ()
    ) -> None:
        self.words = list(words)
        self.interpreter = interpreter
        self.options = list(options)

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        """Raises UsageError for an option of Python that cannot be handed on."""
        if not words or not names_python(words[0]):
            return cls(words)
        options, rest = _interpreter_options(words)
        return cls(rest, words[0], options)

    @property
    def script(self) -> str | None:
        """The file to run; None for a module, for code, and when there is no program."""
        return self.words[0] if self.words and self.words[0] not in ("-m", "-c") else None

    @property
    def name(self) -> str:
        """A name for a job that runs it."""
        return self.words[1] if self.words[0] == "-m" else os.path.basename(self.script or "code")

    @property
    def typed(self) -> list[str]:
        """The words with which the user can name the same program again."""
        return [*([self.interpreter] if self.interpreter else []), *self.options, *self.words]

    def complete(self) -> Self:
        """The command with its script found: a file of that name, or a Python script of that name on PATH.

        Raises UsageError when there is no program, or its script cannot be read.
        """
        script = self.script
        if script is None:
            if not self.words:
                raise UsageError(f"which program? {USAGE}")
            if len(self.words) < 2:
                what = "a module" if self.words[0] == "-m" else "code"
                raise UsageError(f"{self.words[0]} wants {what} behind it")
            return self
        if script == "-" or _comes_once(script):
            source = "standard input" if script == "-" else f"a pipe or an open descriptor ({script})"
            raise UsageError(f"a program that is read from {source} cannot be started again; name a file")
        try:
            with open(script, "rb") as file:
                self._refuse_others(script, file.readline(512))
            return self
        except IsADirectoryError:
            return self  # one with a __main__.py
        except FileNotFoundError as error:
            found = self._on_path(script) if self.interpreter is None and os.sep not in script else None
            if found is not None:
                return found
            self._refuse_others(script, b"")
            raise UsageError(f"cannot read {script}: {error.strerror}") from error
        except OSError as error:
            raise UsageError(f"cannot read {script}: {error.strerror}") from error

    def _refuse_others(self, script: str, first: bytes) -> None:
        """Raise UsageError for a program that is not Python's. `first`: its first line; empty: it is looked for on PATH."""
        import shutil

        if not first and os.sep not in script and (path := shutil.which(script)) is not None:
            first = _first_line(path)
        if self.interpreter is not None or script.endswith((".py", ".pyw")):
            return
        if first.startswith(b"\x7fELF"):
            raise UsageError(f"{script} is a compiled program, and ckpt runs programs in Python")
        line = _interpreter_line(first)
        if line and os.path.basename(line[0]) in _OTHER_INTERPRETERS:
            raise UsageError(
                f"{script} is a script of {line[0]}, and ckpt runs programs in Python: call `ckpt run` in the script, or "
                f"name the program that the script runs"
            )

    def _on_path(self, name: str) -> Self | None:
        """The Python script that a shell would run for this word, by the interpreter in its first line."""
        import shutil

        path = shutil.which(name)
        if path is None:
            return None
        line = _interpreter_line(_first_line(path))
        if not line or not names_python(line[0]):
            return None
        options, _ = _interpreter_options(line)
        return type(self)([path, *self.words[1:]], line[0], options)


def _comes_once(script: str) -> bool:
    """Whether a path leads to what this process alone has, and other ranks and restarts have not.

    So it is with ``/dev/stdin``, and ``<(…)`` of a shell. By the path: behind it may be a file, and the ranks have another
    one there, or none.
    """
    if os.path.abspath(script).startswith(("/dev/stdin", "/dev/fd/", "/proc/")):
        return True
    try:
        return stat.S_ISFIFO(os.stat(script).st_mode)
    except OSError:
        return False


def _first_line(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.readline(512)
    except OSError:
        return b""


def _interpreter_line(first: bytes) -> list[str]:
    """The words of a script's first line: its interpreter and the options of that."""
    line = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if line and os.path.basename(line[0]) == "env":
        line = line[2:] if line[1:2] == ["-S"] else line[1:]
    return line


def split_program(arguments: Sequence[str], flags: frozenset[str]) -> tuple[list[str], list[str]]:
    """Cut the arguments of `run`, `submit` and `doctor` into (options, program with its arguments).

    The program begins at the first word that is no option, after ``--``, or with ``-m`` or ``-c``. `flags`: the
    options that take no value.
    """
    position = 0
    while position < len(arguments):
        word = arguments[position]
        if word == "--":
            return list(arguments[:position]), list(arguments[position + 1 :])
        if word in ("-", "-m", "-c") or not word.startswith("-"):
            break
        glued = "=" in word or (word[1] != "-" and len(word) > 2 and word != "-np")  # -n4
        position += 1 if word in flags or glued else 2
    return list(arguments[:position]), list(arguments[position:])


def names_python(word: str) -> bool:
    """Is the word the name of an interpreter, and not that of a script?"""
    name = os.path.basename(word).removeprefix("python")
    return name != os.path.basename(word) and all(part.isdecimal() for part in name.split(".") if name)


def _interpreter_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(the options after the name of the interpreter, one word each; the words of the program)."""
    options: list[str] = []
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "-m", "-c"):
        word = rest.pop(0)
        for index, letter in enumerate(word[1:], start=1):
            glued = word[index + 1 :]
            if letter in "mc":
                return options, [f"-{letter}", *([glued] if glued else []), *rest]
            if letter in _TAKEN_WITH_VALUE:
                if not glued and not rest:
                    raise UsageError(f"python's option -{letter} wants a value")
                options.append(f"-{letter}{glued or rest.pop(0)}")
                break
            if letter not in _TAKEN:
                option = word if letter == "-" else f"-{letter}"
                reason = _REFUSED.get(letter, "it is not known here")
                raise UsageError(f"python's option {option} cannot be handed on to ranks: {reason}")
            options.append(f"-{letter}")
    return options, rest
