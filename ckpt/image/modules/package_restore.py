"""Restores, in the resumed process, the changes that a program had made in installed packages.

:mod:`ckpt.image.modules.package_changes` saves them, and explains the rules.
"""

from __future__ import annotations

import itertools
import re
import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ckpt.compat import accelerators
from ckpt.image.errors import RestoreError
from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.inspect_raw import Path, dictionary_of, follow, is_a, namespace_of, slots_of
from ckpt.image.threads.restart import fill_later

__all__ = ["put_attributes", "put_back", "put_content", "resolve"]

_COUNT = re.compile(r"count\((-?\d+)(?:, (-?\d+))?\)")
_MOST_STEPS = 10**8  # steps by which an itertools.count is advanced at most: about a second


def resolve(path: Path) -> Any:
    """The object of this process at a path. All modules must have been imported. Raises :class:`RestoreError`."""
    try:
        return follow(path)
    except (LookupError, AttributeError):
        text = ".".join(map(str, path))
        raise RestoreError(f"{text} is not there: another version of the package?") from None


def put_back(package: str, changes: list[tuple[Path, str, Any]]) -> dict[str, Any] | None:
    """Make the changes of a package, in place. Stops at the first one that fails, and returns its description, as in
    ``left_out`` of :class:`ckpt.image.modules.package_changes.Changed`; None: all changes are made."""
    for path, part, value in changes:
        try:
            _PUT_BACK[part](sys.modules[path[0]] if part == "module" else resolve(path), value)
        except Exception as failure:  # __hash__ of a key, or an unusual class, may raise anything
            where = ".".join(map(str, path))
            return {"kind": "unsaved", "package": package, "variables": [where], "reason": repr(failure)}
    return None


def put_attributes(obj: Any, value: tuple[dict[str, Any], list[str]]) -> None:
    attributes: Any = obj.__dict__ if is_a(obj, types.ModuleType) else dictionary_of(obj)
    slots = slots_of(type(obj))
    for name, attribute in value[0].items():
        if name in slots:
            slots[name].__set__(obj, attribute)
        else:
            attributes[name] = attribute
    for name in value[1]:
        if name in slots:
            slots[name].__delete__(obj)
        else:
            attributes.pop(name, None)


def _put_class(cls: type, value: tuple[dict[str, Any], list[str]]) -> None:
    for name, attribute in value[0].items():
        type.__setattr__(cls, name, attribute)
    for name in value[1]:
        if name in namespace_of(cls):
            type.__delattr__(cls, name)


def put_content(obj: Any, value: Any) -> None:
    """Replace what a container holds; ``value``: as :func:`ckpt.image.modules.package_changes.saved_content` gives it."""
    if is_a(obj, OrderedDict):
        value = OrderedDict(value)
        OrderedDict.clear(obj)
        OrderedDict.update(obj, value) if type(obj) is OrderedDict else _fill_ordered(obj, value)
    elif is_a(obj, dict):
        value = dict(value)
        dict.clear(obj)
        dict.update(obj, value)
    elif is_a(obj, list):
        list.__setitem__(obj, slice(None), value)
    elif is_a(obj, deque):
        deque.clear(obj)
        deque.extend(obj, value)
    elif type(obj) is set:
        _lookup.restore(obj, *value)
    else:
        value = set(value)
        set.clear(obj)
        set.update(obj, value)


def _fill_ordered(obj: Any, value: OrderedDict[Any, Any]) -> None:
    for key, member in value.items():
        OrderedDict.__setitem__(obj, key, member)


def _put_count(obj: Any, value: str) -> None:
    """Advance an ``itertools.count`` to its saved position: it cannot be set. Raises RestoreError if that is impossible."""
    now, then = _COUNT.fullmatch(repr(obj)), _COUNT.fullmatch(value)
    if now is None or then is None or now[2] != then[2]:
        raise RestoreError(f"a counter that is not of whole numbers: {value}")
    steps, rest = divmod(int(then[1]) - int(now[1]), int(then[2] or 1))
    if rest or not 0 <= steps <= _MOST_STEPS:
        raise RestoreError(f"a counter that cannot be counted on from {now[0]} to {value}")
    deque(itertools.islice(obj, steps), maxlen=0)


def _put_weak(container: Any, value: list[Any]) -> None:
    """Fill a weak container with pairs or members, which something else must hold, too, to stay in it."""
    container.clear()
    for each in value:
        if type(container) is weakref.WeakSet:
            container.add(each)
        else:
            container[each[0]] = each[1]


def _put_in_threads(obj: Any, value: dict[int, dict[str, Any]]) -> None:
    for ident, attributes in value.items():
        fill_later(ident, obj, attributes)


_PUT_BACK: dict[str, Callable[[Any, Any], None]] = {
    "module": put_attributes,
    "attributes": put_attributes,
    "class": _put_class,
    "content": put_content,
    "weak": _put_weak,
    "threads": _put_in_threads,
    "random": accelerators.random.Random.setstate,
    "count": _put_count,
}
