"""What JSON values may look like, as values: the language in which `formats.py` defines the records.

    Integer(least, most)      a whole number; true, false and 3.0 are none
    Text(), Text(pattern)   a text; the whole of it has to match
    Hex(digits, or_empty)   a text of so many hex digits, in lower case
    OneOf(…)                one of these texts, or of these numbers
    Free()                  any object
    Nullable(shape)         null, or that
    Rows(shape, least)      a list of any length, at least `least`
    Row(…, optional)        a list with a shape for each place; the last `optional` places may be missing
    Either(one, other)      a number, or a list
    Table(key, shape)       an object with any keys that match a pattern
    Record(…)               an object with named fields

A shape looks at many values at once (`check`): those of one column of a table. So the work is done by `map`, `min` and
`set`, and a manifest of ten thousand blocks is checked in the time that it takes to build as many tuples.

A pattern is one that the standard library and pydantic understand alike: no `\\d`, `\\w`, `$`, no looking around.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

__all__ = [
    *("Either", "Free", "Hex", "Nullable", "OneOf", "Record", "Row", "Rows", "Shape", "Table", "Text"),
    *("DoesNotFit", "Integer"),
]

MOST: Final = (1 << 63) - 1
_HEX: Final = b"0123456789abcdef"


class DoesNotFit(ValueError):
    """A value has another shape. `where`: the field, with those it is in."""

    def __init__(self, why: str, where: str = "") -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.why = why
        self.where = where

    def inside(self, where: str) -> DoesNotFit:
        return DoesNotFit(self.why, f"{where}.{self.where}" if self.where else where)


class Shape:
    """See the module's header. `kind`: the type of Python that such a value has."""

    kind: type = object

    def check(self, values: Sequence[Any]) -> None:
        """Raise DoesNotFit unless every one has this shape."""
        wrong = set(map(type, values)) - {self.kind}
        if wrong:
            found = next(value for value in values if type(value) in wrong)
            raise DoesNotFit(f"{_shown(found)} is no {_NAMES[self.kind]}")


_NAMES: Final[dict[type, str]] = {int: "whole number", str: "text", list: "list", dict: "object"}


def _shown(value: object) -> str:
    return f"{value!r:.60}"


class Integer(Shape):
    kind = int

    def __init__(self, least: int = 0, most: int = MOST) -> None:
        self.least = least
        self.most = most

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        if values and (min(values) < self.least or max(values) > self.most):
            found = next(value for value in values if not self.least <= value <= self.most)
            raise DoesNotFit(f"{found} is not from {self.least} to {self.most}")


class Text(Shape):
    kind = str

    def __init__(self, pattern: str | None = None) -> None:
        self.pattern = pattern

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        if self.pattern is None:
            return
        matches = re.compile(self.pattern).fullmatch  # made once: `re` keeps it
        if not all(map(matches, values)):
            found = next(value for value in values if not matches(value))
            raise DoesNotFit(f"{_shown(found)} does not match {self.pattern}")


class Hex(Shape):
    kind = str

    def __init__(self, digits: int, *, or_empty: bool = False) -> None:
        self.pattern = f"([0-9a-f]{{{digits}}})?" if or_empty else f"[0-9a-f]{{{digits}}}"
        self._lengths = {digits, 0} if or_empty else {digits}

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        if not self._lengths.issuperset(map(len, values)) or self._others(*values):
            found = next(value for value in values if len(value) not in self._lengths or self._others(value))
            raise DoesNotFit(f"{_shown(found)} does not match {self.pattern}")

    @staticmethod
    def _others(*values: str) -> bytes:
        """What is no hex digit in there."""
        return "".join(values).encode("utf-8", "surrogatepass").translate(None, _HEX)


class OneOf(Shape):
    def __init__(self, *values: str | int) -> None:
        self.kind = type(values[0])
        self.values = values

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        wrong = set(values).difference(self.values)
        if wrong:
            raise DoesNotFit(f"{_shown(wrong.pop())} is none of {', '.join(map(repr, self.values))}")


class Free(Shape):
    kind = dict


class Nullable(Shape):
    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def check(self, values: Sequence[Any]) -> None:
        self.shape.check([value for value in values if value is not None])


class Rows(Shape):
    kind = list

    def __init__(self, shape: Shape, *, least: int = 0) -> None:
        self.shape = shape
        self.least = least

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        if self.least and any(len(value) < self.least for value in values):
            raise DoesNotFit(f"a list of less than {self.least}")
        self.shape.check(values[0] if len(values) == 1 else [item for value in values for item in value])


class Row(Shape):
    kind = list

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
        self.one.check([value for value in values if type(value) is self.one.kind])
        self.other.check([value for value in values if type(value) is not self.one.kind])


class Table(Shape):
    kind = dict

    def __init__(self, key: Text, shape: Shape) -> None:
        self.key = key
        self.shape = shape

    def check(self, values: Sequence[Any]) -> None:
        super().check(values)
        self.key.check([key for value in values for key in value])
        self.shape.check([item for value in values for item in value.values()])


class Record(Shape):
    """An object. `optional`: fields that may be missing; `open`: others may be there, as a later version may write them.

    `rule` raises DoesNotFit for what the fields say together; it is asked when each of them is right.
    """

    kind = dict

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
    except DoesNotFit as unfit:
        raise unfit.inside(name) from None
