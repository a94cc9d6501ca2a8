"""Greenlets, also those of gevent: images are refused while one is alive, because its stack is in C.

A suspended greenlet may be referred to by C only (gevent's loop), or by a variable of a package: so all objects are
searched. Two greenlets do no harm: a main greenlet, which is the thread itself, and gevent's hub, which is made again when
it is needed. A program that holds the main greenlet of its main thread, as the tables of celery that belong to a thread do,
gets that of the new process.
"""

from __future__ import annotations

import gc
import sys
from pickle import PicklingError
from typing import Any

from ckpt.image.errors import Unpicklable
from ckpt.image.frames.stack import on_other_stacks
from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Greenlet"]

_RUNS_IN_ONE = "the program runs in a greenlet (gevent, eventlet), whose stack lives in C and cannot be saved"


_REASON = (
    "it is alive, and its stack lives in C and cannot be saved; let it end before a checkpoint, or use threads, asyncio or "
    "generators in its place (salabim: yieldless=False)"
)


class Greenlet(Library):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        on_other_stacks.append(self._reason)

    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, {"greenlet": reduce_greenlet})

    def _reason(self) -> str:
        is_main = self.module is None or self.module.getcurrent().parent is None
        return "" if is_main else _RUNS_IN_ONE

    def refuse(self) -> None:
        greenlet_type = self.module.greenlet
        if self.module.getcurrent().parent is not None:
            raise Unpicklable(
                "the program", "it is running in a greenlet, whose stack lives in C and cannot be saved"
            )
        for obj in gc.get_objects():
            if issubclass(type(obj), greenlet_type) and _is_alive(obj):
                raise Unpicklable(_name(obj), _REASON)


def reduce_greenlet(saver: Any, obj: Any) -> Any:
    if obj is current():
        return current, ()
    raise PicklingError(
        "a greenlet cannot be saved, nor what belongs to another thread by its greenlet (celery, while a task runs there); "
        "a later image succeeds, once that is over"
    )


def current() -> Any:
    """The main greenlet: images are saved and loaded in the main thread, where no other one runs."""
    return sys.modules["greenlet"].getcurrent()


def _is_alive(greenlet: Any) -> bool:
    is_hub = type(greenlet).__module__ == "gevent.hub"
    if greenlet.parent is None or is_hub:
        return False
    return bool(greenlet) or bool(getattr(greenlet, "started", False))


def _name(greenlet: Any) -> str:
    frame = greenlet.gr_frame
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    run = getattr(greenlet, "_run", None)
    name = frame.f_code.co_qualname if frame is not None else getattr(run, "__qualname__", "")
    return f"a greenlet ({name})" if name else "a greenlet"
