"""The file of the topology, the way between two hosts, and every bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt.diagnosis.errors import BadTopology
from ckpt.diagnosis.graph import Place, same
from ckpt.diagnosis.library import topology as load
from ckpt.diagnosis.topology import Topology, way

FILE = """\
[host.n1]
address = "10.0.0.1"
interface = "eth0"
switch = "sw1"
port = "p1"
bmc = "10.1.0.1"
names = { disk = "/dev/sda" }
[host.n2]
address = "10.0.0.2"
interface = "eth0"
switch = "sw1"
port = "p2"
[host.n3]
address = "10.0.0.3"
interface = "ib0"
switch = "sw3"
port = "p1"
[host.n4]
address = "10.0.0.4"
interface = "eth0"
[host.n5]
address = "10.0.0.5"
interface = "eth0"
[switch.sw1]
snmp = ["10.1.0.100", "10.0.0.254"]
[switch.sw2]
[switch.sw3]
[[trunk]]
ends = [["sw1", "up"], ["sw2", "a"]]
[[trunk]]
ends = [["sw3", "up"], ["sw2", "b"]]
[[trunk]]
ends = [["sw1", "up2"], ["sw2", "a2"]]
"""


def read(text: str, tmp_path: Path) -> Topology:
    (tmp_path / "t.toml").write_text(text)
    return load(str(tmp_path / "t.toml"))


def names(places: list[Place]) -> list[str]:
    return [f"{place.kind} {place.name}" for place in places]


def test_two_hosts_on_one_switch(tmp_path: Path) -> None:
    places = way(read(FILE, tmp_path), "n1", "n2", 7000)
    assert names(places) == [
        "host n1",
        "interface n1:eth0",
        "cable n1:eth0-sw1:p1",
        "port sw1:p1",
        "switch sw1",
        "port sw1:p2",
        "cable n2:eth0-sw1:p2",
        "interface n2:eth0",
        "host n2",
        "process n2",
    ]
    assert [place.position for place in places] == list(range(len(places)))
    assert [place.side for place in places] == ["here"] * 4 + ["between"] + ["there"] * 5
    assert places[0].variables["bmc"] == "10.1.0.1"
    assert places[0].variables["disk"] == "/dev/sda"
    assert places[0].variables["peer_address"] == "10.0.0.2"
    assert places[-1].variables["tcp_port"] == "7000"
    assert places[4].variables["snmp"] == "10.1.0.100,10.0.0.254"


def test_over_three_switches_with_parallel_trunks(tmp_path: Path) -> None:
    places = way(read(FILE, tmp_path), "n1", "n3")
    found = names(places)
    assert [each for each in found if each.startswith("switch")] == ["switch sw1", "switch sw2", "switch sw3"]
    trunks = ["cable sw1:up-sw2:a", "cable sw1:up2-sw2:a2", "cable sw2:b-sw3:up"]
    cables = ["cable n1:eth0-sw1:p1", *trunks, "cable n3:ib0-sw3:p1"]
    assert [each for each in found if each.startswith("cable")] == cables
    by_name = {f"{place.kind} {place.name}": place for place in places}
    switch = by_name["switch sw2"]
    for cable in cables[1:4]:
        assert same(by_name[cable], switch)
    assert not same(by_name[cables[0]], switch)
    assert not same(by_name[cables[1]], by_name[cables[2]])
    assert not same(by_name["port sw1:up"], by_name["port sw2:a"])
    assert not same(by_name["port sw1:up"], by_name["port sw1:up2"])
    assert same(by_name["port sw1:up"], by_name["switch sw1"])
    assert by_name[cables[3]].variables["far_switch"] == "sw3"
    assert [each.name for each in way(read(FILE, tmp_path), "n3", "n1") if each.kind == "switch"] == [
        "sw3",
        "sw2",
        "sw1",
    ]


def test_two_hosts_with_a_cable_between_them(tmp_path: Path) -> None:
    assert names(way(read(FILE, tmp_path), "n4", "n5")) == [
        "host n4",
        "interface n4:eth0",
        "cable n4:eth0-n5:eth0",
        "interface n5:eth0",
        "host n5",
        "process n5",
    ]


@pytest.mark.parametrize(
    ("here", "there", "complaint"),
    [
        ("node1", "n2", "no host node1 in the topology; there are n1"),
        ("n1", "n44", "no host n44 in the topology; did you mean n4"),
        ("n1", "n1", "n1 and n1 are the same host"),
        ("n1", "n4", "n4 hangs on no switch, so no way leads from n1 to n4"),
    ],
)
def test_no_way(here: str, there: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match=complaint):
        way(read(FILE, tmp_path), here, there)


def test_no_trunk(tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match="no trunk leads from sw1 to sw3, so none from n1 to n3"):
        way(read(FILE.replace('["sw3", "up"]', '["sw1", "x"]'), tmp_path), "n1", "n3")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('port = "p2"', "", "host.n2: switch and port go together: give both, or neither"),
        ('"10.0.0.2"', '"10.0.0.1"', "hosts n1 and n2 have one address, 10.0.0.1; correct one"),
        ('port = "p2"', 'port = "p1"', "host n2 and host n1 hang on the same port p1 of sw1"),
        ('["sw1", "up"]', '["sw1", "p1"]', "a trunk and host n1 hang on the same port p1 of sw1"),
        (
            'switch = "sw3"',
            'switch = "sw33"',
            "host n3 hangs on switch sw33, which is not there; did you mean sw3",
        ),
        (
            'switch = "sw3"',
            'switch = "core"',
            "host n3 hangs on switch core, which is not there; add .switch.core.",
        ),
        ('bmc = "10.1.0.1"', 'bcm = "10.1.0.1"', "host.n1.bcm: unknown key; did you mean bmc?"),
        ('address = "10.0.0.1"', "", "host.n1.address is missing; add it"),
        ('ends = [["sw1", "up"], ["sw2", "a"]]', 'ends = [["sw1", "up"]]', "trunk.0.ends: "),
        ("[switch.sw2]", "[switch.sw2", "this is no TOML"),
    ],
)
def test_a_bad_file_is_refused(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    assert old in FILE
    with pytest.raises(BadTopology, match=complaint) as caught:
        read(FILE.replace(old, new), tmp_path)
    assert str(tmp_path / "t.toml") in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match="No such file"):
        load(str(tmp_path / "none.toml"))
