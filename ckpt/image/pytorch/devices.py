"""Streams and events of CUDA: made anew, with nothing to do.

A stream has the number that it had, so that objects that were one stream are one again. An event that had been recorded has
happened; times between events of before and after a restart begin with the restart.
"""

from __future__ import annotations

import importlib
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.libraries.tensors import gpu_of

__all__ = ["fill_attributes", "make_event", "make_stream", "reduce_event", "reduce_stream"]

_POOLED_TYPES = range(1, 9)
_EXTERNAL = "a stream of CUDA that another library has made, which no image can hold; make it again in ckpt.on_restart"


# ---------------------------------------------------------------------- streams and events, in the child


def reduce_stream(saver: Any, stream: Any) -> Any:
    """Nothing here asks CUDA: its priority follows from its number."""
    number, index = stream.stream_id, stream.device_index
    kind = (number >> 1) & 0xF if number else 0
    if type(stream).__name__ == "ExternalStream" or (number and kind not in _POOLED_TYPES):
        raise ObjectRefused(stream, _EXTERNAL)
    args = (type(stream), number, index, 1 - kind if number else 0)
    attributes = dict(vars(stream))
    return (make_stream, args, attributes, None, None, fill_attributes) if attributes else (make_stream, args)


def reduce_event(saver: Any, event: Any) -> Any:
    has_been_recorded = bool(event.cuda_event)
    index = event.device.index if has_been_recorded else None
    attributes = dict(vars(event))
    args = (type(event), index)
    return (make_event, args, attributes, None, None, fill_attributes) if attributes else (make_event, args)


# ---------------------------------------------------------------------- called while loading


def make_stream(cls: Any, number: int, index: int, priority: int) -> Any:
    """The stream of the same number: it has nothing to do. Objects that were one stream are one again."""
    torch: Any = importlib.import_module("torch")
    on = gpu_of(index)
    if number:
        torch.cuda.Stream(device=on, priority=priority)  # now the streams that torch has in stock are there
    else:
        torch.cuda.init()
    return cls(stream_id=number, device_index=index, device_type=1)


def make_event(cls: Any, index: int | None) -> Any:
    """An event that may be asked for times; if it had been recorded, it has happened."""
    torch: Any = importlib.import_module("torch")
    event = cls(enable_timing=True)
    if index is not None:
        gpu_of(index)
        event.record(torch.cuda.default_stream(index))
    return event


def fill_attributes(obj: Any, attributes: dict[str, Any]) -> None:
    vars(obj).update(attributes)
