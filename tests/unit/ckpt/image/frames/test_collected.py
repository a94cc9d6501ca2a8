"""``list(generator)`` and its like go on after a restart with what they have collected before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import resumed_output

SOURCE = """
class Item:
    def __init__(self, number):
        self.number = number
    def __repr__(self):
        return f"<{self.number}>"

def produce(make, count, place):
    for number in range(count):
        if number == place:
            driver_tick()
        yield make(number)

def text(number):
    return f"item {number * number}"

COUNT, PLACE = 20, AT
stale = []
for _ in range(3):  # pointers to other lists, sets and tuples are left on the C stack
    stale.append([list(x for x in range(30)), set(x for x in range(30)), tuple(x for x in range(30))])
print(EXPRESSION)
print(len(stale))
"""

CALLS = {
    "list": "list(produce(Item, COUNT, PLACE))",
    "set": "set(produce(text, COUNT, PLACE))",
    "tuple": "tuple(produce(Item, COUNT, PLACE))",
    "sorted": "sorted(produce(text, COUNT, PLACE))",
    "join": "'-'.join(produce(text, COUNT, PLACE))",
    "join of bytes": "b'-'.join(produce(lambda n: b'%d' % n, COUNT, PLACE))",
    "in another call": "[list(produce(Item, 3, -1)), list(produce(Item, COUNT, PLACE))]",
    "one in another": "list(list(produce(Item, 4, 2 if n == 2 else -1)) for n in range(4))",
    "by a method": "(lambda separator: separator.join(produce(text, COUNT, PLACE)))(', ')",
    "with a star": "[*list(produce(Item, COUNT, PLACE)), 1]",
}


def source_of(call: str, place: int) -> str:
    return SOURCE.replace("EXPRESSION", CALLS[call]).replace("AT", str(place))


@pytest.mark.parametrize("call", CALLS)
def test_a_call_goes_on_collecting(tmp_path: Path, call: str) -> None:
    assert resumed_output(tmp_path, source_of(call, 9)).endswith("3\n")


@pytest.mark.parametrize("place", [0, 1, 11, 19])
def test_wherever_it_is(tmp_path: Path, place: int) -> None:
    for call in ("list", "tuple"):
        directory = tmp_path / call
        directory.mkdir()
        resumed_output(directory, source_of(call, place))


def test_an_image_of_a_resumed_call(tmp_path: Path) -> None:
    """The second image finds the stand-in for the callable."""
    source = """
    def produce():
        for number in range(10):
            if number in (3, 6):
                driver_tick()
            yield [number]
    print(list(produce()), ".".join(f"{n}" for n, in produce()))
    """
    resumed_output(tmp_path, source, places=[2])
