"""The port over a network that loses packets in the kernel: two namespaces, a cable, nft dropping at random.

TCP repairs the loss, slowly and with stalls; what is tested is that the port neither loses nor repeats
anything on top, and that a cable pulled for a while only costs time.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.transport.port_ranks import PortRanks, World, exchange

pytestmark = [pytest.mark.system, pytest.mark.root]

ADDRESSES = ("10.77.0.1", "10.77.0.2")
LOSS = "add rule inet faults input numgen random mod 100 < 5 counter drop"


def _command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=20)


class Cable:
    """Two network namespaces and a veth pair between them."""

    def __init__(self) -> None:
        tag = uuid.uuid4().hex[:6]
        self.names = (f"port-{tag}-0", f"port-{tag}-1")
        self.ends = (f"v{tag}0", f"v{tag}1")

    def lay(self) -> None:
        """Create everything."""
        for name in self.names:
            _command("ip", "netns", "add", name)
        _command("ip", "link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for name, end, address in zip(self.names, self.ends, ADDRESSES, strict=True):
            _command("ip", "link", "set", end, "netns", name)
            _command("ip", "-n", name, "addr", "add", f"{address}/24", "dev", end)
            _command("ip", "-n", name, "link", "set", end, "up")
            _command("ip", "-n", name, "link", "set", "lo", "up")

    def lose(self) -> None:
        """Drop one packet in twenty on arrival, both ways."""
        for name in self.names:
            inside = ("ip", "netns", "exec", name, "nft")
            _command(*inside, "add table inet faults")
            _command(*inside, "add chain inet faults input { type filter hook input priority 0 ; }")
            _command(*inside, LOSS)

    def lost(self) -> int:
        """Packets dropped so far."""
        total = 0
        for name in self.names:
            listed = subprocess.run(
                ("ip", "netns", "exec", name, "nft", "list", "ruleset"),
                check=True,
                capture_output=True,
                text=True,
            )
            total += sum(int(count) for count in re.findall(r"packets (\d+)", listed.stdout))
        return total

    def remove(self) -> None:
        """Remove everything; the veth pair goes with its namespaces."""
        for name in self.names:
            subprocess.run(("ip", "netns", "del", name), capture_output=True, timeout=20, check=False)

    def enter(self, rank: int) -> None:
        """Move the calling process into a namespace: CLONE_NEWNET of setns(2)."""
        with open(f"/run/netns/{self.names[rank]}", "rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000):
                raise OSError(ctypes.get_errno(), "setns")


@pytest.fixture
def cable() -> Iterator[Cable]:
    for tool in ("ip", "nft"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    cable = Cable()
    try:
        cable.lay()
    except (subprocess.CalledProcessError, OSError) as error:
        cable.remove()
        pytest.skip(f"no network namespaces here: {error}")
    yield cable
    cable.remove()


class NetworkRanks(PortRanks):
    """Ranks in namespaces of their own."""

    def __init__(self, *args: object, cable: Cable, **options: object) -> None:
        super().__init__(*args, transport="tcp", **options)  # type: ignore[arg-type]
        self._settings["address"] = "tcp://10.77.0.{host}:*"
        self._settings["enter"] = cable.enter


def test_packet_loss_in_the_kernel(cable: Cable, tmp_path: Path) -> None:
    cable.lose()
    with NetworkRanks(exchange, size=2, directory=tmp_path, cable=cable, count=40) as ranks:
        assert ranks.results(timeout_s=100) == [40, 40]
    assert cable.lost() > 0


def outage(world: World, *, switch: str) -> int:
    """Exchange, with the cable pulled for 0.7 s in between by rank 0."""
    exchange(world, count=10, is_last=False)
    if world.rank == 0:
        _command("ip", "link", "set", switch, "down")
        world.send(1, b"into the void")
        _sleep_in_library(world, 700_000_000)
        _command("ip", "link", "set", switch, "up")
    else:
        assert world.receive(0) == b"into the void"
    return exchange(world, count=10)


def _sleep_in_library(world: World, duration_ns: int) -> None:
    until = time.monotonic_ns() + duration_ns
    with world.port.lock:
        while time.monotonic_ns() < until:
            world.port.wait(until - time.monotonic_ns())


def test_pulled_cable_only_costs_time(cable: Cable, tmp_path: Path) -> None:
    switch = cable.ends[0]
    with NetworkRanks(outage, size=2, directory=tmp_path, cable=cable, switch=switch) as ranks:
        assert ranks.results(timeout_s=100) == [10, 10]
