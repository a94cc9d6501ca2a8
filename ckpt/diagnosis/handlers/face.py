"""Which handlers there are, and what each needs. Pure: the modules themselves are imported by the process that asks.

    local      asks the machine on which it runs
    on_way     asks over the network of the job, so it runs on the host that got the error; all others ask over
               whatever network leads to the device from the machine on which the diagnosis runs
    cached     what it tells may be some seconds old: agents of switches keep their tables for so long
    alone      its library is not made for threads: a process for each address, one question after the other
    secret     which part of the credentials file it is given, or None
    library    what it imports only when it asks
    lists      arguments that are lists of words
    patterns   arguments that are regular expressions
    gives      all values that it can answer, each with the argument without which there is none ("": it needs none besides)
    says       of some values, all texts that they may be: `alive` is "yes" or nothing

Every module has `ask(arguments, secret, within_s) -> {name: number or text}`: it returns within about so many
seconds, or raises NoAnswer with a reason for people. It may hang all the same: it runs in a process that is killed.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["HANDLERS", "HandlerFace"]


class HandlerFace:
    """The arguments that a handler needs, and those that it may be given besides."""

    # no dataclass, and nothing of typing: a diagnosis starts many processes, and to import these costs more than to ask
    __slots__ = (
        "alone",
        "cached",
        "gives",
        "library",
        "lists",
        "local",
        "module",
        "needs",
        "on_way",
        "patterns",
        "says",
        "secret",
        "takes",
    )

    def __init__(
        self,
        needs: frozenset[str],
        takes: frozenset[str] = frozenset(),
        local: bool = False,
        secret: str | None = None,
        module: str = "",
        on_way: bool = False,
        alone: bool = False,
        cached: bool = False,
        says: Mapping[str, tuple[str, ...]] | None = None,
        library: str = "",
        lists: frozenset[str] = frozenset(),
        gives: Mapping[str, str] | None = None,
        patterns: frozenset[str] = frozenset(),
    ) -> None:
        self.lists, self.gives, self.patterns = lists, gives or {}, patterns
        self.says = says or {}
        self.needs, self.takes = needs, takes
        self.local, self.on_way, self.alone, self.cached = local, on_way, alone, cached
        self.secret, self.module, self.library = secret, module, library


def _face(
    module: str,
    needs: str,
    takes: str = "",
    *,
    local: bool = False,
    on_way: bool = False,
    alone: bool = False,
    cached: bool = False,
    secret: str | None = None,
    says: Mapping[str, tuple[str, ...]] | None = None,
    library: str = "",
    lists: str = "",
    gives: str = "",
    gives_with: Mapping[str, str] | None = None,
    patterns: str = "",
) -> HandlerFace:
    """`gives`: the values; `gives_with`: those that come with an argument, by its name."""
    words = frozenset(needs.split()), frozenset(takes.split())
    values = {
        value: argument
        for argument, names in {"": gives, **(gives_with or {})}.items()
        for value in names.split()
    }
    return HandlerFace(
        *words,
        local,
        secret,
        module,
        on_way,
        alone,
        cached,
        says,
        library,
        frozenset(lists.split()),
        values,
        frozenset(patterns.split()),
    )


_ALIVE = {"alive": ("yes",)}
_ANSWER = {"answer": ("accepted", "refused")}
_SENSORS = {"sensor": "highest lowest count failed"}
_COUNTERS = (
    "rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped "
    "rx_crc_errors tx_carrier_errors"
)
_PORT_COUNTERS = "in_packets out_packets in_errors out_errors in_discards out_discards in_bytes out_bytes"

HANDLERS: Mapping[str, HandlerFace] = {
    "command": _face(
        "command",
        "run",
        "pattern within_s",
        local=True,
        lists="run",
        patterns="pattern",
        gives="exit late",
        gives_with={"pattern": "text number highest lowest"},
    ),
    "filters": _face("filters", "peer device", local=True, gives="drops rule"),
    "ipmi": _face(
        "ipmi", "address", "sensor", secret="ipmi", patterns="sensor", gives="power", gives_with=_SENSORS
    ),
    "kernel-log": _face(
        "kernel_log", "pattern", "seconds", local=True, patterns="pattern", gives="matches last"
    ),
    "lldp": _face("lldp", "", "socket", local=True, gives="links neighbours"),
    "netlink": _face(
        "netlink",
        "device",
        "address peer mtu speed",
        local=True,
        says=_ALIVE,
        gives=f"alive present admin carrier mtu speed duplex carrier_changes {_COUNTERS}",
        gives_with={"mtu": "mtu_is", "speed": "speed_is", "address": "address", "peer": "route neighbour"},
    ),
    "redfish": _face(
        "redfish",
        "address",
        secret="redfish",
        gives="power slowest_fan hottest_cpu processors memory drives disk_controllers supplies network",
    ),
    "snmp": _face(
        "snmp",
        "address",
        "port oid table",
        secret="snmp",
        alone=True,
        cached=True,
        says=_ALIVE,
        library="ezsnmp",
        gives="alive",
        gives_with={
            "port": f"admin link speed {_PORT_COUNTERS}",
            "oid": "value",
            "table": "links neighbours slowest_fan fan_failed supply_failed hottest",
        },
    ),
    "sockets": _face("sockets", "port", local=True, gives="listening"),
    "sysfs": _face("sysfs", "files", "scale", local=True, gives="highest lowest sum count text worst"),
    "tcp": _face("tcp", "address port", on_way=True, says={**_ALIVE, **_ANSWER}, gives="answer alive"),
}
