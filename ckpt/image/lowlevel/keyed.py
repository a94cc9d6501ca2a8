"""Fills dictionaries and sets at load, some a second time: their keys may not be complete when they are filled.

A key whose class defines ``__hash__`` in Python may be part of a cycle (a node in the set of neighbours of its neighbour).
Then the container is filled before the key has its attributes: ``__hash__`` fails, or returns another number than later.

Rules
    - A container is filled as soon as its content is loaded, because constructors that are called during the load may read
      the container.
    - :func:`finish` compares, when everything is loaded, the hashes of all keys with those at the time of the filling. A
      container whose keys hash differently is filled again. That may change the hash of a key that contains it (a frozenset,
      an object that hashes its content), so this is repeated until nothing changes.
    - A weak reference hashes as its referent does and keeps that hash: it is asked again. One whose referent is gone gets
      another hash than it had: it is equal to itself only.
    - The methods are those of the builtin type, also for a class of the program that has others.

Not here: which containers need this (:mod:`ckpt.image.pickling.containers`, :mod:`ckpt.image.reducers.raw_instances`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ckpt.image.lowlevel import _lookup

__all__ = ["Keys", "begin", "content_of", "fill", "finish"]

_SETS = (set, frozenset)
_waiting: list[tuple[Any, type, Any, list[int] | None]] = []
"""What has been filled since the last `finish`: (container, its builtin type, content, hashes of the keys). No hashes:
filling has failed."""


class Keys:
    """In a state to be pickled: stands for the content of ``container``, which :func:`fill` gives to it at load. ``base``:
    the builtin type from which its class derives."""

    __slots__ = ("base", "container")

    def __init__(self, container: Any, base: type) -> None:
        self.container, self.base = container, base


def content_of(container: Any, base: type) -> Any:
    """Pairs of a dictionary, in order; the layout of a set (:func:`ckpt.image.lowlevel._lookup.layout`)."""
    if base in _SETS:
        return _lookup.layout(container)
    if base is OrderedDict:
        return [(key, OrderedDict.__getitem__(container, key)) for key in OrderedDict.__iter__(container)]
    return list(dict.items(container))


def begin() -> None:
    """A load begins, without what one that has failed has left here."""
    _waiting.clear()


def fill(container: Any, base: type, content: Any) -> None:
    """Fill an empty container with what :func:`content_of` has returned for it."""
    try:
        hashes = _hashes(content)
        _fill(container, base, content)
    except Exception:  # any error of a key that is not complete yet: see finish()
        hashes = None
    _waiting.append((container, base, content, hashes))


def finish() -> list[Any]:
    """Everything so far is loaded: fill the containers whose filling failed or came too early. Returns these containers.
    Raises what ``__hash__`` or ``__eq__`` of a key raises.
    """
    waiting, _waiting[:] = _waiting[:], []
    refilled: dict[int, Any] = {}
    failure: Exception | None = None
    for _ in range(len(waiting) + 1):
        failure, has_changed = None, False
        for place, (container, base, content, hashes) in enumerate(waiting):
            _lookup.forget_hashes(_keys(content))
            try:
                now = _hashes(content)
                if now == hashes:
                    continue
                _fill(container, base, content)
            except Exception as error:  # perhaps for want of a container that is filled later
                failure = error
                continue
            waiting[place] = container, base, content, now
            refilled[id(container)] = container
            has_changed = True
        if not has_changed:
            break
    if failure is not None:
        raise failure
    return list(refilled.values())


def _keys(content: Any) -> list[Any]:
    return [key for key, _ in content] if isinstance(content, list) else content[0]


def _hashes(content: Any) -> list[int]:
    return [hash(key) for key in _keys(content)]


def _fill(container: Any, base: type, content: Any) -> None:
    if base in _SETS:
        _lookup.restore(container, *content)
    elif base is OrderedDict:
        OrderedDict.clear(container)
        for key, value in content:
            OrderedDict.__setitem__(container, key, value)
    else:
        dict.clear(container)
        dict.update(container, content)
