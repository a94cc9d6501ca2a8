"""Addresses with ports: an IPv6 address stands in brackets. All kinds of connections over IPv6, with CURVE."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.transport.driver.linkwatcher import LinkWatcher, tcp_counts, tcp_state
from ckpt.transport.errors import AddressError
from ckpt.transport.wires.addresses import family_of, joined, path_of, split
from ckpt.transport.wires.hubwire import HubWire, SpokeWire
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire

KEYS = CurveKeys.from_secret(b"of this job")
OTHERS = CurveKeys.from_secret(b"of another job")

needs_ipv6 = pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="the kernel has no IPv6")


def until(look: Callable[[], object]) -> object:
    for _ in range(60_000):
        if found := look():
            return found
        time.sleep(0.001)
    raise AssertionError("not within a minute")


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("10.0.0.1", "5000", "10.0.0.1:5000"),
        ("a.example.org", "5000-5100", "a.example.org:5000-5100"),
        ("fd00::1", "5000", "[fd00::1]:5000"),
        ("::", "*", "[::]:*"),
    ],
)
def test_host_and_port(host: str, port: str, text: str) -> None:
    assert joined(host, port) == text
    assert split(text) == (host, port)
    assert family_of(host) == (socket.AF_INET6 if ":" in host else socket.AF_INET)


def test_an_address_without_a_port() -> None:
    assert split("[fd00::1]") == ("fd00::1", "")
    assert split("host") == ("host", "")
    for address in ("tcp://[fd00::1]", "tcp://host", "tcp://[fd00::1]:", "tcp://host:"):
        with pytest.raises(AddressError, match="has no port"):
            path_of(address)


@needs_ipv6
def test_a_hub_and_its_spokes_and_a_stranger() -> None:
    hub = HubWire("tcp://[::1]:*", curve=KEYS)
    spoke, stranger = (SpokeWire(rank, hub.address, curve=keys) for rank, keys in ((1, KEYS), (2, OTHERS)))
    try:
        assert hub.address.startswith("tcp://[::1]:")
        until(lambda: spoke.send(0, (b"payload",)))
        assert [bytes(part) for part in until(hub.receive)] == [b"payload"]  # type: ignore[attr-defined]
        assert hub.send(1, (b"answer",))
        assert [bytes(part) for part in until(spoke.receive)] == [b"answer"]  # type: ignore[attr-defined]
        assert not stranger.send(0, (b"x",)) and hub.receive() is None
    finally:
        for wire in (spoke, stranger, hub):
            wire.close()


@needs_ipv6
def test_a_hub_at_all_addresses_is_dialled_by_both_kinds() -> None:
    hub = HubWire("tcp://[::]:*", curve=KEYS)
    port = split(hub.address.removeprefix("tcp://"))[1]
    spokes = [
        SpokeWire(rank, f"tcp://{joined(host, port)}", curve=KEYS)
        for rank, host in ((1, "127.0.0.1"), (2, "::1"))
    ]
    try:
        for rank, spoke in enumerate(spokes, 1):
            until(lambda spoke=spoke, rank=rank: spoke.send(0, (b"%d" % rank,)))  # type: ignore[misc]
            assert [bytes(part) for part in until(hub.receive)] == [b"%d" % rank]  # type: ignore[attr-defined]
    finally:
        for wire in (*spokes, hub):
            wire.close()


@needs_ipv6
def test_what_the_kernel_knows_of_a_connection_and_a_probe_of_a_closed_port(tmp_path: Path) -> None:
    with contextlib.ExitStack() as opened:
        wires = []
        for number in (0, 1):
            wires.append(ZmqWire(f"ipc://{tmp_path}/{number}", curve=KEYS))
            opened.callback(wires[-1].close)
        far = wires[1].listen_also("tcp://[::1]:*")
        host, port = split(far.removeprefix("tcp://"))
        wires[0].connect(1, far)
        until(lambda: wires[0].send(1, (b"x",)))
        assert [bytes(part) for part in until(wires[1].receive)] == [b"x"]  # type: ignore[attr-defined]
        descriptor = until(lambda: wires[0].descriptor(1))
        assert isinstance(descriptor, int)
        assert tcp_state(descriptor, (host, int(port))) is not None
        assert tcp_counts(descriptor, (host, int(port))) is not None
        assert tcp_state(descriptor, (host, 1)) is None

        events: list[object] = []
        watcher = LinkWatcher(lambda rank: None, give_up_ns=1)
        opened.callback(watcher.close)
        watcher.on_event = events.append
        with socket.socket(socket.AF_INET6) as closed:
            closed.bind(("::1", 0))
            watcher.forget(1, f"tcp://{joined('::1', closed.getsockname()[1])}")
            watcher.late(1, 10**9)
            until(lambda: watcher.attend() is None or events)
        assert "refused" in repr(events)
