"""Registered objects: saved, and put back into the objects of another run."""

from __future__ import annotations

import array
import copy
import random
import sys
import types
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt.errors import RegistrationError, StateError
from ckpt.replay import state


class Plain:
    pass


class Slotted:
    __slots__ = ("a", "b")


class Listed(list[int]):
    pass


def slotted(a: int) -> Slotted:
    made = Slotted()
    made.a = a
    return made


def listed() -> Listed:
    made = Listed([1, 2])
    made.unit = "m"  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("saved", "other"),
    [
        ({"a": 1, "b": [2]}, {"c": 3}),
        (OrderedDict(x=1, y=2), OrderedDict(y=0)),
        ([1, 2, 3], []),
        ({1, 2}, {9}),
        (deque([1, 2], maxlen=5), deque([7], maxlen=5)),
        (bytearray(b"abc"), bytearray()),
        (array.array("d", [1.5, 2.5]), array.array("d", [0.0])),
        (np.arange(6.0).reshape(2, 3), np.zeros((2, 3))),
        (listed(), Listed()),
    ],
)
def test_containers_get_their_content_back_in_place(saved: Any, other: Any) -> None:
    content = copy.deepcopy(state.content_of(saved))
    state.put_back("x", other, content)
    assert type(other) is type(saved)
    assert np.array_equal(other, saved) if isinstance(saved, np.ndarray) else other == saved
    assert getattr(other, "unit", None) == getattr(saved, "unit", None)


def test_objects_get_attributes_and_slots_back_and_lose_what_came_later() -> None:
    saved, other = Plain(), Plain()
    saved.n, other.n, other.later = 1, 2, 3  # type: ignore[attr-defined]
    state.put_back("x", other, copy.deepcopy(state.content_of(saved)))
    assert other.__dict__ == {"n": 1}
    target = slotted(9)
    state.put_back("x", target, copy.deepcopy(state.content_of(slotted(4))))
    assert target.a == 4


def test_generators_of_random_numbers_go_on() -> None:
    for make in (random.Random, np.random.default_rng, np.random.RandomState):
        saved, other = make(1), make(2)
        saved.random()
        content = copy.deepcopy(state.content_of(saved))
        expected = [saved.random() for _ in range(3)]
        state.put_back("x", other, content)
        assert [other.random() for _ in range(3)] == expected


def test_a_file_is_cut_to_its_length(tmp_path: Path) -> None:
    with open(tmp_path / "f", "a") as file:
        file.write("kept")
        content = state.content_of(file)
        file.write("lost")
    with open(tmp_path / "f", "a") as again:
        state.put_back("f", again, content)
        again.write("!")
    assert (tmp_path / "f").read_text() == "kept!"
    with open(tmp_path / "f", "w") as emptied, pytest.raises(StateError, match='open it with "a"'):
        state.put_back("f", emptied, content)


@pytest.mark.parametrize(
    "obj", [5, 1.5, "text", (1,), None, b"x", frozenset(), Plain, len, lambda: 0, random]
)
def test_what_cannot_change_in_place_is_refused(obj: object) -> None:
    with pytest.raises(RegistrationError, match="keep it in a dict"):
        state.check("n", obj)


@pytest.mark.parametrize(
    ("saved", "other", "words"),
    [
        ({}, [], "registered as list; the checkpoint has the state of a dict"),
        (np.zeros(3), np.zeros(4), r"an array \(4,\)"),
        (np.zeros(3), np.zeros(3, "i4"), "int32"),
        (np.random.default_rng(1), np.random.RandomState(1), "MT19937"),
        (Plain(), {}, "registered as dict"),
    ],
)
def test_another_kind_of_object_is_an_error_that_names_it(saved: object, other: object, words: str) -> None:
    with pytest.raises(StateError, match=words) as caught:
        state.put_back("field", other, state.content_of(saved))
    assert "'field'" in str(caught.value)


class Tensor:
    """As much of torch's as is asked for."""

    def __init__(self, *numbers: float) -> None:
        self.data, self.dtype = np.array(numbers), "float64"
        self.data = self.data.view(Elements)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def detach(self) -> Tensor:
        return copy.copy(self)


class Elements(np.ndarray):  # type: ignore[type-arg]
    def copy_(self, other: Tensor) -> None:
        self[...] = other.data


def test_a_tensor_gets_its_elements_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attributes alone, as those of any other object, would not hold them."""
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    content, other = copy.deepcopy(state.content_of(Tensor(1.0, 2.0))), Tensor(0.0, 0.0)
    elements = other.data
    state.put_back("x", other, content)
    assert other.data is elements and list(elements) == [1.0, 2.0] and content[0] == "tensor"
    with pytest.raises(StateError, match=r"'x': a tensor \(1,\)"):
        state.put_back("x", Tensor(0.0), content)
