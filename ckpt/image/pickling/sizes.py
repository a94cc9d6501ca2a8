"""Sizes of the variables of an image, and the largest ones: recorded while the image is written.

The size of a variable is the number of bytes by which the stream and the buffers have grown when it has been saved; nothing
else is measured. So an object counts for the variable that the pickler meets first (modules before frames, outer frames
before inner ones), and a second variable with the same object is small. The record is one tuple per variable (0.2 µs). Types
are described for variables of at least 64 bytes only, and without running code of the program.
"""

from __future__ import annotations

from collections import defaultdict
from types import CodeType
from typing import Any

from ckpt.image.interface.registry import libraries

__all__ = ["MOST_FRAMES", "SizeTable", "describe_type", "local_names"]

_LARGEST_PER_PLACE = 5
_PLACES = 200
MOST_FRAMES = 1024
_SIZED_TYPES = frozenset({list, dict, set, frozenset, tuple, str, bytes, bytearray})
_TEXT_CHARS = 80


class SizeTable:
    """Sizes in bytes, by place: ``("module", name)``, ``("frame", index)`` or ``("rest", "")``."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, str, Any, str, str]] = []  # bytes, kind of place, place, variable, type
        self._totals: defaultdict[tuple[str, Any], list[int]] = defaultdict(lambda: [0, 0])

    def note(self, label: tuple[Any, ...], value: object, nbytes: int) -> None:
        """Record one saved variable of ``nbytes`` bytes; ``label`` as in :mod:`ckpt.image.pairs`. The table keeps no
        reference to ``value``.
        """
        if label[0] == "frame" and label[1] >= MOST_FRAMES:
            return  # a deep recursion: these frames are not reported
        match label:
            case ("variable", module, name):
                section, place = "module", module
            case ("local", index, name):
                section, place = "frame", index
            case ("frame", index):
                section, place, name = "frame", index, "<operands>"
            case ("extra" | "late", name):
                section, place = "rest", ""
            case _:
                return
        total = self._totals[section, place]
        total[0] += nbytes
        total[1] += 1
        type_name = describe_type(value) if nbytes >= _DESCRIBED_BYTES and name != "<operands>" else ""
        self._rows.append((nbytes, section, place, name, type_name))

    def as_dict(self) -> dict[str, list[dict[str, Any]]]:
        """``{"modules": […], "frames": […], "rest": […]}``: ``{"name" or "frame", "bytes", "variables", "largest"}``.

        ``largest``: ``{"name", "bytes", "type"}`` of the five largest variables of a place, largest first. Each list has the
        200 largest places of its kind: modules and rest by size, largest first; frames in the order of the stack.
        """
        largest: defaultdict[tuple[str, Any], list[dict[str, Any]]] = defaultdict(list)
        for nbytes, section, place, name, type_name in sorted(self._rows, key=lambda row: -row[0]):
            if len(largest[section, place]) < _LARGEST_PER_PLACE:
                largest[section, place].append({"name": name, "bytes": nbytes, "type": type_name})
        found: dict[str, list[dict[str, Any]]] = {"modules": [], "frames": [], "rest": []}
        for (section, place), (nbytes, count) in sorted(self._totals.items(), key=lambda item: -item[1][0]):
            rows = found["rest" if section == "rest" else section + "s"]
            if len(rows) < _PLACES:
                where = {"frame": place} if section == "frame" else {"name": place}
                rows.append(
                    {**where, "bytes": nbytes, "variables": count, "largest": largest[section, place]}
                )
        found["frames"].sort(key=lambda row: row["frame"])
        return found


_DESCRIBED_BYTES = 64


def describe_type(value: Any) -> str:
    """A short description for people: ``list of 1000``, ``numpy.ndarray float64 (1000, 3)``, ``app.Grid``."""
    cls = type(value)
    name = type.__dict__["__qualname__"].__get__(cls)
    module = type.__dict__["__module__"].__get__(cls)
    text = name if module == "builtins" or not isinstance(module, str) else f"{module}.{name}"
    if cls in _SIZED_TYPES:
        text += f" of {len(value)}"
    elif isinstance(module, str) and (shape := libraries.shape_of(value, module)) is not None:
        text += f" {shape}"
    return text[:_TEXT_CHARS]


def local_names(code: CodeType) -> list[str]:
    """Names of the variables of a frame, in the order of its slots."""
    variables = code.co_varnames
    return [*variables, *(name for name in code.co_cellvars if name not in variables), *code.co_freevars]
