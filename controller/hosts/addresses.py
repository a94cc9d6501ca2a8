"""Which of a host's IPv4 addresses others use to reach it, and which name the job has for it. (driver)

`--interface` says the address: the name of an interface, or a network (10.1.0.0/16). Without it, it is the address from
which this host would send to the other one.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Sequence

from ckpt.controller.errors import UsageError

__all__ = ["own_address", "own_addresses", "own_name"]

_SIOCGIFADDR = 0x8915


def own_addresses() -> list[tuple[str, str]]:
    """(interface, IPv4 address) of all interfaces that have one; loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                packed = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append((name, socket.inet_ntoa(packed[20:24])))
    return sorted(found, key=lambda pair: pair[1].startswith("127."))


def own_address(interface: str | None, towards: str | None = None) -> str:
    """This host's address. `towards`: name or address of the other side. Raises UsageError: no such interface or network."""
    addresses = own_addresses()
    if interface is not None:
        chosen = [address for name, address in addresses if _fits(interface, name, address)]
        if not chosen:
            known = ", ".join(f"{name} {address}" for name, address in addresses) or "none"
            raise UsageError(
                f"--interface {interface}: host {socket.gethostname()} has no such interface or network; it has: {known}"
            )
        return chosen[0]
    if towards is not None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((towards, 9))
            return str(probe.getsockname()[0])
    return addresses[0][1] if addresses else "127.0.0.1"


def _fits(interface: str, name: str, address: str) -> bool:
    if interface == name:
        return True
    try:
        return "/" in interface and ipaddress.ip_address(address) in ipaddress.ip_network(interface, False)
    except ValueError:
        return False


def own_name(names: Sequence[str], variable: str | None) -> str:
    """Which of these names of hosts is this host's. Raises UsageError: none, or more than one.

    It is the value of the environment variable, if one is given; else the one that is this host's name, whole or up to the
    first dot; else the one of which an address is this host's.
    """
    if variable is not None:
        value = os.environ.get(variable, "")
        if value in names:
            return value
        raise UsageError(f"{variable} is {value!r}, which is none of the hosts {', '.join(names)}")
    own = os.uname().nodename
    found = [name for name in names if name == own] or [
        name for name in names if name.partition(".")[0] == own.partition(".")[0]
    ]
    if not found:
        addresses = {address for _, address in own_addresses() if not address.startswith("127.")}
        found = [name for name in names if _resolved(name) & addresses]
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"this host is called {own}: of the hosts {', '.join(names)} it is "
        + (f"each of {', '.join(found)}" if found else "none; name it as it calls itself")
    )


def _resolved(name: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET)}
    except OSError:
        return set()
