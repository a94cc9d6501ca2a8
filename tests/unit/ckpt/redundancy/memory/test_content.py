"""What `same` compares: equal digests where the values are, in whatever objects and processes they are; others elsewhere."""

from __future__ import annotations

import mmap
import pickle
import subprocess
import sys
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from ckpt import MPI, redundancy
from ckpt.redundancy.memory.content import digest_of


class Named:
    def __init__(self) -> None:
        self.name = "name"


def received(obj: Any) -> Any:
    """As it has come by a message."""
    return pickle.loads(pickle.dumps(obj))


def text(*parts: str) -> str:
    """A text that is an object of its own."""
    return "".join(parts)


NUMBERS = np.arange(6.0)
MASKED = np.ma.array([1.0, 2.0], mask=[0, 1])

EQUAL: dict[str, tuple[Any, Any]] = {
    "strides": (NUMBERS[::2], NUMBERS[::2].copy()),
    "order": (np.asfortranarray(NUMBERS.reshape(2, 3)), NUMBERS.reshape(2, 3)),
    "read-only": (np.broadcast_to(np.float64(2), (3,)), np.full(3, 2.0)),
    "names of a type": (np.zeros(2, "l"), np.zeros(2, "q")),
    "arrays that came apart": (
        {"w": NUMBERS, "b": NUMBERS[1:]},
        {"w": received(NUMBERS), "b": received(NUMBERS[1:])},
    ),
    "one array twice": ([NUMBERS, NUMBERS], [NUMBERS, NUMBERS.copy()]),
    "masked arrays that came apart": (
        received([MASKED, MASKED.copy()]),
        [received(MASKED), received(MASKED)],
    ),
    "text": ([text("q", "z")] * 2, [text("q", "z"), text("q", "z")]),
    "bytes": ([bytes([300 % 256, 7])] * 2, [bytes([44, 7]), bytes([44, 7])]),
    "tuples": ([(3, text("a", "b"))] * 2, [(3, text("a", "b")), (3, text("a", "b"))]),
    "attributes": (Named(), received(Named())),
    "times": (np.array(["2020-01-01"], "M8[D]"), received(np.array(["2020-01-01"], "M8[D]"))),
    "NaN": (float("nan"), float("nan")),
    "parts of memory": (memoryview(b"abcdef")[::2], memoryview(b"ace")),
    "objects in arrays": (np.array([1, "a"], object), received(np.array([1, "a"], object))),
}

OTHER: dict[str, tuple[Any, Any]] = {
    "masks": (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0], mask=[0, 0])),
    "types of numbers": (np.zeros(2, "f4"), np.zeros(1, "f8")),
    "shapes": (np.zeros((0, 3)), np.zeros((3, 0))),
    "types of nothing": (np.zeros(0, "f4"), np.zeros(0, "f8")),
    "units of times": (np.array([1], "m8[s]"), np.array([1], "m8[ms]")),
    "one time": (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-02"], "M8[D]")),
    "fields": (np.zeros(2, [("a", "i4")]), np.zeros(2, [("b", "i4")])),
    "classes": (np.zeros(2), np.zeros(2).view(np.recarray)),
    "zeros": (np.array([0.0]), np.array([-0.0])),
    "a number and a truth": ([(1,), (True,)], [(1,), (1,)]),
    "a whole number and another": ((1,), (1.0,)),
    "text and bytes": ("a", b"a"),
    "an array and its numbers": (np.zeros(1), [0.0]),
    "a number and an array": (np.float64(1), np.array(1.0)),
    "order of a dictionary": ({1: 1, 2: 2}, {2: 2, 1: 1}),
    "class of a dictionary": ({1: 1}, OrderedDict({1: 1})),
    "bytes that can change": (b"a", bytearray(b"a")),
    "one number inside": ({"w": [NUMBERS]}, {"w": [NUMBERS + (NUMBERS == 3)]}),
    "text of numpy": (np.array(["ab"]), np.array(["ac"])),
}


@pytest.mark.parametrize("case", EQUAL)
def test_equal_values_have_equal_digests(case: str) -> None:
    one, other = EQUAL[case]
    assert digest_of(one) == digest_of(other)


@pytest.mark.parametrize("case", OTHER)
def test_other_values_have_other_digests(case: str) -> None:
    one, other = OTHER[case]
    assert digest_of(one) != digest_of(other)


def test_an_object_that_holds_another_one_many_times_is_looked_through_once() -> None:
    nested: tuple[Any, ...] = (1,)
    for _ in range(80):
        nested = (nested, nested)
    assert digest_of(nested) != digest_of((nested, nested))
    listed: list[Any] = []
    listed.append(listed)
    assert digest_of(listed) != digest_of([[]])


def test_memory_that_is_mapped_has_a_digest() -> None:
    with mmap.mmap(-1, 100) as one, mmap.mmap(-1, 100) as other:
        assert digest_of(one) == digest_of(other)
        other[50] = 1
        assert digest_of(one) != digest_of(other)


def test_what_has_no_pickle_has_none_and_same_says_whose() -> None:
    with pytest.raises(Exception, match="pickle"):
        digest_of([lambda: 0])
    comm = MPI.COMM_SELF
    assert redundancy.same(comm, NUMBERS) == []
    with pytest.raises(
        TypeError, match="the object of rank 0 cannot be compared: it has no pickle"
    ) as failed:
        redundancy.same(comm, (each for each in ()))
    assert "generator" in str(failed.value.__cause__)
    with pytest.raises(TypeError) as failed:
        redundancy.same(comm, lambda: 0)
    assert "0x…" in str(failed.value) or "0x" not in str(failed.value), "replicas have other addresses"


TORCH = """
import sys
import torch
kept = [torch.ones(50 + each) for each in range(int(sys.argv[1]))]  # so that storages lie elsewhere
from ckpt.redundancy.memory.content import digest_of
torch.manual_seed(1)
net = torch.nn.Linear(3, 2)
tensor = torch.arange(6.0)
assert digest_of(tensor) == digest_of(torch.arange(12.0)[:6]) == digest_of(torch.arange(12.0).reshape(6, 2).T[0] / 2)
assert digest_of(tensor.reshape(2, 3)) != digest_of(tensor) != digest_of(tensor.double())
assert digest_of(tensor) != digest_of(tensor + (tensor == 3))
assert digest_of(torch.tensor(1.5)) != digest_of(torch.tensor(2.5))
assert digest_of(torch.zeros(0, 3)) != digest_of(torch.zeros(3, 0)), "shapes"
assert digest_of(torch.zeros(2).bfloat16()) != digest_of(torch.zeros(2).half())
optimizer = torch.optim.Adam(net.parameters())
net(torch.ones(2, 3)).sum().backward()
optimizer.step()
quantized = torch.quantize_per_tensor(tensor, 0.1, 0, torch.quint8)
sparse = tensor.to_sparse()
states = net, net.state_dict(), optimizer.state_dict()
for each in (*states, net.weight, net(torch.ones(3)), tensor.untyped_storage(), sparse, tensor * 1j):
    print(digest_of(each).hex())
print(digest_of(quantized).hex())
"""


def test_tensors_have_the_same_digest_in_every_process() -> None:
    pytest.importorskip("torch")
    outputs = {
        subprocess.run([sys.executable, "-c", TORCH, count], check=True, capture_output=True).stdout
        for count in ("1", "70")
    }
    assert len(outputs) == 1 and len(next(iter(outputs)).split()) == 9


def test_a_text_is_not_what_stands_for_a_type_of_numbers() -> None:
    np = pytest.importorskip("numpy")
    assert digest_of(np.dtype("f8")) != digest_of("type <f8")
