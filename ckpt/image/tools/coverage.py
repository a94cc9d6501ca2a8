"""coverage: its tracer in C (``CTracer``) goes on after a restart. Its state is its attributes.

It is told of the functions again that run, beginning with the first one that it has been told of before
(:mod:`ckpt.image.frames.tracing`).
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


class Coverage(Library):
    is_left_alone = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        tracing.tracers.append((is_tracer, start))

    def reducers(self) -> dict[type, Reducer]:
        return by_name(_TRACER, {"CTracer": reduce_members, "CFileDisposition": reduce_members})


def is_tracer(cls: type) -> bool:
    return cls is getattr(sys.modules.get(_TRACER), "CTracer", None)


def start(tracer: Any, frames: list[FrameType]) -> None:
    """Start a CTracer again."""
    collector = getattr(tracer.lock_data, "__self__", None)
    collectors = getattr(
        type(collector), "_collectors", None
    )  # the package, compiled, starts as after its import
    if type(collectors) is list and collector not in collectors:
        collectors.append(collector)
    tracer.start()
    known = [index for index, frame in enumerate(frames) if frame.f_trace is tracer]
    for frame in frames[known[0] :] if known else ():
        tracer(frame, "call", None)


def reduce_members(pickler: Saver, obj: Any) -> Any:
    """An object in C whose attributes are its whole state, but for what runs."""
    names = [name for name, found in type(obj).__dict__.items() if type(found) is MemberDescriptorType]
    state = {
        name: getattr(obj, name) for name in names
    }  # what is not set reads as None, which C takes for no less
    return type(obj), (), state, None, None, fill_members


def fill_members(obj: Any, members: dict[str, Any]) -> None:
    for name, value in members.items():
        setattr(obj, name, value)
