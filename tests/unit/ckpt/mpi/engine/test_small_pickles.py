"""Small pickles in C against pickle itself: the same bytes, the same objects, the same errors."""

from __future__ import annotations

import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

_quick = pytest.importorskip("ckpt.mpi.engine._quick", reason="the C modules are not built")

SMALL = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 66), 1 << 66),
    st.integers(-300, 70_000),
    st.floats(),
    st.sampled_from(["", "a", "key", b"", b"b", "name", "ä"]),
    st.text(max_size=300),
    st.text("abc", min_size=250, max_size=260),
    st.binary(max_size=300),
    st.sampled_from([1j, range(3), frozenset({1}), int, bytearray(b"x")]),
)
KEYS = st.one_of(
    st.integers(0, 9),
    st.sampled_from(["a", "key", b"b", None, 1.5]),
    st.tuples(st.integers(0, 3), st.text("ab")),
)
OBJECTS_OF_ALL_KINDS = st.recursive(
    SMALL,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(KEYS, inner, max_size=5),
        inner.map(lambda shared: [shared, (shared, shared), {"a": shared}]),
    ),
    max_leaves=12,
)


def knot(kind: str) -> Any:
    """Containers in themselves."""
    inner: Any = []
    if kind == "list":
        inner.append(inner)
        return inner
    if kind == "dict":
        found: Any = {}
        found["me"] = found
        return found
    whole = (inner, 1)
    inner.append(whole)
    return whole if kind == "tuple" else inner


@pytest.mark.rotate(2)
@given(OBJECTS_OF_ALL_KINDS)
@example("")
@example("ä")
@example(b"")
@example(255)
@example(256)
@example(65535)
@example(65536)
@example(-(1 << 31))
@example(1 << 31)
@example("a" * 255)
@example("a" * 256)
@example(b"a" * 256)
@example(1 << 39)
@example(-(1 << 39))
@example((1 << 63) - 1)
@example(-(1 << 63))
@example(1 << 63)
@example([0] * 100)
@example([0] * 101)
@example({n: n for n in range(100)})
@example({n: n for n in range(101)})
@example([bytes([n]) for n in range(40)])  # more than are remembered
@example([[[[[[[[]]]]]]]])
@example(((((((((),),),),),),),))
@example([["a" * 200], ["b" * 200], ["c" * 200]])  # too long
@example(knot("list"))
@example(knot("dict"))
@example(knot("tuple"))
@example(knot("list of a tuple"))
def test_pickles_are_those_of_pickle(value: Any) -> None:
    expected = pickle.dumps(value, 5)
    assert _quick.dumps(value) == expected
    loaded, theirs = _quick.loads(expected), pickle.loads(expected)
    assert type(loaded) is type(value)
    assert pickle.dumps(loaded, 5) == pickle.dumps(theirs, 5)  # what is one object in one is one in the other
    assert pickle.dumps(_quick.loads(b"C\x01x0" + expected, 4), 5) == pickle.dumps(theirs, 5)


class Number(int):
    """Not quite an int."""


class Text(str):
    """Not quite a str."""


class Mapping(dict):  # type: ignore[type-arg]
    """Not quite a dict."""


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [
        Number(5),
        Text("a"),
        [Number(5)],
        (Text("a"), 1),
        {"a": Mapping(b=1)},
        {1},
        1j,
        Point(1, 2),
        OrderedDict(a=1),
    ],
)
def test_what_only_looks_plain_is_left_to_pickle(value: Any) -> None:
    assert _quick.dumps(value) == pickle.dumps(value, 5)
    loaded = _quick.loads(pickle.dumps(value, 5))
    assert loaded == value and type(loaded) is type(value)


@pytest.mark.rotate(2)
@given(OBJECTS_OF_ALL_KINDS, st.data())
def test_damaged_pickles_are_read_as_pickle_reads_them(value: Any, data: st.DataObject) -> None:
    damaged = bytearray(pickle.dumps(value, data.draw(st.integers(2, 5))))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(
            st.sampled_from(b"KMJGN\x88\x89\x8cC\x94\x95.\x00\x04\x8ah(t)]}aesu\x85\x86\x87")
        )
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged
    assert outcome(_quick.loads, bytes(damaged)) == outcome(pickle.loads, bytes(damaged))


OPCODES = st.one_of(
    st.sampled_from([b"K\x07", b"J\xff\xff\xff\xff", b"N", b"\x88", b"\x8c\x01a", b"C\x01b"],),
    st.sampled_from([b"\x8a\x00", b"\x8a\x02\x00\x80"]),
    st.sampled_from([b"\x94", b"h\x00", b"h\x01", b"(", b")", b"]", b"}", b"a", b"e", b"s", b"u"]),
    st.sampled_from([b"t", b"\x85", b"\x86", b"\x87"]),
    st.sampled_from([b"0", b"2", b".", b"\x8f", b"q\x00"]),
)  # fmt: skip


@given(st.lists(OPCODES, max_size=20))
def test_any_opcodes_are_read_as_pickle_reads_them(opcodes: list[bytes]) -> None:
    data = b"\x80\x05" + b"".join(opcodes) + b"."
    assert outcome(_quick.loads, data) == outcome(pickle.loads, data)


def outcome(loads: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        loaded = loads(data)
    except Exception as error:
        return type(error)
    return type(loaded), pickle.dumps(loaded, 5)
