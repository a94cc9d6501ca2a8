"""Shapes of JSON values: the classes with which `formats.py` defines the records.

    Integer(least, most)    a whole number; true, false and 3.0 are not accepted
    Text(), Text(pattern)   a string; the pattern has to match the whole string
    Hex(digits, or_empty)   a string of that many hex digits, in lower case; `or_empty`: or the empty string
    OneOf(…)                one of these strings, or one of these numbers
    Free()                  any object
    Nullable(shape)         null, or a value of that shape
    Rows(shape, least)      a list of at least `least` values of one shape
    Row(…, optional)        a list with a shape for each place; the last `optional` places may be missing
    Either(one, other)      a value of one of two shapes, which differ in their Python type
    Table(key, shape)       an object whose keys match `key` and whose values have one shape
    Record(…)               an object with named fields

`check` checks many values at once: those of one column of a table. So `map`, `min` and `set` do the work, and the check of
a manifest with ten thousand blocks takes as long as it takes to build as many tuples.

A pattern uses only what the standard library and pydantic both understand in the same way: no `\\d`, `\\w` or `$`, no
look-around.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

__all__ = [
    *("Either", "Free", "Hex", "Nullable", "OneOf", "Record", "Row", "Rows", "Shape", "Table", "Text"),
    *("DoesNotFit", "Integer"),
]

MOST: Final = (1 << 63) - 1
_HEX: Final = b"0123456789abcdef"


class DoesNotFit(ValueError):
    """A value does not have the shape. `where`: the path of the field, outermost field first."""

    def __init__(self, why: str, where: str = "") -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.why = why
        self.where = where

    def inside(self, where: str) -> DoesNotFit:
        return DoesNotFit(self.why, f"{where}.{self.where}" if self.where else where)


class Shape:
    """See the module's header. `python_type`: the Python type of such a value."""

    python_type: type = object

    def check(self, values: Sequence[Any]) -> None:
        """Raise DoesNotFit unless every value has this shape."""
        wrong = set(map(type, values)) - {self.python_type}
        if wrong:
            found = next(value for value in values if type(value) in wrong)
            raise DoesNotFit(f"{_shown(found)} is no {_NAMES[self.python_type]}")


_NAMES: Final[dict[type, str]] = {int: "whole number", str: "text", list: "list", dict: "object"}


def _shown(value: object) -> str:
    return f"{value!r:.60}"


class Integer(Shape):
    python_type = int

    def __init__(self, least: int = 0, most: int = MOST) -> None:
        self.least = least
        self.most = most

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        if values and (min(values) < self.least or max(values) > self.most):
            found = next(value for value in values if not self.least <= value <= self.most)
            raise DoesNotFit(f"{found} is not from {self.least} to {self.most}")


class Text(Shape):
    python_type = str

    def __init__(self, pattern: str | None = None) -> None:
        self.pattern = pattern

    @cached_property
    def matches(self) -> Callable[[str], object]:
        """Does the whole text match the pattern? Most processes ask this of few shapes, and compiling takes long."""
        return re.compile(self.pattern or "").fullmatch

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        if self.pattern is None:
            return
        matches = self.matches
        if not all(map(matches, values)):
            found = next(value for value in values if not matches(value))
            raise DoesNotFit(f"{_shown(found)} does not match {self.pattern}")


class Hex(Shape):
    python_type = str

    def __init__(self, digits: int, *, or_empty: bool = False) -> None:
        self.pattern = f"([0-9a-f]{{{digits}}})?" if or_empty else f"[0-9a-f]{{{digits}}}"
        self._lengths = {digits, 0} if or_empty else {digits}

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        if not self._lengths.issuperset(map(len, values)) or self._non_hex_digits(*values):
            found = next(
                value for value in values if len(value) not in self._lengths or self._non_hex_digits(value)
            )
            raise DoesNotFit(f"{_shown(found)} does not match {self.pattern}")

    @staticmethod
    def _non_hex_digits(*values: str) -> bytes:
        """Return all characters of the texts that are not hex digits."""
        return "".join(values).encode("utf-8", "surrogatepass").translate(None, _HEX)


class OneOf(Shape):
    def __init__(self, *values: str | int) -> None:
        self.python_type = type(values[0])
        self.values = values

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        wrong = set(values).difference(self.values)
        if wrong:
            raise DoesNotFit(f"{_shown(wrong.pop())} is none of {', '.join(map(repr, self.values))}")


class Free(Shape):
    python_type = dict


class Nullable(Shape):
    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def check(self, values: Sequence[Any]) -> None:
        self.shape.check([value for value in values if value is not None])


class Rows(Shape):
    python_type = list

    def __init__(self, shape: Shape, *, least: int = 0) -> None:
        self.shape = shape
        self.least = least

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        if self.least and any(len(value) < self.least for value in values):
            raise DoesNotFit(f"a list of less than {self.least}")
        self.shape.check(values[0] if len(values) == 1 else [item for value in values for item in value])


class Row(Shape):
    python_type = list

    def __init__(self, *, optional: int = 0, **places: Shape) -> None:
        self.places = places
        self.least = len(places) - optional

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        lengths = set(map(len, values))
        if not lengths.issubset(range(self.least, len(self.places) + 1)):
            found = next(value for value in values if not self.least <= len(value) <= len(self.places))
            raise DoesNotFit(
                f"{_shown(found)} has not the {len(self.places)} places {', '.join(self.places)}"
            )
        columns: Sequence[Sequence[Any]]
        if len(lengths) == 1:
            columns = list(zip(*values, strict=True))
        else:
            longest = max(lengths, default=0)
            columns = [[value[place] for value in values if len(value) > place] for place in range(longest)]
        for (name, shape), column in zip(self.places.items(), columns, strict=False):
            _check_in(name, shape, column)


class Either(Shape):
    """Two shapes whose values differ in their type."""

    def __init__(self, one: Shape, other: Shape) -> None:
        self.one = one
        self.other = other

    def check(self, values: Sequence[Any]) -> None:
        self.one.check([value for value in values if type(value) is self.one.python_type])
        self.other.check([value for value in values if type(value) is not self.one.python_type])


class Table(Shape):
    python_type = dict

    def __init__(self, key: Text, shape: Shape) -> None:
        self.key = key
        self.shape = shape

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        self.key.check([key for value in values for key in value])
        self.shape.check([item for value in values for item in value.values()])


class Record(Shape):
    """An object. `optional`: fields that may be missing; `open`: there may be other fields, which a later version wrote.

    `rule` is called when each field has its shape; it raises DoesNotFit if the fields contradict each other.
    """

    python_type = dict

    def __init__(
        self,
        title: str,
        fields: Mapping[str, Shape],
        *,
        optional: Sequence[str] = (),
        open: bool = False,
        rule: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.title = title
        self.fields = dict(fields)
        self.optional = frozenset(optional)
        self.open = open
        self.rule = rule
        self._needed = self.fields.keys() - self.optional

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        for value in values:
            missing = self._needed - value.keys()
            if missing:
                raise DoesNotFit("missing", min(missing))
            if not self.open and not value.keys() <= self.fields.keys():
                raise DoesNotFit("no such field", min(value.keys() - self.fields.keys()))
        for name, shape in self.fields.items():
            _check_in(name, shape, [value[name] for value in values if name in value])
        if self.rule is not None:
            for value in values:
                self.rule(value)


def _check_in(name: str, shape: Shape, values: Sequence[Any]) -> None:
    try:
        shape.check(values)
    except DoesNotFit as error:
        raise error.inside(name) from None
