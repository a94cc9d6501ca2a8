"""The arguments of Spawn and Spawn_multiple, checked, and made into one form. Pure.

Not here: which commands can be started (`ckpt.rank.channel.commands`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from ckpt.mpi.base.errors import ERROR_CLASSES, MpiException
from ckpt.mpi.base.info import Info
from ckpt.mpi.base.integers import argument

_TEXT = (str, bytes, os.PathLike)


def commands_of(commands: Any, args: Any, maxprocs: Any, info: Any) -> list[dict[str, Any]]:
    """One dict for each command: `words`, `count`, `info`. Raises ValueError for lists of different lengths, TypeError for
    what is no text, MpiException (ERR_ARG) for a number of processes below 1 and for none at all."""
    if isinstance(commands, _TEXT):
        raise ValueError("a list of commands is needed, not one command")
    words = [os.fsdecode(command) for command in commands]
    count = len(words)
    if isinstance(args, _TEXT):
        raise ValueError("for each command a list of arguments is needed, not one text")
    arguments = [None] * count if args is None else list(args)
    numbers = (
        list(maxprocs) if isinstance(maxprocs, Iterable) else [1 if maxprocs is None else maxprocs] * count
    )
    infos = [info] * count if isinstance(info, Info) or info is None else list(info)
    for name, given in (("args", arguments), ("maxprocs", numbers), ("info", infos)):
        if len(given) != count:
            raise ValueError(f"{count} commands, and {len(given)} elements in {name}")
    found: list[dict[str, Any]] = [
        {
            "words": [word, *_words(more)],
            "count": argument(number),
            "info": dict(each.items()) if each else {},
        }
        for word, more, number, each in zip(words, arguments, numbers, infos, strict=True)
    ]
    if not found or any(each["count"] < 1 for each in found):
        raise MpiException(ERROR_CLASSES["ERR_ARG"], "at least one process of each command is needed")
    return found


def _words(args: Sequence[Any] | None) -> list[str]:
    if isinstance(args, _TEXT):
        raise ValueError(f"a list of arguments is needed, not the text {args!r}")
    return [] if args is None else [os.fsdecode(each) for each in args]
