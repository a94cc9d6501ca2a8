"""Awaitables of asynchronous generators, and of ``anext``: what an ``async for`` holds while it waits. Also the pairs of
hooks that ``sys.get_asyncgen_hooks`` returns.

An awaitable that is under way has begun to send into its generator; a new process gets one of the same state. Private
structs: :mod:`ckpt.compat.awaitables`. Not here: the generators themselves (:mod:`ckpt.image.frames.generators`).
"""

from __future__ import annotations

from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat import asyncio_names, awaitables

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["make_awaitable", "reduce_awaitable", "reduce_hooks"]


def reduce_awaitable(saver: Saver, obj: Any) -> Any:
    parts = awaitables.parts_of(obj)
    if parts is None:
        raise PicklingError(f"this interpreter's {type(obj).__name__} is not as it is known")
    kind, references, state = parts
    return make_awaitable, (kind,), (references, state), None, None, fill_awaitable


def make_awaitable(kind: str) -> Any:
    return awaitables.make(kind)


def fill_awaitable(obj: Any, saved: tuple[tuple[Any, ...], int]) -> None:
    awaitables.fill(obj, *saved)


def reduce_hooks(saver: Saver, obj: Any) -> Any:
    return asyncio_names.make_hooks, tuple(obj)
