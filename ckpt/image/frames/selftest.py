"""Tests whether the frames extension fits the interpreter that runs it. Asked once, at the import of this room.

The extension reads and writes structs that no public header promises. It knows the full version that it was compiled for; a
later patch release may move a field. So frames and generators whose content is known are made here, and the extension
compares what it reads there with what CPython's public functions say (``frames_selftest.c``); this takes some ten
microseconds. Until all of it fits, the extension has no functions that touch anything private, and ``SUPPORTED`` is 0.
Images are then refused by name, and everything that needs no frames still works.

Not here: which minor versions are known at all (``tables``), and what ``available()`` says of it (``stack``).
"""

from __future__ import annotations

import opcode
import sys
import threading  # the list of calls around a fork, which is looked at, has its entry  # noqa: F401
from collections.abc import Generator, Iterable
from typing import Any

from ckpt.compat import interpreter
from ckpt.image.frames import _frames
from ckpt.image.lowlevel import _lookup

__all__ = ["misfit", "versions"]


class _HandledError(Exception):
    """The exception that is being handled while the extension looks."""


def _inner(marker: object, ask: tuple[Any, list[Any]]) -> str | None:
    try:
        raise _HandledError
    except _HandledError as error:
        return ask[0]((error, *ask[1]))  # type: ignore[no-any-return]


def _caller(marker: object, ask: tuple[Any, list[Any]]) -> list[Any]:
    return [marker, _inner(marker, ask)]


def _steps(marker: object, calls: Iterable[Any]) -> Generator[Any, None, None]:
    yield from calls
    yield [marker, (yield marker)]  # suspended with `marker` on its evaluation stack


def find_misfit() -> str | None:
    """The name of a struct of the interpreter that is not where the extension was compiled to find it; None: all fit."""
    marker = object()
    created, suspended, finished = (_steps(marker, ()) for _ in range(3))
    next(suspended)
    for _ in finished:
        pass
    truth: list[Any] = []
    running = _steps(marker, map(_caller, (marker,), ((_frames.prove, truth),)))  # C calls _caller
    traced = sys.gettrace() is not None or sys.getprofile() is not None
    codes = opcode.opmap["RESUME"], opcode.opmap["BUILD_LIST"]
    truth += [marker, _inner, _caller, _steps, created, suspended, finished, running, traced, *codes]
    found: str | None = next(running)[1]
    return found


def versions() -> str:
    """A clause for messages: the version that the extension was built for and, if it differs, the version that runs it."""
    if interpreter.HEX == _frames.BUILT_HEX:
        return f"was built for this CPython {_frames.BUILT_FOR}"
    return f"was built for CPython {_frames.BUILT_FOR} and does not fit this {sys.version.split()[0]}"


misfit: str | None = None
"""The name of a struct that does not fit, for a message; None: all fit, or the extension does not know this minor
version."""
if hasattr(_frames, "prove"):
    misfit = find_misfit() or _lookup.MISFIT or None
