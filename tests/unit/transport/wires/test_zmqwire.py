"""The wire of ZeroMQ by itself, over the loop of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ckpt.transport.wires.zmqwire import ZmqWire


@pytest.fixture
def wires() -> Iterator[list[ZmqWire]]:
    both = [ZmqWire("tcp://127.0.0.1:*") for _ in range(2)]
    yield both
    for wire in both:
        wire.close()


def test_a_connection_is_begun_anew_any_number_of_times_in_a_row(wires: list[ZmqWire]) -> None:
    """The name of the monitor was the address of its socket in memory, which the next one may have: "Address already in use"
    ended a rank whose connection was reset a few times."""
    mine, peer = wires
    for _ in range(100):
        mine.connect(1, peer.address)
    for _ in range(100):
        mine._reconnect(1)
    assert mine.counters()["connections_renewed"] == 100
