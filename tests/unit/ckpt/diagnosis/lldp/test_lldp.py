"""What tables of neighbours say, beside the file of the topology: no way leads to where they contradict."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from random import Random

import pytest

from ckpt.diagnosis.errors import BadTopology, NoAnswer
from ckpt.diagnosis.handlers.lldp import from_lldpcli, from_mib
from ckpt.diagnosis.library import topology as load
from ckpt.diagnosis.lldp.compare import Compared, Row, Table, compare, rows_of
from ckpt.diagnosis.topology import Host, Switch, Topology, Trunk, way
from tests.seeds import seed_of_the_commit

SW1 = Switch(snmp=("10.1.0.100",))
SWITCHES = {"sw1": SW1, "sw2": Switch()}
TRUNK = Trunk(ends=(("sw1", "up"), ("sw2", "up")))


def host(name: str, switch: str | None = None, port: str | None = None, **names: str) -> Host:
    return Host(address=f"10.0.0.{name[1:]}", interface="eth0", switch=switch, port=port, names=names)


def topology(trunks: tuple[Trunk, ...] = (), **places: tuple[str, str] | None) -> Topology:
    hosts = {name: host(name, *(place or ())) for name, place in places.items()}
    return Topology(host=hosts, switch=SWITCHES, trunk=trunks, lldp=True)


def switch(name: str, *rows: tuple[str, str, str]) -> Table:
    return Table(name, True, tuple(Row((port,), who, (far,) if far else ()) for port, who, far in rows))


def of_host(name: str, system: str, far: str, port: str = "eth0") -> Table:
    return Table(name, False, (Row((port,), system, (far,)),))


def place(found: Compared, name: str) -> tuple[str | None, str | None]:
    return found.topology.host[name].switch, found.topology.host[name].port


# ---- what machines print -------------------------------------------------------------------------------


def printed(interface: object) -> str:
    return json.dumps({"lldp": {"interface": interface}})


ONE = {
    "via": "LLDP",
    "chassis": {"sw1": {"id": {"type": "mac", "value": "4a:eb:53:a4:b5:73"}, "mgmt-ip": "10.89.0.1"}},
    "port": {"id": {"type": "mac", "value": "4a:eb:53:a4:b5:73"}, "descr": "port1", "ttl": "4"},
}
NAMELESS = {
    "chassis": {"id": {"type": "mac", "value": "00:01"}},
    "port": {"id": {"type": "mac", "value": "0"}},
}
ALIASED = {
    "chassis": {"c": {"id": {"type": "local", "value": "c"}}},
    "port": {"id": {"type": "ifalias", "value": "to n1"}, "descr": "Eth1"},
}


def test_lldpcli_prints_one_interface_as_a_table_and_several_as_a_list() -> None:
    assert from_lldpcli(printed({"eth0": ONE})) == [[["eth0"], "sw1", ["port1"]]]
    assert from_lldpcli(printed([{"eth0": ONE}, {"eth1": ONE}])) == [
        [["eth0"], "sw1", ["port1"]],
        [["eth1"], "sw1", ["port1"]],
    ]
    assert from_lldpcli('{"lldp": {}}') == []


def test_a_hardware_address_is_no_name_and_an_alias_not_the_best_one() -> None:
    assert from_lldpcli(printed({"eth0": NAMELESS})) == [[["eth0"], "", []]]
    assert from_lldpcli(printed({"eth0": ALIASED})) == [[["eth0"], "c", ["Eth1", "to n1"]]]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"lldp": 3}', printed([3]), printed({"eth0": 3}), printed("x")]
)
def test_what_is_no_table_is_said(text: str) -> None:
    with pytest.raises(NoAnswer, match="no list of neighbours"):
        from_lldpcli(text)


def test_the_tables_of_a_switch() -> None:
    local = {"2.3": "3", "3.3": "82 C5 39", "4.3": "port1", "2.4": "5", "3.4": "Eth4", "4.4": "to sw2"}
    remote = {"6.100.3.1": "3", "7.100.3.1": "3E 89", "8.100.3.1": "eth0", "9.100.3.1": "n1"}
    remote |= {"6.9.4.7": "5", "7.9.4.7": "Eth1", "8.9.4.7": "", "9.9.4.7": "sw2.example.com"}
    remote |= {"6.9.5.7": "5", "6.9": "5", "6": "5", "6.x.y.z": "5"}
    assert from_mib(local, remote) == [
        [["port1"], "n1", ["eth0"]],
        [["Eth4", "to sw2"], "sw2.example.com", ["Eth1"]],
    ]


@pytest.mark.parametrize("text", ["x", "3", "[3]", "[[1, 2]]", '[[["p"], "s", 4]]', "None"])
def test_what_a_handler_tells_is_a_table_or_a_reason(text: str) -> None:
    with pytest.raises(NoAnswer):
        rows_of(text)


def test_what_anybody_can_send_is_no_command_to_a_terminal() -> None:
    text = json.dumps([[["p1"], "\x1b[31mn1\n" + "x" * 300, ["\x00", "eth\x7f0"]]])
    [row] = rows_of(text)
    assert row == Row(("p1",), "[31mn1" + "x" * 249, ("eth0",))


# ---- both compared -------------------------------------------------------------------------------------


def test_what_the_file_leaves_out_is_taken_from_lldp() -> None:
    found = compare(
        topology(n1=None, n2=None),
        [
            switch("sw1", ("port1", "n1", "eth0"), ("up", "sw2", "down")),
            of_host("n2", "sw2.example.com", "port2"),
        ],
    )
    assert place(found, "n1") == ("sw1", "port1")
    assert place(found, "n2") == ("sw2", "port2")
    assert found.contradictions == found.missing == ()
    assert not found.topology.lldp
    ways = [each.name for each in way(found.topology, "n1", "n2") if each.kind in ("cable", "switch")]
    assert ways == ["n1:eth0-sw1:port1", "sw1", "sw1:up-sw2:down", "sw2", "n2:eth0-sw2:port2"]


def test_a_switch_that_only_lldp_knows_has_no_address_from_it() -> None:
    found = compare(topology(n1=None), [of_host("n1", "core9", "Eth1")])
    assert place(found, "n1") == ("core9", "Eth1")
    assert found.topology.switch["core9"] == Switch()


def test_both_agree() -> None:
    found = compare(
        topology((TRUNK,), n1=("sw1", "p1"), n2=("sw2", "p2")),
        [switch("sw1", ("p1", "n1", "eth0"), ("up", "sw2", "up")), of_host("n1", "sw1", "p1")],
    )
    assert found.contradictions == found.missing == ()
    assert found.places == (
        "host n1 (eth0): p1 of sw1 (file, sw1 and n1)",
        "host n2 (eth0): p2 of sw2 (file)",
        "trunk sw1:up-sw2:up (file, sw1)",
    )


CONTRADICTIONS: dict[str, tuple[Topology, list[Table], set[str], str]] = {
    # what: (the file, the tables, the hosts to which no way leads, the text)
    "another port": (
        topology(n1=("sw1", "p1"), n2=("sw1", "p2")),
        [switch("sw1", ("p3", "n1", "eth0"), ("p2", "n2", "eth0"))],
        {"n1"},
        r"host n1 \(eth0\) hangs on p1 of sw1 in the topology, on p3 of sw1 by LLDP \(sw1\)",
    ),
    "two cables exchanged": (
        topology(n1=("sw1", "p1"), n2=("sw1", "p2")),
        [switch("sw1", ("p2", "n1", "eth0"), ("p1", "n2", "eth0"))],
        {"n1", "n2"},
        "host n2 .* hangs on p2 of sw1 in the topology, on p1 of sw1 by LLDP",
    ),
    "another switch, by the host's own word": (
        topology(n1=("sw1", "p1")),
        [of_host("n1", "sw2", "p1")],
        {"n1"},
        "on p1 of sw1 in the topology, on p1 of sw2 by LLDP",
    ),
    "the switch against the host": (
        topology(n1=None),
        [switch("sw1", ("p1", "n1", "eth0")), of_host("n1", "sw1", "p2")],
        {"n1"},
        r"host n1 \(eth0\) is seen on several ports \(sw1: p1 of sw1, n1: p2 of sw1\)",
    ),
    "two hosts on one port": (
        topology(n1=None, n2=None),
        [switch("sw1", ("p1", "n1", "eth0"), ("p1", "n2", "eth0"))],
        {"n1", "n2"},
        "at p1 of sw1 several are seen: n1, n2",
    ),
    "somebody else at the port": (
        topology(n1=("sw1", "p1")),
        [switch("sw1", ("p1", "node-0001", "eth0"))],
        {"n1"},
        r'p1 of sw1 in the topology, where LLDP \(sw1\) sees node-0001; if .* names = .* lldp = "node-0001"',
    ),
    "a switch at the port of a host": (
        topology(n1=("sw1", "p1")),
        [switch("sw1", ("p1", "sw2", "p1"))],
        {"n1"},
        r"where LLDP \(sw1\) sees sw2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_is_named_and_leads_no_way_there(case: str, tmp_path: Path) -> None:
    given, tables, doubtful, text = CONTRADICTIONS[case]
    found = compare(given, tables)
    assert any(re.search(text, each) for each in found.contradictions), found.contradictions
    assert {name for name in found.topology.doubtful if name in given.host} == doubtful
    kept = tmp_path / "topology.json"
    kept.write_text(json.dumps(found.topology.model_dump(mode="json", exclude_defaults=True)))
    assert load(str(kept)) == found.topology
    for name in doubtful:
        other = Topology(host={**found.topology.host, "n9": host("n9")}, doubtful=found.topology.doubtful)
        with pytest.raises(BadTopology, match=f"the topology of {name} is doubtful: "):
            way(other, name, "n9")


def test_a_trunk_between_other_ports() -> None:
    given = topology((TRUNK,), n1=("sw1", "p1"), n2=("sw2", "p2"), n3=("sw1", "p3"))
    found = compare(given, [switch("sw1", ("up", "sw2", "up7"))])
    assert found.contradictions == (
        "trunk sw1:up-sw2:up is in the topology, LLDP (sw1) sees one between up of sw1 and up7 of sw2",
    )
    with pytest.raises(BadTopology, match="the trunk between sw1 and sw2 is doubtful"):
        way(found.topology, "n1", "n2")
    assert way(found.topology, "n1", "n3")


def test_a_host_in_no_table_is_missing_and_goes_on_as_in_the_file() -> None:
    found = compare(
        topology(n1=("sw1", "p1"), n2=("sw1", "p2"), n3=("sw2", "p1")), [switch("sw1", ("p1", "n1", "eth0"))]
    )
    assert found.contradictions == ()
    assert found.missing == (
        "host n2 (eth0) is in no table (asked: sw1): is its cable plugged in, and does lldpd run on it?",
    )
    assert place(found, "n2") == ("sw1", "p2")


def test_a_host_that_nobody_places_is_doubtful() -> None:
    found = compare(topology(n1=None, n2=("sw1", "p2")), [])
    assert found.missing == ("where the cable of host n1 (eth0) ends is not known: LLDP did not say it",)
    assert found.places == ("host n1 (eth0): not known", "host n2 (eth0): p2 of sw1 (file)")
    with pytest.raises(BadTopology, match=r"where the cable of host n1 .* ends is not known"):
        way(found.topology, "n1", "n2")


def test_the_other_networks_of_a_host_and_what_runs_on_it_contradict_nothing() -> None:
    tables = [
        switch(
            "sw1", ("p1", "n1", "eth0"), ("p1", "container-7", "eth0"), ("p9", "n1", "mgmt0"), ("p8", "", "x")
        ),
        Table("n1", False, (Row(("mgmt0",), "sw2", ("p5",)), Row(("eth0",), "sw1", ("p1",)))),
    ]
    found = compare(topology(n1=("sw1", "p1")), tables)
    assert found.contradictions == found.missing == ()


def test_a_description_that_ports_have_in_common_makes_them_no_one_port() -> None:
    tables = [
        Table(
            "sw1", True, (Row(("Eth1", "server"), "n1", ("eth0",)), Row(("Eth2", "server"), "n2", ("eth0",)))
        ),
        Table("n2", False, (Row(("eth0",), "sw1", ("Eth2", "server")),)),
    ]
    found = compare(topology(n1=None, n2=("sw1", "Eth2")), tables)
    assert found.contradictions == ()
    assert place(found, "n1") == ("sw1", "Eth1")


def test_parallel_trunks() -> None:
    rows = [("up1", "sw2", "a1"), ("up2", "sw2", "a2")]
    found = compare(topology(n1=("sw1", "p1")), [switch("sw1", *rows), switch("sw2", ("a2", "sw1", "up2"))])
    assert {each.ends for each in found.topology.trunk} == {
        (("sw1", "up1"), ("sw2", "a1")),
        (("sw1", "up2"), ("sw2", "a2")),
    }
    assert found.contradictions == ()


def test_a_trunk_that_two_switches_share_is_not_taken() -> None:
    """Behind a device that passes LLDP on, a port has two switches."""
    given = topology(n1=("sw1", "p1"))
    given = given.model_copy(update={"switch": {**SWITCHES, "sw3": Switch()}})
    found = compare(given, [switch("sw1", ("up", "sw2", "a"), ("up", "sw3", "a"))])
    assert found.contradictions[0] == "at up of sw1 several are seen: sw2, sw3"
    assert {"sw1 sw2", "sw1 sw3"} <= set(found.topology.doubtful)


def test_two_hosts_with_a_cable_between_them() -> None:
    found = compare(topology(n1=None, n2=None), [of_host("n1", "n2", "eth0"), of_host("n2", "n1", "eth0")])
    assert found.contradictions == found.missing == ()
    assert "cable" in [each.kind for each in way(found.topology, "n1", "n2")]


def test_a_name_that_only_the_topology_can_join() -> None:
    given = Topology(host={"n1": host("n1", "sw1", "p1", lldp="node-0001")}, switch=SWITCHES, lldp=True)
    assert compare(given, [switch("sw1", ("p1", "node-0001", "eth0"))]).contradictions == ()


def test_without_lldp_a_file_that_leaves_it_out_is_refused() -> None:
    with pytest.raises(BadTopology, match="run ckpt diagnose --lldp --keep FILE"):
        way(topology(n1=None, n2=("sw1", "p1")), "n1", "n2")


def test_no_table_at_all_leads_to_a_place_that_only_one_says() -> None:
    """Random files and tables, some of them wrong: a way leads to a host only if nobody who speaks of it says otherwise."""
    random = Random(seed_of_the_commit())
    names, ports = ("n1", "n2", "n3"), [*product(("sw1", "sw2"), ("p1", "p2", "p3"))]
    for _ in range(400):
        claims = random.sample([*ports, None, None], 3)
        given = topology(**dict(zip(names, claims, strict=True)))
        said: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
        rows: dict[str, list[tuple[str, str, str]]] = {"sw1": [], "sw2": []}
        tables: list[Table] = []
        for name, claim in zip(names, claims, strict=True):
            true = claim if claim and random.random() < 0.7 else random.choice(ports)
            if random.random() < 0.7:
                said[name].append(true)
                rows[true[0]].append((true[1], name, "eth0"))
            if random.random() < 0.5:
                own = true if random.random() < 0.7 else random.choice(ports)
                said[name].append(own)
                tables.append(of_host(name, *own))
        found = compare(given, [*tables, *(switch(name, *each) for name, each in rows.items())])
        Topology.model_validate(found.topology.model_dump())
        placed = [place(found, name) for name in names if name not in found.topology.doubtful]
        assert len({*placed}) == len(placed), found
        for name, claim in zip(names, claims, strict=True):
            words = {*said[name], *([claim] if claim else [])}
            if name not in found.topology.doubtful:
                assert words == {place(found, name)}, (name, found)
            else:
                others = {each for other in names if other != name for each in said[other]}
                assert len(words) != 1 or words & others, (name, found)
