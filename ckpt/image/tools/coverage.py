"""coverage: its tracer in C (``CTracer``) is started again after a restart. The state of a tracer is its attributes.

After a restart, the tracer is called for each running function again, beginning with the outermost one that it traced before
(:mod:`ckpt.image.frames.tracing`). The lists of those that are at work are variables of coverage's classes.
"""

from __future__ import annotations

import sys
from types import FrameType, MemberDescriptorType
from typing import Any

from ckpt.image.frames import tracing
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.saver import Saver

__all__ = ["Coverage"]

_TRACER = "coverage.tracer"
_LISTS = (("coverage.collector", "Collector", "_collectors"), ("coverage.control", "Coverage", "_instances"))


class Coverage(Library):
    is_left_alone = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        tracing.tracers.append((is_tracer, start))

    def reducers(self) -> dict[type, Reducer]:
        return by_name(_TRACER, {"CTracer": reduce_members, "CFileDisposition": reduce_members})

    def note_settings(self) -> Any:
        """Also where a collector is at work that has not started its tracer yet."""
        return [list(found) for found in _at_work()] if any(_at_work()) else None

    def apply_settings(self, saved: Any) -> None:
        for found, objects in zip(_at_work(), saved, strict=True):
            found[:] = objects


def _at_work() -> list[list[Any]]:
    """The lists; where this version of coverage has none, an empty one."""
    found = [
        getattr(getattr(sys.modules.get(module), name, None), variable, None)
        for module, name, variable in _LISTS
    ]
    return [each if type(each) is list else [] for each in found]


def is_tracer(cls: type) -> bool:
    return cls is getattr(sys.modules.get(_TRACER), "CTracer", None)


def start(tracer: Any, frames: list[FrameType]) -> None:
    """Start a CTracer again."""
    tracer.start()
    known = [index for index, frame in enumerate(frames) if frame.f_trace is tracer]
    for frame in frames[known[0] :] if known else ():
        tracer(frame, "call", None)


def reduce_members(pickler: Saver, obj: Any) -> Any:
    """The reducer for an object in C whose member attributes are its whole state, apart from running calls."""
    names = [name for name, found in type(obj).__dict__.items() if type(found) is MemberDescriptorType]
    # An attribute that is not set reads as None; setting None has the same effect in C
    state = {name: getattr(obj, name) for name in names}
    return type(obj), (), state, None, None, fill_members


def fill_members(obj: Any, members: dict[str, Any]) -> None:
    for name, value in members.items():
        setattr(obj, name, value)
