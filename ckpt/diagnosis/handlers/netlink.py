"""A network device of this machine, its address, and the route to a peer: rtnetlink(7), read only.

Not /sys/class/net: in a network namespace that shows the devices of whoever mounted it.

    device     name of the device
    address    an address that it should have
    peer       an address that should be reached through it
    mtu        the size of the largest packet that it should take, in bytes
    speed      the speed at which it should run, in Mbit/s

    values     alive: "yes" (the machine answers); present: "yes" or "no"; if it is there:
               admin: "up" or "down"; carrier: "up" or "down" (only of a device that is up); mtu (bytes);
               rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped,
               rx_crc_errors, tx_carrier_errors, carrier_changes (numbers)
               mtu_is: "right" or "wrong"
               speed (Mbit/s), duplex: "full" or "half", speed_is: "right" or "wrong" (of a device that has a link and tells)
               neighbour, of the peer, or of the router that leads there: "resolved", or "unresolved": it was asked for its
               hardware address and has not answered; nothing if neither was found out lately (a second ago, at most)
               address: "present" or "gone"; route: "present", "gone", "prohibited" or "other" (another device)
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["ask", "way_out"]

_GETLINK, _GETADDR, _GETROUTE, _GETNEIGH = 18, 22, 26, 30
_ERROR, _DONE = 2, 3
_REQUEST, _DUMP = 1, 0x300
_IFF_UP = 1
_IFNAME, _MTU, _STATS64, _CARRIER, _CARRIER_CHANGES = 3, 4, 23, 33, 35
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_NDA_DST, _NDA_CACHEINFO = 1, 3
_RTN_UNICAST, _RTN_LOCAL = 1, 2
_SIOCETHTOOL, _GSET, _UNKNOWN_SPEED = 0x8946, 1, 0xFFFFFFFF
_INCOMPLETE, _REACHABLE, _FAILED, _NOARP, _PERMANENT = 0x01, 0x02, 0x20, 0x40, 0x80
_LATELY_S = 1.0
_COUNTERS: Final = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "-",
    "-",
    "-",
    "-",
    "rx_crc_errors",
    "-",
    "-",
    "-",
    "-",
    "tx_carrier_errors",
]
"""Of struct rtnl_link_stats64, in its order."""
_NO_ROUTE: Final = {
    errno.ENETUNREACH: "gone",
    errno.EHOSTUNREACH: "gone",
    errno.EACCES: "prohibited",
    errno.EINVAL: "prohibited",  # blackhole
}


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Ask the kernel. Raises NoAnswer if it does not tell."""
    device = str(arguments["device"])
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.settimeout(within_s)
            kernel.bind((0, 0))
            values = _look(kernel, device, arguments.get("address"), arguments.get("peer"))
    except OSError as error:
        raise NoAnswer(f"the kernel does not tell about {device}: {error.strerror or error}") from None
    if "mtu" in arguments and "mtu" in values:
        values["mtu_is"] = "right" if values["mtu"] == float(arguments["mtu"]) else "wrong"
    if values.get("carrier") == "up":
        values |= _speed(device)
    if "speed" in arguments and "speed" in values:
        values["speed_is"] = "right" if values["speed"] == float(arguments["speed"]) else "wrong"
    return values


