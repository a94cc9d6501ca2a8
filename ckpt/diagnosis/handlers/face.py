"""Which handlers there are, and what each needs. Pure: the modules themselves are imported by the process that asks.

    local      asks the machine on which it runs
    on_way     asks over the network of the job, so it runs on the host that got the error; all others ask over
               whatever network leads to the device from the machine on which the diagnosis runs
    cached     what it tells may be some seconds old: agents of switches keep their tables for so long
    alone      its library is not made for threads: a process for each address, one question after the other
    secret     which part of the credentials file it is given, or None
    library    what it imports only when it asks
    lists      arguments that are lists of words
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
        "library",
        "lists",
        "local",
        "module",
        "needs",
        "on_way",
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
    ) -> None:
        self.lists = lists
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
) -> HandlerFace:
    words = frozenset(needs.split()), frozenset(takes.split())
    return HandlerFace(
        *words, local, secret, module, on_way, alone, cached, says, library, frozenset(lists.split())
    )


_ALIVE = {"alive": ("yes",)}
_ANSWER = {"answer": ("accepted", "refused")}


HANDLERS: Mapping[str, HandlerFace] = {
    "command": _face("command", "run", "pattern within_s", local=True, lists="run"),
    "filters": _face("filters", "peer device", local=True),
    "ipmi": _face("ipmi", "address", "sensor", secret="ipmi"),
    "kernel-log": _face("kernel_log", "pattern", "seconds", local=True),
    "lldp": _face("lldp", "", "socket", local=True),
    "netlink": _face("netlink", "device", "address peer mtu speed", local=True, says=_ALIVE),
    "redfish": _face("redfish", "address", secret="redfish"),
    "snmp": _face(
        "snmp",
        "address",
        "port oid table",
        secret="snmp",
        alone=True,
        cached=True,
        says=_ALIVE,
        library="ezsnmp",
    ),
    "sockets": _face("sockets", "port", local=True),
    "sysfs": _face("sysfs", "files", "scale", local=True),
    "tcp": _face("tcp", "address port", on_way=True, says={**_ALIVE, **_ANSWER}),
}
