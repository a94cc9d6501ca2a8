"""Bits that flip on purpose in what a program holds in memory: `CKPT_FLIPS`, where=array, object or scalar. (driver)

    array      one bit in the memory of an array
    scalar     one bit of a number or text that a variable of the program has itself
    object     one bit of a number or text in an object: an attribute, an element, a value in a dictionary

The variable or object gets another value, as if the replica had computed that: constants of the program, which others share,
stay as they are.

Not here: when a bit flips (`ckpt.redundancy.inject`).
"""

from __future__ import annotations

import struct
import types
from random import Random
from typing import Any

from ckpt.redundancy.memory.search import find

__all__ = ["WHERE", "flip"]

WHERE = ("array", "object", "scalar")
_BITS_OF_AN_INT = 48


def flip(frame: types.FrameType | None, random: Random, where: str, variable: str = "") -> str:
    """Flip one bit of what the program in `frame` holds, of the variable with this name if it is given; returns its name,
    empty if there is none."""
    found = find(frame)
    if where == "array":
        arrays = [each for each in found.arrays if each.address and variable in ("", each.name)]
        if not arrays:
            return ""
        memory = random.choice(arrays)
        bit = random.randrange(8 * memory.view.nbytes)
        memory.view[bit // 8] ^= 1 << bit % 8
        return memory.name
    values = [
        each
        for each in found.values
        if each.put is not None
        and each.is_variable == (where == "scalar")
        and variable in ("", each.name)
        and changed(each.value, Random(0)) is not None
    ]
    if not values:
        return ""
    chosen = random.choice(values)
    assert chosen.put is not None
    chosen.put(changed(chosen.value, random))
    return chosen.name


def changed(value: Any, random: Random) -> Any:
    """A value of the same type that differs in one bit; None: there is none."""
    kind = type(value)
    if kind is bool:
        return not value
    if kind is int:
        return value ^ (1 << random.randrange(_BITS_OF_AN_INT))
    if kind is float:
        return _changed_float(value, random)
    if kind is complex:
        return complex(_changed_float(value.real, random), value.imag)
    if kind is bytes and value:
        return _changed_bytes(value, random)
    if kind is str and value:
        at = random.randrange(len(value))
        letter = chr(ord(value[at]) ^ (1 << random.randrange(4)))
        return value[:at] + letter + value[at + 1 :]
    return None


def _changed_float(value: float, random: Random) -> float:
    (found,) = struct.unpack("<d", _changed_bytes(struct.pack("<d", value), random))
    return float(found)


def _changed_bytes(data: bytes, random: Random) -> bytes:
    bit = random.randrange(8 * len(data))
    return data[: bit // 8] + bytes([data[bit // 8] ^ (1 << bit % 8)]) + data[bit // 8 + 1 :]
