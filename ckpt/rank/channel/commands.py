"""The commands of processes that a program starts (MPI's Spawn), made into the words that ``python`` takes.

    the interpreter of the job, with arguments     ["-m", "server"] and the like; its own options may be repeated
    a Python script                                found in the directory, in those of the key "path", or on PATH

The agent forks these processes as it forks ranks, so nothing but a Python program under the same interpreter can be started.
What cannot be started is refused with a reason, before anything is asked for.

Of the new process: `begun`, before it says that it is there.

Not here: how they are asked for (:mod:`ckpt.rank.asking`).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine

__all__ = ["Refused", "begun", "completed"]

_INTERPRETER = re.compile(r"python(\d+(\.\d+)?)?")
_TRIPLET = re.compile(r"(\d+)(?::(\d+)(?::([1-9]\d*))?)?")
_FLAGS = {
    "b": "bytes_warning", "B": "dont_write_bytecode", "d": "debug", "E": "ignore_environment", "I": "isolated",
    "O": "optimize", "P": "safe_path", "q": "quiet", "R": "hash_randomization", "s": "no_user_site", "S": "no_site",
    "v": "verbose",
}  # fmt: skip


class Refused(Exception):
    """This cannot be started; the text says why."""


def completed(command: Mapping[str, Any], most: int) -> dict[str, Any]:
    """One command as it is sent: ``argv``, ``directory``, and the ``counts`` of processes that are allowed.

    ``command``: ``words`` (command and arguments), ``count`` and ``info`` of the call; ``most``: how many processes the job
    can start. Raises Refused.
    """
    info, words = command["info"], list(command["words"])
    directory = os.path.abspath(info.get("wdir", "."))
    if not os.path.isdir(directory):
        raise Refused(f"wdir {directory}: no such directory")
    if info.get("host", "localhost") not in ("localhost", os.uname().nodename):
        raise Refused(f"host {info['host']}: processes are started on this host, {os.uname().nodename}")
    if _INTERPRETER.fullmatch(os.path.basename(words[0])):
        argv = _after_interpreter(words, directory)
    else:
        argv = [_script(words[0], directory, info.get("path", "")), *words[1:]]
    return {
        "argv": argv,
        "directory": directory,
        "counts": _allowed(command["count"], info.get("soft"), most),
    }


def _after_interpreter(words: Sequence[str], directory: str) -> list[str]:
    found, own = shutil.which(words[0]), sys.executable
    same = found is not None and os.path.realpath(found) == os.path.realpath(own)
    if found is None or not same or os.path.dirname(os.path.abspath(found)) != os.path.dirname(own):
        where = "not found" if found is None else f"{os.path.abspath(found)}"
        raise Refused(f"{words[0]} is {where}, and the job runs under {own} (sys.executable)")
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "-m", "-c"):
        word = rest.pop(0)
        if word[1:2] in ("W", "X"):
            value = word[2:] or (rest.pop(0) if rest else "")
            modes = {"dev": sys.flags.dev_mode, "utf8": sys.flags.utf8_mode}
            if not (value in sys.warnoptions if word[1] == "W" else modes.get(value)):
                raise Refused(f"{word} {value}: the interpreter runs already, without that option")
            continue
        for letter in word[1:]:
            if letter != "u" and not (letter in _FLAGS and getattr(sys.flags, _FLAGS[letter])):
                raise Refused(f"{word}: the interpreter runs already, without that option")
    if not rest or rest[0] == "-":
        raise Refused(f"{words[0]} without a program: give it a script, -m and a module, or -c and code")
    if rest[0] in ("-m", "-c"):
        if len(rest) < 2:
            raise Refused(f"{rest[0]} wants {'a module' if rest[0] == '-m' else 'code'} behind it")
    elif not os.path.exists(os.path.join(directory, rest[0])):
        raise Refused(f"cannot read {rest[0]}: no such file in {directory}")
    return rest


def _script(name: str, directory: str, path: str) -> str:
    """The path of the Python script of this name, as the program will see it. Raises Refused."""
    where = [os.path.join(directory, name)]
    if os.sep not in name:
        where += [os.path.join(directory, each, name) for each in path.split(os.pathsep) if each]
        where += [found] if (found := shutil.which(name)) is not None else []
    for file in where:
        if os.path.isfile(file):
            break
    else:
        raise Refused(f"cannot find {name} in {directory}{' and on PATH' if os.sep not in name else ''}")
    if not name.endswith((".py", ".pyz")):
        try:
            with open(file, "rb") as script:
                first = script.readline(512)
        except OSError as failure:
            raise Refused(f"cannot read {file}: {failure.strerror}") from None
        if not first.startswith(b"#!") or b"python" not in first:
            raise Refused(f"{name} is no Python program, and the job starts no others")
    return name if file == where[0] else file


def _allowed(count: int, soft: str | None, most: int) -> list[int]:
    """The numbers of processes that are allowed (key "soft": "a:b:c", or several of these), at most ``count``; and of others
    than that, at most ``most``: more there never are."""
    if soft is None:
        return [count]
    found: set[int] = set()
    for each in soft.replace(" ", "").split(","):
        match = _TRIPLET.fullmatch(each)
        if match is None:
            raise Refused(f"soft {soft!r}: numbers, A:B or A:B:STEP, with commas between them")
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        found.update(range(low, min(high, count, most) + 1, step))
    allowed = sorted(number for number in found | {count} if 0 < number <= count)
    if not allowed:
        raise Refused(f"soft {soft!r}: no number from 1 to {count}")
    return allowed


def begun(engine: Engine, spec: Mapping[str, Any]) -> Callable[[], object] | None:
    """Make this process one that was started later, and look at its program: so whoever has asked for it is told what is
    wrong with that. Returns what runs it; ``None``: a module, whose packages are imported when there is a port, as in a
    rank."""
    from ckpt.image import prepare_program
    from ckpt.mpi.engine.spawning import Spawns

    words: list[str] = spec["argv"]
    engine.spawns = Spawns(dict(spec["parent"]))
    os.chdir(spec["parent"]["directory"])
    if words[0] != "-m":
        return prepare_program(words)
    import importlib.util

    sys.path.insert(0, os.getcwd())
    try:
        if importlib.util.find_spec(words[1].partition(".")[0]) is None:
            raise ModuleNotFoundError(f"No module named {words[1]!r}")
    finally:
        sys.path.pop(0)
    return None
