"""Which host hangs on which port of which switch, and how each is asked; and from that the way between two hosts.

A file in TOML. `shell`: the words before a command that runs it on that machine (`["ssh", "-o", "BatchMode=yes",
"n1-mgmt"]`), which should go over another network than the one that is looked at:

    [host.n1]
    address = "10.0.0.1"                # on the network of the job
    interface = "eth0"
    switch = "sw1"                      # and port: where its cable ends; without them the hosts are connected directly
    port = "port1"
    bmc = "10.1.0.1"                    # its management controller, if there is one
    shell = ["ssh", "-o", "BatchMode=yes", "n1-mgmt"]   # a host with the name of this machine needs none
    names = { disk = "/dev/sda" }       # for models of your own: {disk} in arguments

    [switch.sw1]
    snmp = ["10.1.0.100", "10.0.0.254"] # tried in this order
    cache_s = 3.3                       # for how long its agent repeats what it knows; 3.3 if not given
    shell = ["ssh", "admin@sw1"]        # of a switch that runs Linux and has ckpt

    [[trunk]]
    ends = [["sw1", "port24"], ["sw2", "port24"]]

`counters = true` above all: a job reads the counters of all these devices once, when it starts (`baseline`).

`wired = false` above all: what is between the hosts is not known, and a host needs an address only. Each hangs on some
port of some switch, of which nothing can be asked; so a cable is suspected, and never named. That is also what is made
of names alone, where there is no file (`library.between`).

`lldp = true` above all: what the file leaves out of switch, port and trunk comes from LLDP, and what it has is compared
(`lldp`). What comes out of that is a file, too, in JSON (`.json`), with what is `doubtful`: the hosts, and the pairs of
switches (`pair_of`), for which there are contradictions, with the text; no way leads there.

Pure. Not here: reading the file (`library`), asking (`manager`).
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections import deque
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ckpt.diagnosis.errors import BadTopology
from ckpt.diagnosis.errors_map import Side
from ckpt.diagnosis.graph import Place

__all__ = ["Host", "Switch", "Topology", "Trunk", "pair_of", "parse", "way"]

_STRICT = ConfigDict(extra="forbid", frozen=True)


class Host(BaseModel):
    model_config = _STRICT
    address: str
    interface: str = ""
    switch: str | None = None
    port: str | None = None
    bmc: str | None = None
    shell: tuple[str, ...] | None = None
    python: str | None = None
    names: dict[str, str] = {}

    @model_validator(mode="after")
    def _both(self) -> Host:
        if (self.switch is None) != (self.port is None):
            raise ValueError("switch and port go together: give both, or neither")
        return self


class Switch(BaseModel):
    model_config = _STRICT
    snmp: tuple[str, ...] = ()
    cache_s: Annotated[float, Field(ge=0)] = 3.3  # net-snmp keeps its table of ports for 3 s
    shell: tuple[str, ...] | None = None
    python: str | None = None
    names: dict[str, str] = {}


class Trunk(BaseModel):
    model_config = _STRICT
    ends: Annotated[tuple[tuple[str, str], ...], Field(min_length=2, max_length=2)]


class Topology(BaseModel):
    """All of the file, checked."""

    model_config = _STRICT
    host: dict[str, Host]
    switch: dict[str, Switch] = {}
    trunk: tuple[Trunk, ...] = ()
    lldp: bool = False
    counters: bool = False
    wired: bool = True
    doubtful: dict[str, str] = {}

    def of(self, host: str) -> Host:
        """Raises BadTopology for a host that is not in it."""
        if host not in self.host:
            near = difflib.get_close_matches(host, self.host, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(self.host))}"
            raise BadTopology(f"no host {host} in the topology; {hint}")
        return self.host[host]


def parse(data: bytes, path: str) -> Topology:
    """The content of a file, checked. Raises BadTopology, with the name of what is wrong."""
    kind = "JSON" if path.endswith(".json") else "TOML"
    try:
        text = data.decode()
        topology = Topology.model_validate(json.loads(text) if kind == "JSON" else tomllib.loads(text))
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadTopology(f"{path}: this is no {kind}: {error}") from None
    except ValidationError as error:
        raise BadTopology(f"{path}: {_first_error(error)}") from None
    _check(topology, path)
    return topology


_PARTS: dict[str, type[BaseModel]] = {"host": Host, "switch": Switch, "trunk": Trunk}


def _first_error(error: ValidationError) -> str:
    """What is wrong, and what to do."""
    first = error.errors()[0]
    place = list(map(str, first["loc"]))
    where = ".".join(place)
    if first["type"] == "extra_forbidden":
        fields = (_PARTS[place[0]] if len(place) > 1 and place[0] in _PARTS else Topology).model_fields
        near = difflib.get_close_matches(place[-1], fields, n=1)
        return f"{where}: unknown key; " + (f"did you mean {near[0]}?" if near else "remove it")
    if first["type"] == "missing":
        return f"{where} is missing; add it"
    return f"{where}: {str(first['msg']).removeprefix('Value error, ')}"


def _check(topology: Topology, path: str) -> None:
    for name, host in topology.host.items():
        if topology.wired and not host.interface:
            raise BadTopology(f"{path}: host.{name}.interface is missing; add it")
        if not topology.wired and host.switch is not None:
            raise BadTopology(
                f"{path}: host.{name}.switch: the file says wired = false; take one of them out"
            )
    addresses: dict[str, str] = {}
    for name, host in topology.host.items():
        if (other := addresses.setdefault(host.address, name)) != name:
            raise BadTopology(
                f"{path}: hosts {other} and {name} have one address, {host.address}; correct one"
            )
    ports: dict[tuple[str, str], str] = {}
    ends = [
        (f"host {name}", host.switch, host.port)
        for name, host in topology.host.items()
        if host.switch is not None and host.port is not None
    ]
    ends += [("a trunk", *end) for trunk in topology.trunk for end in trunk.ends]
    for who, switch, port in ends:
        if switch not in topology.switch:
            near = difflib.get_close_matches(switch, topology.switch, n=1)
            hint = f"did you mean {near[0]}?" if near else f"add [switch.{switch}]"
            raise BadTopology(f"{path}: {who} hangs on switch {switch}, which is not there; {hint}")
        if (switch, port) in ports:
            raise BadTopology(
                f"{path}: {who} and {ports[switch, port]} hang on the same port {port} of {switch}"
            )
        ports[switch, port] = who


def way(topology: Topology, here: str, there: str, port: int | None = None) -> list[Place]:
    """All places between two hosts and on them, in order. `port`: the TCP port of the peer process, for `{tcp_port}`.

    Of several ways of the same length between two switches, one is looked at; of parallel trunks, all. Raises
    BadTopology for an unknown host, twice the same one, or if no way leads from one to the other.
    """
    one, other = topology.of(here), topology.of(there)
    if here == there:
        raise BadTopology(f"{here} and {there} are the same host; no network is between them")
    for host in (here, there):
        if host in topology.doubtful:
            raise BadTopology(f"the topology of {host} is doubtful: {topology.doubtful[host]}")
    if topology.lldp and None in (one.switch, other.switch):
        raise BadTopology(
            f"the topology leaves to LLDP where the cables of {here} and {there} end: run ckpt diagnose --lldp --keep "
            "FILE while all is well, and give --topology FILE"
        )
    builder = _Way()
    builder.end(here, one, "here", there, other, port)
    if not topology.wired:
        builder.somewhere(here, one, "here")
        builder.somewhere(there, other, "there")
    elif one.switch is None or other.switch is None:
        if one.switch is not None or other.switch is not None:
            alone = here if one.switch is None else there
            raise BadTopology(f"{alone} hangs on no switch, so no way leads from {here} to {there}")
        builder.direct_cable(here, one, there, other)
    else:
        builder.over(topology, here, one, there, other)
    builder.end(there, other, "there", here, one, port)
    return builder.places


def pair_of(one: str, other: str) -> str:
    """The key of two switches in `doubtful`."""
    return " ".join(sorted((one, other)))


class _Way:
    """Collects the places of a way; positions and numbers of links count up."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._link = 0

    def _add(
        self,
        kind: str,
        name: str,
        side: Side,
        links: set[int],
        variables: dict[str, str],
        host: str | None = None,
        switch: str | None = None,
    ) -> None:
        place = Place(kind, name, side, len(self.places), frozenset(links), host, switch, variables)
        self.places.append(place)

    def end(self, name: str, host: Host, side: Side, peer: str, other: Host, port: int | None) -> None:
        """A host with its interface; there, its process too."""
        variables = _of_host(name, host) | {"peer": peer}
        of_peer = {"peer_address": other.address, "peer_interface": other.interface}
        variables |= {key: value for key, value in of_peer.items() if value}
        if port is not None:
            variables["tcp_port"] = str(port)
        kinds = ["host", "interface"] if side == "here" else ["interface", "host", "process"]
        for kind in kinds:
            if kind == "interface" and not host.interface:
                continue
            called = f"{name}:{host.interface}" if kind == "interface" else name
            self._add(kind, called, side, {self._link}, variables, host=name)

    def direct_cable(self, here: str, one: Host, there: str, other: Host) -> None:
        variables = _of_host(here, one) | {"port": other.interface, "switch": there}
        self._add(
            "cable", f"{here}:{one.interface}-{there}:{other.interface}", "here", {self._link}, variables
        )

    def somewhere(self, name: str, host: Host, side: Side) -> None:
        """A cable that leads to some port of some switch."""
        if host.interface:
            switch, links = f"switch-of-{name}", {self._link}
            of_port = {"switch": switch, "port": "unknown"}
            of_cable = _of_host(name, host) | {"switch": "its switch", "port": "(unknown)"}
            parts: list[tuple[str, str, Side, dict[str, str], str | None]] = [
                ("cable", f"{name}:{host.interface}-{switch}:unknown", side, of_cable, None),
                ("port", f"{switch}:unknown", side, of_port, switch),
                ("switch", switch, "between", {"switch": switch}, switch),
            ]
            for kind, called, of_side, variables, owner in parts if side == "here" else reversed(parts):
                self._add(kind, called, of_side, links, variables, switch=owner)
        self._link += side == "here"

    def over(self, topology: Topology, here: str, one: Host, there: str, other: Host) -> None:
        """The switches between two hosts, with the cables at both ends."""
        assert one.switch is not None and other.switch is not None
        switches = _switches(topology, one.switch, other.switch)
        if switches is None:
            raise BadTopology(
                f"no trunk leads from {one.switch} to {other.switch}, so none from {here} to {there}"
            )
        self._cable(topology, here, one, "here")
        arriving = {self._link}
        for name, following in zip(switches, [*switches[1:], None], strict=True):
            trunks = [
                dict(each.ends)
                for each in topology.trunk
                if {end[0] for end in each.ends} == {name, following}
            ]
            leaving = {self._link + 1 + number for number in range(len(trunks) or 1)}
            self._add("switch", name, "between", arriving | leaving, _of_switch(topology, name), switch=name)
            if following is not None:
                if reason := topology.doubtful.get(pair_of(name, following)):
                    raise BadTopology(f"the trunk between {name} and {following} is doubtful: {reason}")
                for number, ends in zip(sorted(leaving), trunks, strict=True):
                    self._trunk(topology, number, (name, ends[name]), (following, ends[following]))
            self._link, arriving = max(leaving), leaving
        self._cable(topology, there, other, "there")

    def _cable(self, topology: Topology, name: str, host: Host, side: Side) -> None:
        assert host.switch is not None and host.port is not None
        switch = _of_switch(topology, host.switch) | {"port": host.port}
        cable = f"{name}:{host.interface}-{host.switch}:{host.port}"
        parts = [
            ("cable", cable, _of_host(name, host) | switch, None),
            ("port", f"{host.switch}:{host.port}", switch, host.switch),
        ]
        for kind, called, variables, of_switch in parts if side == "here" else reversed(parts):
            self._add(kind, called, side, {self._link}, variables, switch=of_switch)

    def _trunk(self, topology: Topology, link: int, one: tuple[str, str], other: tuple[str, str]) -> None:
        near, far = (_of_switch(topology, switch) | {"port": port} for switch, port in (one, other))
        both = near | {f"far_{key}": far[key] for key in ("switch", "port", "snmp") if key in far}
        self._add("port", f"{one[0]}:{one[1]}", "between", {link}, near, switch=one[0])
        self._add("cable", f"{one[0]}:{one[1]}-{other[0]}:{other[1]}", "between", {link}, both)
        self._add("port", f"{other[0]}:{other[1]}", "between", {link}, far, switch=other[0])


def _of_host(name: str, host: Host) -> dict[str, str]:
    found = {"host": name, "address": host.address, "interface": host.interface}
    found = {key: value for key, value in found.items() if value}
    if not host.interface:
        found["no_interface"] = "yes"
    return found | ({"bmc": host.bmc} if host.bmc else {}) | host.names


def _of_switch(topology: Topology, name: str) -> dict[str, str]:
    switch = topology.switch[name]
    return {"switch": name} | ({"snmp": ",".join(switch.snmp)} if switch.snmp else {}) | switch.names


def _switches(topology: Topology, start: str, goal: str) -> list[str] | None:
    """The fewest switches from one to the other, both included; None: there is no way."""
    came_from: dict[str, str | None] = {start: None}
    waiting = deque([start])
    while waiting:
        at = waiting.popleft()
        if at == goal:
            found = [at]
            while (before := came_from[found[-1]]) is not None:
                found.append(before)
            return found[::-1]
        for trunk in topology.trunk:
            names = [end[0] for end in trunk.ends]
            if at in names:
                following = names[1 - names.index(at)]
                if following not in came_from:
                    came_from[following] = at
                    waiting.append(following)
    return None
