"""Classes of msgspec's structs, their objects, encoders and decoders."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import pytest

from tests.unit.ckpt.image.support import copy_of

msgspec = pytest.importorskip("msgspec")
T = TypeVar("T")
calls: list[str] = []


class Base(msgspec.Struct, tag="x", rename="camel", kw_only=True, frozen=True, dict=True, weakref=True):
    one_two: int
    lists: list[int] = []  # noqa: RUF012 - msgspec copies it
    made: dict[int, int] = msgspec.field(default_factory=lambda: {1: 2})
    shared: ClassVar[int] = 3
    named: str = msgspec.field(default="q", name="FFF")

    def double(self) -> int:
        return 2 * self.one_two


class Derived(Base, kw_only=False, order=True):
    z: int
    y: int = 5


class Node(msgspec.Struct, forbid_unknown_fields=True):
    value: Annotated[int, msgspec.Meta(ge=0, title="v")]
    next: Node | None = None

    def __post_init__(self) -> None:
        calls.append("post")

    def __init_subclass__(cls, **keywords: Any) -> None:
        calls.append("subclass")


class Plain(Node, tag=True, gc=True, array_like=True):
    more: str | None = None


class Box(msgspec.Struct, Generic[T], omit_defaults=True, cache_hash=True, frozen=True):
    content: T


def told(cls: Any) -> list[Any]:
    config = cls.__struct_config__
    return [
        *(cls.__struct_fields__, cls.__struct_encode_fields__, cls.__match_args__, cls.__name__, cls.__doc__),
        {name: getattr(config, name) for name in dir(config) if not name.startswith("_")},
        str(inspect.signature(cls)),
    ]


@pytest.mark.parametrize("cls", [Base, Derived, Node, Plain, Box])
def test_a_class(cls: Any) -> None:
    copy = copy_of(cls)
    assert copy is not cls
    assert told(copy) == told(cls)
    assert copy.__annotations__.keys() == cls.__annotations__.keys()


def test_what_a_copy_does() -> None:
    derived, plain = copy_of((Derived, Plain))
    obj = derived(4, one_two=3)
    assert obj.double() == 6
    assert (obj.shared, obj.made, obj.lists, obj.y) == (3, {1: 2}, [], 5)
    assert obj.lists is not derived(4, one_two=3).lists
    with pytest.raises(AttributeError, match="immutable"):
        obj.z = 4
    assert msgspec.json.encode(obj) == msgspec.json.encode(Derived(4, one_two=3))
    calls.clear()
    assert plain(3).value == 3
    assert calls == ["post"]


def test_objects_and_coders() -> None:
    calls.clear()
    node = Node(1)
    node.next = Node(2, node)
    box = Box([node])
    frozen = Base(one_two=1)
    frozen.__dict__["extra"] = 5
    decoder = msgspec.json.Decoder(Node, strict=False, dec_hook=lambda kind, obj: obj)
    assert calls == ["post", "post"]
    copy: Any = copy_of([node, box, frozen, decoder, msgspec.msgpack.Encoder(order="sorted")])
    assert calls == ["post", "post"]
    assert copy[0].next.next is copy[0] is copy[1].content[0]
    assert (copy[2].one_two, copy[2].__dict__) == (1, {"extra": 5})
    assert (copy[3].strict, copy[4].order) == (False, "sorted")
    decoded = copy[3].decode(b'{"value": "3", "next": {"value": 4}}')
    assert type(decoded) is type(copy[0])
    assert (decoded.value, decoded.next.value) == (3, 4)
    with pytest.raises(msgspec.ValidationError, match=">= 0"):
        copy[3].decode(b'{"value": -1}')
