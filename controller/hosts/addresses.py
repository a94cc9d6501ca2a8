"""Which of a host's addresses others use to reach it, and which name the job has for it. (driver)

`--interface` says the address: the name of an interface, or a network (10.1.0.0/16, fd00:1::/64). Without it, it is the
address from which this host would send to the other one. Where both kinds are there, it is the IPv4 address, unless the
other side has named an IPv6 one. Link-local addresses (fe80::/10) are never used: another host could not reach them without
the name of an interface of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator, Sequence

from ckpt.controller.errors import UsageError
from ckpt.transport.wires.addresses import family_of

__all__ = ["own_address", "own_addresses", "own_name", "own_towards"]

_SIOCGIFADDR = 0x8915
_LINK_LOCAL = 0x20  # the scope (ipv6(7), /proc/net/if_inet6)
_UNUSABLE = 0x08 | 0x40  # flags: a duplicate of another host's, or not yet known not to be (linux/if_addr.h)
_NOT_FIRST = 0x01 | 0x20  # temporary, deprecated


def own_addresses() -> list[tuple[str, str]]:
    """(interface, address) of all interfaces that have one: IPv4, IPv6, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                packed = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append((name, socket.inet_ntoa(packed[20:24])))
    with contextlib.suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as table:
        found += _of_ipv6(table.read())
    return sorted(found, key=lambda pair: ipaddress.ip_address(pair[1]).is_loopback)


def _of_ipv6(table: str) -> list[tuple[str, str]]:
    """Pure: the same from the kernel's table; lasting addresses before temporary ones."""
    found = []
    for line in table.splitlines():
        digits, _, _, scope, flags, name = line.split()
        if int(scope, 16) != _LINK_LOCAL and not int(flags, 16) & _UNUSABLE:
            address = str(ipaddress.IPv6Address(int(digits, 16)))
            found.append((bool(int(flags, 16) & _NOT_FIRST), name, address))
    return [(name, address) for _, name, address in sorted(found, key=lambda row: row[0])]


def own_address(interface: str | None, towards: str | None = None) -> str:
    """This host's address. `towards`: name or address of the other side, maybe after USER@. Raises UsageError: no such
    interface or network."""
    addresses = own_addresses()
    if interface is not None:
        chosen = [address for name, address in addresses if _fits(interface, name, address)]
        if not chosen:
            known = ", ".join(f"{name} {address}" for name, address in addresses) or "none"
            raise UsageError(
                f"--interface {interface}: host {socket.gethostname()} has no such interface or network; it has: {known}. "
                "Give the name of an interface, or its network, as in 10.1.0.0/16"
            )
        wanted = family_of(towards or "")
        return next((address for address in chosen if family_of(address) == wanted), chosen[0])
    if towards is not None:
        for family, place in _places(towards.rpartition("@")[2]):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(place)  # sends nothing: it asks the kernel's table of routes
                own = ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
                if not (own.version == 6 and own.is_link_local):
                    return str(own)
    return addresses[0][1] if addresses else "127.0.0.1"


def own_towards(interface: str | None, names: Sequence[str]) -> list[str]:
    """This host's address for each of these hosts of a job. Raises UsageError.

    One of them may be this host, by a name that stands for loopback here: `localhost`, or its own one, which Debian writes
    beside 127.0.1.1 in /etc/hosts. Its agent takes the address at which it reaches `ckpt run` for the others, too; they
    would reach themselves at a loopback one. So it gets one from which this host sends to others."""
    found = [own_address(interface, name) for name in names]
    outward = [address for address in found if not ipaddress.ip_address(address).is_loopback]
    return [outward[0] if outward and ipaddress.ip_address(each).is_loopback else each for each in found]


def _places(name: str) -> Iterator[tuple[socket.AddressFamily, tuple[object, ...]]]:
    """Where a host is that is called so, IPv4 first. None, if the name does not resolve here."""
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)
        for family, *_, place in sorted(found, key=lambda entry: entry[0] == socket.AF_INET6):
            yield family, place


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
        addresses = {
            address for _, address in own_addresses() if not ipaddress.ip_address(address).is_loopback
        }
        found = [name for name in names if _resolved(name) & addresses]
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"this host is called {own}: of the hosts {', '.join(names)} it is "
        + (f"each of {', '.join(found)}" if found else "none; name it as it calls itself")
    )


def _resolved(name: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
    except OSError:
        return set()
