"""What LLDP says of the cables, beside what the file of the topology says of them; and one topology from both. Pure.

A *table* is what one machine has told: a row for each neighbour, `own port`, `system`, `far port`. A port has
several names, and none if only a hardware address is told.

1. A host is *seen* on a port by the table of the switch, by its own lldpd, or by both. Its interface has to be the one
   of the topology, unless no table tells interfaces. What is seen under two names is one port if they share a name.
2. Where the file says nothing, what is seen is taken. Where both say something, they have to agree.
3. What contradicts makes the place of the host *doubtful*: the diagnosis refuses to look at ways to it, by name, rather
   than to ask a port that is another's. The same for the trunks between two switches.

Contradictions: the file against what is seen; two tables against each other; two hosts on one port; a port at which
another machine is seen. Missing, and only said: a host or trunk in no table of those that could have seen it. Names of
systems are those of the topology, with or without a domain, or what it has as names = { lldp = "…" }. Systems that it
does not have, such as containers on a host, contradict nothing where the right one is seen, too.

Not here: asking (`survey`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpt.diagnosis.errors import NoAnswer
from ckpt.diagnosis.topology import Host, Switch, Topology, Trunk, pair_of

__all__ = ["Compared", "Row", "Table", "compare", "rows_of"]

Names = tuple[str, ...]
_LONGEST = 255
"""The most letters of a name in LLDP (IEEE 802.1AB, 9.5)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One neighbour. The names of a port: the best one first; empty: not told."""

    port: Names
    system: str
    far_port: Names


@dataclass(frozen=True, slots=True)
class Table:
    """What `machine` has told; `is_switch`: it is one of the topology's switches, else a host."""

    machine: str
    is_switch: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """`topology`: of both. `places`: a line for each host and trunk. `contradictions`, `missing`: texts."""

    topology: Topology
    places: tuple[str, ...]
    contradictions: tuple[str, ...]
    missing: tuple[str, ...]


def rows_of(text: str) -> tuple[Row, ...]:
    """The rows that a handler has told as JSON. Raises NoAnswer for anything else."""
    try:
        return tuple(
            Row(_names(port), _shown(str(system)), _names(far_port))
            for port, system, far_port in json.loads(text)
        )
    except (ValueError, TypeError):
        raise NoAnswer("what it tells is no table of neighbours") from None


def _names(port: list[object]) -> Names:
    return tuple(name for each in port if (name := _shown(str(each))))


def _shown(name: str) -> str:
    """Whoever has a cable can send any text, and texts of ours go to terminals."""
    return "".join(letter for letter in name if letter.isprintable())[:_LONGEST]


def compare(topology: Topology, tables: Sequence[Table]) -> Compared:
    """One topology from a file and tables. Nothing is raised because of what tables say."""
    return _Comparison(topology, tables).done()


@dataclass(slots=True)
class _End:
    """One port with what is at it: `switch` as in the topology, or as the system names itself."""

    switch: str
    names: Names
    by: list[str]

    def is_port_of(self, switch: str, names: Names) -> bool:
        # a description that two ports have in common makes them no one port: the best name of one has to be there
        return self.switch == switch and (self.names[0] in names or names[0] in self.names)

    def merge(self, names: Names, by: str, *, better: bool) -> None:
        both = (*names, *self.names) if better else (*self.names, *names)
        self.names = tuple(dict.fromkeys(both))
        if by not in self.by:
            self.by.append(by)

    def __str__(self) -> str:
        return f"{self.names[0]} of {self.switch}"


@dataclass(slots=True)
class _Link:
    """A trunk that is seen; `one` is of the switch whose name comes first."""

    one: _End
    other: _End


@dataclass(slots=True)
class _Seen:
    """At a port of a switch: who."""

    end: _End
    machines: dict[str, None] = field(default_factory=dict)
    strangers: dict[str, None] = field(default_factory=dict)


