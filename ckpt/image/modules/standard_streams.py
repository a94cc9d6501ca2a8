"""The standard streams that this process was started with, and the layers below them, whatever the program has put there.

An image names them by the way to them (``stdout.buffer``), and the resumed process uses its own. Not here: what they hold
that is not written yet (:mod:`ckpt.image.files.standard_output`).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

__all__ = ["STREAMS", "all_layers", "state", "std_objects"]

STREAMS = ("stdin", "stdout", "stderr")


def state(stream: object) -> str:
    """open, closed, or detached: a text stream of which the program has taken the buffer. Of no text stream: none."""
    if type(stream) is not io.TextIOWrapper:
        return "none"
    try:
        return "closed" if stream.closed else "open"
    except ValueError:
        return "detached"


def std_objects() -> dict[str, object]:
    """The standard streams this process was started with, and the layers below them, by path such as
    ``stdout.buffer``. Once seen, the layers of a stream are known, though the program has taken them from it.
    """
    found: dict[str, object] = {}
    for name in STREAMS:
        stream = getattr(sys, f"__{name}__", None)
        known = _layers.get(name)
        if known is None or known[0] is not stream:
            known = _layers[name] = tuple(_peel(stream))
        path = name
        for layer, suffix in zip(known, (".buffer", ".raw", ""), strict=False):
            found.setdefault(path, layer)
            path += suffix
    return found


def all_layers() -> Iterator[object]:
    """Every layer that was seen so far, of all standard streams."""
    for layers in _layers.values():
        yield from layers


_layers: dict[str, tuple[object, ...]] = {}


def _peel(stream: object) -> Iterator[object]:
    for layer in ("buffer", "raw", None):
        if stream is None:
            return
        yield stream
        stream = getattr(stream, layer, None) if layer and state(stream) != "detached" else None
