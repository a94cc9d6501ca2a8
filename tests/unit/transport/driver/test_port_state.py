"""PortState as a value: pickling, vectors, the link inequality; EndpointConfig's limits."""

from __future__ import annotations

import pickle

import pytest

from ckpt.transport.errors import ConfigError
from ckpt.transport.protocol.config import EndpointConfig
from ckpt.transport.protocol.endpoint import Endpoint
from ckpt.transport.protocol.state import LinkState, PortState, link_error


def saved() -> tuple[PortState, bytearray]:
    port = Endpoint(EndpointConfig(7, 0, 2))
    memory = bytearray(b"payload" * 100_000)
    port.send(1, b"small")
    port.send(1, b"envelope", memory)
    port.send(1, memory)
    return port.snapshot(), memory


def as_bytes(state: PortState) -> list[bytes]:
    messages = state.links[1].messages
    return [b"".join(m) if isinstance(m, tuple) else bytes(m) for m in messages]


def test_snapshot_refers_to_the_callers_memory() -> None:
    state, memory = saved()
    memory[:7] = b"CHANGED"
    assert as_bytes(state)[1].startswith(b"envelopeCHANGED")


@pytest.mark.parametrize("protocol", [5, 4])
def test_pickles_in_band(protocol: int) -> None:
    state, memory = saved()
    if protocol < 5:
        with pytest.raises(pickle.PicklingError):
            pickle.dumps(state, protocol)
        return
    again = pickle.loads(pickle.dumps(state, protocol))
    assert as_bytes(again) == [b"small", b"envelope" + memory, bytes(memory)]
    assert again.vectors() == state.vectors() == {1: (3, 0, 0)}


def test_long_payloads_go_out_of_band() -> None:
    state, memory = saved()
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(state, 5, buffer_callback=buffers.append)
    assert len(data) < 2000 and len(buffers) == 2
    again = pickle.loads(data, buffers=[bytes(b) for b in buffers])
    port = Endpoint(EndpointConfig(7, 0, 2, incarnation=1), again)
    assert port.tx(1) == 3 and not port.idle()
    assert as_bytes(port.snapshot())[1] == b"envelope" + memory


def test_nbytes() -> None:
    assert saved()[0].nbytes() == 5 + 8 + 700_000 + 700_000


def test_link_inequality() -> None:
    def line(base: int, rx: int, tx: int) -> str | None:
        return link_error({0: {1: (tx, base, 0)}, 1: {0: (0, 0, rx)}})

    assert line(2, 2, 2) is line(2, 3, 4) is line(2, 4, 4) is line(0, 0, 0) is None
    assert line(2, 1, 4) == "link 0->1: lost message: base 2, rx 1, tx 4"
    assert line(2, 5, 4) == "link 0->1: orphan message: base 2, rx 5, tx 4"
    assert link_error({0: {}, 1: {0: (0, 0, 1)}}) is not None
    assert link_error({0: {0: (2, 1, 0)}}) is not None, "self-sends are a link too"


def test_link_state_defaults_are_not_shared() -> None:
    one, other = LinkState(), LinkState()
    one.messages.append(b"")
    assert other.messages == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": 2},
        {"rank": -1},
        {"job": 1 << 64},
        {"incarnation": -1},
        {"epoch": -1},
        {"credit_bytes": 0},
        {"ack_delay_ns": -1},
        {"fragment_bytes": 1 << 31},
        {"rto_min_ns": 10, "rto_max_ns": 5},
    ],
    ids=str,
)
def test_limits_of_the_configuration(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        EndpointConfig(**({"job": 7, "rank": 0, "size": 2} | wrong))


def test_configuration_is_a_value() -> None:
    assert len({EndpointConfig(7, 0, 2), EndpointConfig(7, 0, 2), EndpointConfig(7, 1, 2)}) == 2