class _Comparison:
    def __init__(self, topology: Topology, tables: Sequence[Table]) -> None:
        self.topology, self.tables = topology, tables
        self.asked = {table.machine for table in tables}
        self.hosts: dict[str, list[_End]] = {}
        self.direct: set[str] = set()
        self.unclear: dict[str, list[_End]] = {}
        self.links: list[_Link] = []
        self.ports: list[_Seen] = []
        self.places: list[str] = []
        self.contradictions: list[str] = []
        self.missing: list[str] = []
        self.doubtful: dict[str, str] = {}
        self.found: dict[str, _End] = {}

    def done(self) -> Compared:
        self._read()
        for name, host in self.topology.host.items():
            self._host(name, host)
        self._crowded()
        trunks = self._trunks()
        topology = self._topology(trunks)
        return Compared(topology, tuple(self.places), tuple(self.contradictions), tuple(self.missing))

    # ---- reading -----------------------------------------------------------------------------------------

    def _known(self, system: str) -> tuple[str, bool] | None:
        """The machine of the topology with this name, and whether it is a switch; None: there is none, or two."""
        said, short = system.lower(), system.lower().partition(".")[0]
        found: tuple[list[tuple[str, bool]], ...] = ([], [], [])
        for of, is_switch in ((self.topology.host, False), (self.topology.switch, True)):
            for name, machine in of.items():
                if said and said == machine.names.get("lldp", "").lower():
                    found[0].append((name, is_switch))
                elif said == name.lower():
                    found[1].append((name, is_switch))
                elif short and short == name.lower().partition(".")[0]:
                    found[2].append((name, is_switch))
        best = next((each for each in found if each), [])
        return best[0] if len(best) == 1 else None

    def _read(self) -> None:
        # those of switches first: of the names of a port their own ones count
        for table in sorted(self.tables, key=lambda each: not each.is_switch):
            for row in table.rows:
                known = self._known(row.system)
                if table.is_switch:
                    self._told_by_switch(table.machine, row, known)
                else:
                    self._told_by_host(table.machine, row, known)
        for name, ends in self.unclear.items():
            self.hosts.setdefault(name, ends)

    def _told_by_switch(self, switch: str, row: Row, known: tuple[str, bool] | None) -> None:
        if not row.port:
            return
        name, is_switch = known or (row.system, False)
        self._at(switch, row.port, name if known else None, row.system, switch)
        if known and is_switch:
            self._link(switch, row.port, name, row.far_port, switch)
        elif known:
            self._seen(name, row.far_port, switch, row.port, switch)

    def _told_by_host(self, host: str, row: Row, known: tuple[str, bool] | None) -> None:
        if known and not known[1]:
            if self.topology.host[host].interface in row.port:
                self.direct.add(host)
            return
        switch = known[0] if known else row.system
        if switch and row.far_port and self.topology.host[host].interface in row.port:
            self._at(switch, row.far_port, host, host, host)
            self._seen(host, row.port, switch, row.far_port, host)

    def _at(self, switch: str, names: Names, machine: str | None, system: str, by: str) -> None:
        for seen in self.ports:
            if seen.end.is_port_of(switch, names):
                break
        else:
            seen = _Seen(_End(switch, names, [by]))
            self.ports.append(seen)
        seen.end.merge(names, by, better=False)
        if machine is not None:
            seen.machines[machine] = None
        elif system:
            seen.strangers[system] = None

    def _seen(self, name: str, interface: Names, switch: str, names: Names, by: str) -> None:
        if interface and self.topology.host[name].interface not in interface:
            return  # another network's
        ends = (self.hosts if interface else self.unclear).setdefault(name, [])
        for end in ends:
            if end.is_port_of(switch, names):
                end.merge(names, by, better=by == switch)
                return
        ends.append(_End(switch, names, [by]))

    def _link(self, near: str, near_names: Names, far: str, far_names: Names, by: str) -> None:
        if near == far or not far_names:
            return
        ends = sorted((_End(near, near_names, [by]), _End(far, far_names, [by])), key=lambda end: end.switch)
        one, other = ends
        for link in self.links:
            if link.one.is_port_of(one.switch, one.names) and link.other.is_port_of(
                other.switch, other.names
            ):
                link.one.merge(one.names, by, better=by == one.switch)
                link.other.merge(other.names, by, better=by == other.switch)
                return
        self.links.append(_Link(one, other))

    # ---- hosts -------------------------------------------------------------------------------------------

    def _host(self, name: str, host: Host) -> None:
        called, ends = f"host {name} ({host.interface})", self.hosts.get(name, [])
        said = None if host.switch is None else f"{host.port} of {host.switch}"
        if len(ends) > 1:
            seen = ", ".join(f"{_by(end)}: {end}" for end in ends)
            self._contradict(name, f"{called} is seen on several ports ({seen})")
        elif ends and host.switch is not None and not ends[0].is_port_of(host.switch, (str(host.port),)):
            self._contradict(
                name, f"{called} hangs on {said} in the topology, on {ends[0]} by LLDP ({_by(ends[0])})"
            )
        elif ends:
            self.found[name] = ends[0]
            self.places.append(f"{called}: {said or ends[0]} ({'file, ' if said else ''}{_by(ends[0])})")
            if host.switch in self.asked and host.switch not in ends[0].by:
                self.missing.append(f"{called} is not in the table of {host.switch}, which it sees itself")
        elif said is not None and (other := self._occupant(name, host)) is not None:
            self._contradict(name, other)
        else:
            self._unseen(name, host, called, said)

    def _unseen(self, name: str, host: Host, called: str, said: str | None) -> None:
        """No table has it."""
        switches = [host.switch] if host.switch else list(self.topology.switch)
        asked = [each for each in (*switches, name) if each in self.asked]
        if asked and name not in self.direct:
            self.missing.append(
                f"{called} is in no table (asked: {', '.join(asked)}): is its cable plugged in, and does lldpd run on it?"
            )
        if said is not None:
            self.places.append(f"{called}: {said} (file)")
        elif name in self.direct:
            self.places.append(f"{called}: directly at another host ({name})")
        else:
            self.doubtful[name] = f"where the cable of {called} ends is not known: LLDP did not say it"
            self.places.append(f"{called}: not known")
            if not asked:
                self.missing.append(self.doubtful[name])

    def _occupant(self, name: str, host: Host) -> str | None:
        """What else is seen at the port that the file gives to this host."""
        for seen in self.ports:
            if host.switch is None or not seen.end.is_port_of(host.switch, (str(host.port),)):
                continue
            if others := [*seen.machines, *seen.strangers]:
                hint = f'; if it is the same, give host {name} names = {{ lldp = "{others[0]}" }}'
                return (
                    f"host {name} ({host.interface}) hangs on {host.port} of {host.switch} in the topology, where LLDP "
                    f"({_by(seen.end)}) sees {', '.join(others)}{'' if seen.machines else hint}"
                )
        return None

    def _crowded(self) -> None:
        """Several machines of the topology on one port: something between them passes LLDP on."""
        for seen in self.ports:
            if len(seen.machines) > 1:
                text = f"at {seen.end} several are seen: {', '.join(seen.machines)}"
                hosts = [name for name in seen.machines if name in self.topology.host]
                for key in hosts or [pair_of(seen.end.switch, each) for each in seen.machines]:
                    self._contradict(key, text)

    def _contradict(self, key: str, text: str) -> None:
        self.doubtful.setdefault(key, text)
        if text not in self.contradictions:
            self.contradictions.append(text)

    # ---- trunks ------------------------------------------------------------------------------------------

    def _trunks(self) -> list[Trunk]:
        """Those of the file, and those that are seen besides."""
        trunks, left = list(self.topology.trunk), list(self.links)
        for trunk in self.topology.trunk:
            (one, port), (other, far_port) = sorted(trunk.ends)
            called, pair = f"trunk {one}:{port}-{other}:{far_port}", pair_of(one, other)
            at_one = [link for link in self.links if _has(link, one, port)]
            at_other = [link for link in self.links if _has(link, other, far_port)]
            right = [link for link in at_one if link in at_other]
            wrong = [link for link in (*at_one, *at_other) if link not in right]
            if wrong:
                seen = f"{wrong[0].one} and {wrong[0].other}"
                self._contradict(
                    pair, f"{called} is in the topology, LLDP ({_by(wrong[0].one)}) sees one between {seen}"
                )
                for link in wrong:
                    self.doubtful.setdefault(pair_of(link.one.switch, link.other.switch), self.doubtful[pair])
            elif right:
                self.places.append(f"{called} (file, {_by(right[0].one)})")
            else:
                self.places.append(f"{called} (file)")
                if asked := [each for each in (one, other) if each in self.asked]:
                    self.missing.append(f"{called} is in no table (asked: {', '.join(asked)})")
            left = [link for link in left if link not in (*right, *wrong)]
        for link in left:
            trunk = Trunk(
                ends=((link.one.switch, link.one.names[0]), (link.other.switch, link.other.names[0]))
            )
            trunks.append(trunk)
            self.places.append(
                f"trunk {link.one.switch}:{link.one.names[0]}-{link.other.switch}:{link.other.names[0]} "
                f"({_by(link.one)})"
            )
        return trunks

    # ---- the topology of both ----------------------------------------------------------------------------

    def _topology(self, trunks: Sequence[Trunk]) -> Topology:
        hosts, switches = dict(self.topology.host), dict(self.topology.switch)
        for name, end in self.found.items():
            if hosts[name].switch is None:
                hosts[name] = hosts[name].model_copy(update={"switch": end.switch, "port": end.names[0]})
                switches.setdefault(end.switch, Switch())
        kept = self._free_of_hosts(hosts, trunks)
        for name in hosts.keys() & self.doubtful.keys():
            hosts[name] = hosts[name].model_copy(update={"switch": None, "port": None})
        update: dict[str, Any] = {
            "host": hosts,
            "switch": switches,
            "trunk": kept,
            "lldp": False,
            "doubtful": self.doubtful,
        }
        return self.topology.model_copy(update=update)

    def _free_of_hosts(self, hosts: Mapping[str, Host], trunks: Sequence[Trunk]) -> tuple[Trunk, ...]:
        """The trunks, but for those at a port that a host or another trunk has."""
        taken: dict[tuple[str | None, str | None], str] = {
            (host.switch, host.port): name for name, host in hosts.items() if name not in self.doubtful
        }
        kept: list[Trunk] = []
        for trunk in trunks:
            (one, port), (other, far_port) = trunk.ends
            pair = pair_of(one, other)
            if holders := [taken[end] for end in trunk.ends if end in taken]:
                text = f"a trunk is seen between {port} of {one} and {far_port} of {other}, where another cable ends"
                for key in (pair, *holders):
                    self._contradict(key, text)
                continue
            kept.append(trunk)
            taken |= dict.fromkeys(trunk.ends, pair)
        return tuple(kept)


def _by(end: _End) -> str:
    return " and ".join(end.by)


def _has(link: _Link, switch: str, port: str) -> bool:
    return link.one.is_port_of(switch, (port,)) or link.other.is_port_of(switch, (port,))
