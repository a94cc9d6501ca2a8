"""The standard streams that this process was started with, and their layers (text, buffer, raw).

They are found also if the program has replaced ``sys.stdout``. An image refers to a layer by its path (``stdout.buffer``),
and the resumed process uses its own streams. Not here: their unwritten output (:mod:`ckpt.image.files.standard_output`).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

__all__ = ["STREAMS", "all_layers", "state", "std_objects"]

STREAMS = ("stdin", "stdout", "stderr")


def state(stream: object) -> str:
    """The state of a text stream: "open", "closed", "detached" (the program has its buffer); "none": no text stream."""
    if type(stream) is not io.TextIOWrapper:
        return "none"
    try:
        return "closed" if stream.closed else "open"
    except ValueError:
        return "detached"


def std_objects() -> dict[str, object]:
    """Path such as ``stdout.buffer`` → layer of a standard stream that this process was started with. The layers are
    remembered at the first call, so they are found also if the program has detached them later.
    """
    found: dict[str, object] = {}
    for name in STREAMS:
        stream = getattr(sys, f"__{name}__", None)
        layers = _layers.get(name)
        if layers is None or next(iter(layers), None) is not stream:
            layers = _layers[name] = tuple(_peel(stream))
        path = name
        for layer, suffix in zip(layers, (".buffer", ".raw", ""), strict=False):
            found.setdefault(path, layer)
            path += suffix
    return found


def all_layers() -> Iterator[object]:
    """All layers of the standard streams that :func:`std_objects` has found so far."""
    for layers in _layers.values():
        yield from layers


_layers: dict[str, tuple[object, ...]] = {}


def _peel(stream: object) -> Iterator[object]:
    for layer in ("buffer", "raw", None):
        if stream is None:
            return
        yield stream
        stream = getattr(stream, layer, None) if layer and state(stream) != "detached" else None
