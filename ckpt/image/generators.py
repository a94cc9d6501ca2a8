"""Generators and coroutines as picklable content (used by the pickler's reducer for them).

Save:   info = gen_info(gen);  reduce to (gen_make, info.make, info.record, None, None, gen_fill)
Load:   gen = gen_make(*make);  gen_fill(gen, record)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class GenRecord:
    """Content of a generator's own frame. state: "created", "suspended", "running" (its frame is in the Stack) or
    "finished"; lists may hold `_frames.NULL`."""

    state: str
    locals: list[Any]
    stack: list[Any]
    lasti: int
    exc: BaseException | None


@dataclass(slots=True)
class GenInfo:
    """`make`: arguments for gen_make; `record`: state for gen_fill."""

    make: tuple[Any, ...]
    record: GenRecord


def gen_info(gen: Any) -> GenInfo:
    """Content of a generator or coroutine. Raises Refused for what cannot be saved (async generators, …)."""
    raise NotImplementedError


def gen_make(func: Any, name: str, qualname: str) -> Any:
    """A fresh generator of that function (a FunctionType; a CodeType for a finished one), to be filled."""
    raise NotImplementedError


def gen_fill(gen: Any, record: GenRecord) -> None:
    """Put saved content into a generator made by gen_make."""
    raise NotImplementedError