def way_out(peer: str) -> str:
    """The name of the device over which the kernel would send to this address. Raises OSError: it knows none."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(1.0)
        kernel.bind((0, 0))
        out = _asked_route(kernel, peer)[1].get(_RTA_OIF)
    return "" if out is None else socket.if_indextoname(struct.unpack("=I", out)[0])


def _speed(device: str) -> dict[str, float | str]:
    """What ethtool tells (ETHTOOL_GSET); empty for a device that does not know it."""
    command = array("B", struct.pack("=I40x", _GSET))
    request = struct.pack("16sP", device.encode(), command.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
            fcntl.ioctl(kernel.fileno(), _SIOCETHTOOL, request)
    except OSError:
        return {}
    low, duplex = struct.unpack_from("=HB", command, 12)
    speed = struct.unpack_from("=H", command, 28)[0] << 16 | low
    found: dict[str, float | str] = {"speed": float(speed)} if 0 < speed < _UNKNOWN_SPEED else {}
    return found | ({"duplex": "full" if duplex else "half"} if found and duplex in (0, 1) else {})


def _look(
    kernel: socket.socket, device: str, address: str | None, peer: str | None
) -> dict[str, float | str]:
    found = None
    for body in _talk(kernel, _GETLINK, _DUMP, struct.pack("=BxHiII", 0, 0, 0, 0, 0)):
        _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
        attributes = dict(_attributes(body[16:]))
        if attributes.get(_IFNAME, b"").rstrip(b"\0").decode() == device:
            found = index, flags, attributes
    if found is None:
        return {"present": "no", "alive": "yes"}
    index, flags, attributes = found
    values: dict[str, float | str] = {
        "present": "yes",
        "alive": "yes",
        "admin": "up" if flags & _IFF_UP else "down",
    }
    if flags & _IFF_UP and _CARRIER in attributes:
        values["carrier"] = "up" if attributes[_CARRIER][0] else "down"
    if _MTU in attributes:
        values["mtu"] = float(struct.unpack("=I", attributes[_MTU])[0])
    if _CARRIER_CHANGES in attributes:
        values["carrier_changes"] = float(struct.unpack("=I", attributes[_CARRIER_CHANGES])[0])
    if len(attributes.get(_STATS64, b"")) >= 8 * len(_COUNTERS):
        counts = struct.unpack_from(f"={len(_COUNTERS)}Q", attributes[_STATS64])
        values |= {name: float(count) for name, count in zip(_COUNTERS, counts, strict=True) if name != "-"}
    if address is not None:
        values["address"] = "present" if _packed(address) in _addresses(kernel, index) else "gone"
    if peer is not None:
        values["route"], router = _route(kernel, peer, index)
        if values["route"] == "present":
            values |= _neighbour(kernel, router or _packed(peer), index)
    return values


def _neighbour(kernel: socket.socket, hop: bytes, index: int) -> dict[str, float | str]:
    """What is known of the next hop's hardware address. An entry that is old tells nothing about now; the kernel calls one
    reachable for most of a minute after the next hop was heard."""
    family = socket.AF_INET if len(hop) == 4 else socket.AF_INET6
    for body in _talk(kernel, _GETNEIGH, _DUMP, struct.pack("=BxxxiHBB", family, 0, 0, 0, 0)):
        _, device, state, _, _ = struct.unpack_from("=BxxxiHBB", body)
        attributes = dict(_attributes(body[12:]))
        if device == index and attributes.get(_NDA_DST) == hop:
            if state & (_INCOMPLETE | _FAILED):
                return {"neighbour": "unresolved"}
            is_heard = state & _REACHABLE and _heard_s(attributes) <= _LATELY_S
            if is_heard or state & (_NOARP | _PERMANENT):
                return {"neighbour": "resolved"}
    return {}


def _heard_s(attributes: Mapping[int, bytes]) -> float:
    """How long ago the owner of an entry was heard."""
    [ticks] = struct.unpack_from("=I", attributes[_NDA_CACHEINFO])
    return float(ticks) / os.sysconf("SC_CLK_TCK")


def _addresses(kernel: socket.socket, index: int) -> set[bytes]:
    found: set[bytes] = set()
    for body in _talk(kernel, _GETADDR, _DUMP, struct.pack("=BBBBI", 0, 0, 0, 0, 0)):
        if struct.unpack_from("=BBBBI", body)[4] == index:
            attributes = dict(_attributes(body[8:]))
            found |= {attributes[key] for key in (_IFA_ADDRESS, _IFA_LOCAL) if key in attributes}
    return found


def _route(kernel: socket.socket, peer: str, index: int) -> tuple[str, bytes | None]:
    """What is known of the route, and the address of the router, if it leads over one."""
    try:
        kind, found = _asked_route(kernel, peer)
    except OSError as error:
        if error.errno in _NO_ROUTE:
            return _NO_ROUTE[error.errno], None
        raise
    if kind not in (_RTN_UNICAST, _RTN_LOCAL):
        return "prohibited", None
    out = found.get(_RTA_OIF)
    is_right = out is not None and struct.unpack("=I", out)[0] == index
    return "present" if is_right else "other", found.get(_RTA_GATEWAY)


def _asked_route(kernel: socket.socket, peer: str) -> tuple[int, dict[int, bytes]]:
    """The kind of the route to a peer, and its attributes. Raises OSError."""
    packed = _packed(peer)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    header = struct.pack("=BBBBBBBBI", family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    destination = struct.pack("=HH", 4 + len(packed), _RTA_DST) + packed
    [body] = _talk(kernel, _GETROUTE, 0, header + destination)
    return struct.unpack_from("=BBBBBBBBI", body)[7], dict(_attributes(body[12:]))


def _packed(address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_pton(family, address)


def _talk(kernel: socket.socket, kind: int, flags: int, body: bytes) -> list[bytes]:
    """Send one request; the bodies of all messages of the answer. Raises OSError, also for an error that the
    kernel answers."""
    number = kind  # one request of each kind is under way at most
    kernel.sendall(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, number, 0) + body)
    found: list[bytes] = []
    while True:
        data = kernel.recv(1 << 17)
        while len(data) >= 16:
            length, what, _, answers, _ = struct.unpack_from("=IHHII", data)
            part, data = data[16:length], data[(length + 3) & ~3 :]
            if answers != number:
                continue
            if what == _DONE:
                return found
            if what == _ERROR:
                code = -struct.unpack_from("=i", part)[0]
                raise OSError(code, os.strerror(code))
            found.append(part)
            if not flags & _DUMP:
                return found


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]
