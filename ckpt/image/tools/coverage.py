"""coverage: its tracer in C (``CTracer``) is started again after a restart. The state of a tracer is its attributes.

After a restart, the tracer is called for each running function again, beginning with the outermost one that it traced before
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
    collectors = getattr(type(collector), "_collectors", None)  # changes in a compiled package are not saved
    if type(collectors) is list and collector not in collectors:
        collectors.append(collector)
    tracer.start()
    known = [index for index, frame in enumerate(frames) if frame.f_trace is tracer]
    for frame in frames[known[0] :] if known else ():
        tracer(frame, "call", None)


def reduce_members(pickler: Saver, obj: Any) -> Any:
    """The reducer for an object in C whose member attributes are its whole state, apart from running calls."""
    names = [name for name, found in type(obj).__dict__.items() if type(found) is MemberDescriptorType]
    state = {
        name: getattr(obj, name) for name in names
    }  # an attribute that is not set reads as None; setting None has the same effect in C
    return type(obj), (), state, None, None, fill_members


def fill_members(obj: Any, members: dict[str, Any]) -> None:
    for name, value in members.items():
        setattr(obj, name, value)
