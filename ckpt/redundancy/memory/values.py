"""Single values of a program, as text that is equal where the values are: numbers, text, None, and what is made of them.
(driver)

    None, bool, int, float, complex      their `repr`, which is exact; 0.0 differs from −0.0
    NaN, long integers, str, bytes       a digest of all their bits, behind "#"
    numpy's numbers                      their type, and the same
    Decimal, Fraction, dates, ranges     their `repr`
    tuples, sets, frozensets of these    a digest; the order of a set does not count
    random.Random, numpy's generators    a digest of their state

A number that is the address of memory of this process (`id`, a pointer, the hash of an object without one of its own), and a
text with one in it, is no value: it differs between processes by no error.

Not here: where values are found (search.py).
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import random
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import sha1
from typing import Any

__all__ = ["PLAIN", "Addresses", "is_key", "is_plain", "text_of"]

HEX = 12

PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
"""Types whose objects are values, and have no parts."""

_REPR_MAX_BITS = 64
_LEAST_ADDRESS = 1 << 20
_LEAST_OF_A_HASH = 1 << 32
_ADDRESS_IN_TEXT = re.compile(r"0x([0-9a-fA-F]{6,16})")


class Addresses:
    """The memory that is mapped into this process. `maps`: the lines of /proc/self/maps."""

    def __init__(self, maps: Iterable[str]) -> None:
        pairs = sorted(tuple(int(end, 16) for end in line.split(" ", 1)[0].split("-")) for line in maps)
        self._first = [first for first, _ in pairs]
        self._end = [end for _, end in pairs]

    @classmethod
    def of_process(cls) -> Addresses:
        """Those of this process, now."""
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            return cls(lines)

    def has(self, number: int) -> bool:
        """Is this the address of an object here, or the hash that follows from one?"""
        if number < _LEAST_ADDRESS:
            return False
        if number % 8 == 0 and self._is_mapped(number):
            return True
        return number >= _LEAST_OF_A_HASH and self._is_mapped(number << 4)

    def has_part(self, value: Any) -> bool:
        """Is this value one, or has it one in it?"""
        return (type(value) is int and self.has(value)) or (type(value) is str and self.in_text(value))

    def in_text(self, text: str) -> bool:
        """Has this text an address of this process in it?"""
        if "0x" not in text:
            return False
        return any(self._is_mapped(int(found, 16)) for found in _ADDRESS_IN_TEXT.findall(text))

    def _is_mapped(self, number: int) -> bool:
        at = bisect_right(self._first, number) - 1
        return at >= 0 and number < self._end[at]


def is_plain(value: Any) -> bool:
    """Is this a value without parts, or a tuple or frozenset of such?"""
    kind = type(value)
    if kind in PLAIN:
        return True
    return (kind is tuple or kind is frozenset) and all(map(is_plain, value))


def is_key(value: Any) -> bool:
    """Can a part of a dictionary be named by this key? Not by one that may be an address: whether it is one cannot be told
    any more in a process that goes on from an image of another."""
    kind = type(value)
    if kind is int:
        return bool(value < _LEAST_OF_A_HASH)
    if kind is str:
        return "0x" not in value
    return kind in PLAIN or ((kind is tuple or kind is frozenset) and all(map(is_key, value)))


def text_of(value: Any, addresses: Addresses, numpy: Any = None) -> str | None:
    """The text of a value; empty: it is an address; None: this is no value, or one with parts that are none. No code of the
    program is called."""
    kind = type(value)
    if kind is float:
        return repr(value) if value == value else _digest(struct.pack("<d", value))
    if kind is int:
        if addresses.has(value):
            return ""
        return repr(value) if value.bit_length() <= _REPR_MAX_BITS else _digest(f"{value:x}".encode())
    if kind is str:
        if addresses.in_text(value):
            return ""
        return _digest(b"s" + value.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return _digest(b"b" + value)
    if value is None or kind is bool:
        return repr(value)
    if kind is complex:
        is_number = value == value
        return repr(value) if is_number else _digest(struct.pack("<dd", value.real, value.imag))
    if kind in (tuple, frozenset, set):
        return _text_of_several(value, addresses, numpy)
    if kind in _BY_REPR:
        return repr(value)
    if kind in (*_DATES, datetime.date, datetime.datetime):  # those that replicas have are subclasses
        return repr(value) if getattr(value, "tzinfo", None) is None else None
    if kind is random.Random:
        return _digest(repr(random.Random.getstate(value)).encode())
    return None if numpy is None else _text_of_numpy(value, kind, numpy)


_BY_REPR = frozenset({decimal.Decimal, fractions.Fraction, range, datetime.timedelta})
_DATES = (datetime.date, datetime.datetime)


def _text_of_several(value: Any, addresses: Addresses, numpy: Any) -> str | None:
    texts = [text_of(each, addresses, numpy) for each in value]
    if None in texts:
        return None
    if "" in texts:
        return ""
    known: list[str] = [text for text in texts if text is not None]
    if type(value) is not tuple:
        known.sort()
    return _digest(f"{type(value).__name__} {' '.join(known)}".encode())


def _text_of_numpy(value: Any, kind: type, numpy: Any) -> str | None:
    if issubclass(kind, numpy.generic):
        if kind.__module__ != "numpy" or value.dtype.kind in "VO" or value.dtype.char in "gG":
            return None
        item = value.item() if value.dtype.kind in "biufc" else None
        is_number = item is not None and item == item
        return f"{kind.__name__} {item!r}" if is_number else _digest(value.tobytes(), kind.__name__)
    generators = getattr(numpy, "random", None)
    if kind in (getattr(generators, "Generator", None), getattr(generators, "RandomState", None)):
        is_new = hasattr(value, "bit_generator")
        return _digest(_flat(value.bit_generator.state if is_new else value.get_state(legacy=False)))
    return None


def _flat(state: Any) -> bytes:
    """The state of a generator: dictionaries of numbers, text and arrays."""
    if isinstance(state, dict):
        return b"".join(f"{key} ".encode() + _flat(each) + b";" for key, each in sorted(state.items()))
    return state.tobytes() if hasattr(state, "tobytes") else repr(state).encode()


def _digest(data: bytes, kind: str = "") -> str:
    return f"{kind}#{sha1(data, usedforsecurity=False).hexdigest()[:HEX]}"
