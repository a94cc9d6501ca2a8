"""The addresses at which hosts reach each other: IPv4 and IPv6, by interface, network, or the way to the other side."""

from __future__ import annotations

import os
import socket

import pytest

from ckpt.controller.errors import UsageError
from ckpt.controller.hosts import addresses, hostlist, routes
from ckpt.controller.supervision.plan import Node

TABLE = """\
fe80000000000000642bbafffec383d5 03 40 20 80     eth0
fd880000000000000000000000000001 03 40 00 82     eth0
20010db8000000000000000000000077 03 40 00 01     eth0
20010db8000000000000000000000001 03 40 00 80     eth0
20010db8000000000000000000000002 03 40 00 c8     eth0
20010db8000000000000000000000003 04 40 00 40     eth1
00000000000000000000000000000001 01 80 10 80       lo
"""

needs_ipv6 = pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="the kernel has no IPv6")


def test_the_kernels_table() -> None:
    """Not those of the link only, nor those that are not known to be this host's alone; temporary ones last."""
    assert addresses._of_ipv6(TABLE) == [
        ("eth0", "fd88::1"),
        ("eth0", "2001:db8::1"),
        ("lo", "::1"),
        ("eth0", "2001:db8::77"),
    ]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        ("eth0", "10.0.0.1"),
        ("eth1", "10.9.0.1"),
        ("eth0", "fd88::1"),
        ("eth0", "fd99::1"),
        ("lo", "::1"),
    ]
    monkeypatch.setattr(addresses, "own_addresses", lambda: found)


@pytest.mark.parametrize(
    ("interface", "towards", "own"),
    [
        ("eth0", None, "10.0.0.1"),
        ("eth0", "host7", "10.0.0.1"),
        ("eth0", "10.0.0.7", "10.0.0.1"),
        ("eth0", "fd88::7", "fd88::1"),
        ("eth1", "fd88::7", "10.9.0.1"),
        ("fd99::/64", "10.0.0.7", "fd99::1"),
        ("fd99::5/16", None, "fd99::1"),
        ("10.9.0.0/16", "fd88::7", "10.9.0.1"),
    ],
)
@pytest.mark.usefixtures("both")
def test_interface_is_a_name_or_a_network_of_either_kind(
    interface: str, towards: str | None, own: str
) -> None:
    assert addresses.own_address(interface, towards) == own


@pytest.mark.parametrize("interface", ["eth2", "fd77::/64", "10.8.0.0/16", "fd88::1", "fd88::/200"])
@pytest.mark.usefixtures("both")
def test_no_such_interface(interface: str) -> None:
    with pytest.raises(UsageError, match=r"it has: eth0 10\.0\.0\.1, .*eth0 fd88::1"):
        addresses.own_address(interface)


@needs_ipv6
def test_the_way_to_the_other_side_says_the_kind() -> None:
    assert (
        addresses.own_address(None, "127.0.0.1") == addresses.own_address(None, "me@127.0.0.1") == "127.0.0.1"
    )
    assert addresses.own_address(None, "::1") == addresses.own_address(None, "me@::1") == "::1"


@needs_ipv6
def test_a_door_of_ipv6_is_knocked_at() -> None:
    door = routes.Door("::1")
    assert door.address.startswith("[::1]:")
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        closed = f"[::1]:{probe.getsockname()[1]}"
    assert routes.knock({"open": door.address, "closed": closed}) == {"closed": "Connection refused"}
    door.close()


def test_hosts_named_by_addresses() -> None:
    nodes = hostlist.of_text("[FD88:0::2]:4, [::1],me@[fd88::3]:2,10.0.0.1:3")
    assert nodes == [Node("fd88::2", 4), Node("::1", 1), Node("me@fd88::3", 2), Node("10.0.0.1", 3)]
    assert hostlist.text_of(nodes) == "[fd88::2]:4,[::1]:1,me@[fd88::3]:2,10.0.0.1:3"
    assert hostlist.of_text(hostlist.text_of(nodes)) == nodes
    assert hostlist.of_file("[fd88::2] slots=4\n[::1]:2 # mine\n", "f") == [
        Node("fd88::2", 4),
        Node("::1", 2),
    ]


def test_a_host_that_is_loopback_here_gets_an_address_which_the_others_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Debian writes a host's own name beside 127.0.1.1 in /etc/hosts."""
    towards = {"own": "127.0.0.1", "localhost": "::1", "b": "10.1.0.5", "c": "10.2.0.5"}
    monkeypatch.setattr(addresses, "own_address", lambda interface, name: towards[name])
    assert addresses.own_towards(None, ["own", "b", "c", "localhost"]) == [
        "10.1.0.5",
        "10.1.0.5",
        "10.2.0.5",
        "10.1.0.5",
    ]
    assert addresses.own_towards(None, ["own"]) == ["127.0.0.1"], "no other host is there"
