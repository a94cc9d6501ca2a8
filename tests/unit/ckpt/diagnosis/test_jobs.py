"""What a job's hosts say of each other names a host, or nobody; and which ways are asked about."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ckpt.diagnosis import jobs, library
from ckpt.diagnosis.asking import Reply
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.jobs import Preparation, locate, pairs_to_ask
from ckpt.diagnosis.manager import Request
from ckpt.diagnosis.report import located_as_text
from ckpt.diagnosis.topology import parse, way


@pytest.fixture(autouse=True)
def no_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def facts(hosts: str, broken: set[tuple[str, str]], mute: str = "", **more: Any) -> dict[str, Any]:
    """Every host but the mute ones has tried to reach every other one; `broken`: pairs that do not reach each other."""
    said = [
        [one, other, (one, other) not in broken and (other, one) not in broken]
        for one, other in permutations(hosts, 2)
        if one not in mute
    ]
    return {"said": said, "lost": [], "missing": [], "topology": None, "wanted": True, **more}


def test_a_host_that_nobody_reaches_is_named_by_three() -> None:
    found = locate(facts("abc", {("a", "b"), ("b", "c")}, mute="b"))
    assert found["hosts"] == ["b"]
    assert found["text"] == "host b is not reached by a, c, which reach each other"
    assert "there is no topology" in found["reason"]
    text = located_as_text({**found, "lost": [{"here": "a", "there": "b", "error": "silent"}], "missing": []})
    assert "a lost b (silent)" in text and "at fault     host b" in text


def test_a_host_is_named_where_the_topology_leaves_the_wiring_open(tmp_path: Path) -> None:
    """As without a topology: what is behind each host may be anything."""
    path = tmp_path / "topology.toml"
    hosts = [f'[host.{name}]\naddress = "192.0.2.{ord(name)}"\ninterface = "eth0"\n' for name in "abc"]
    path.write_text("wired = false\n" + "".join(hosts))
    cut = {("a", "b"), ("b", "c")}
    found = locate(facts("abc", cut, mute="b", topology=str(path), wanted=False))
    assert found["hosts"] == ["b"], found["text"]
    assert "host b is not reached by a, c, which reach each other" in found["text"]


def test_with_two_hosts_nobody_is_named() -> None:
    found = locate(facts("ab", {("a", "b")}, mute="b"))
    assert found["hosts"] == found["between"] == []
    assert found["text"] == "unknown fault: a does not reach b"


def test_one_pair_is_neither_host() -> None:
    found = locate(facts("abcd", {("a", "b")}))
    assert found["hosts"] == []
    assert found["between"] == ["a", "b"]
    assert found["text"] == "hosts a and b do not reach each other, and both reach others"


def test_who_is_alone_with_its_word_names_nobody() -> None:
    """Only a is heard, and reaches nobody: a may be cut off, or b and c are."""
    found = locate(facts("abc", {("a", "b"), ("a", "c")}, mute="bc"))
    assert found["hosts"] == []


def test_two_halves_name_nobody() -> None:
    broken = {(one, other) for one in "ab" for other in "cd"}
    found = locate(facts("abcd", broken, mute="cd"))
    assert found["hosts"] == []


def test_it_is_over() -> None:
    lost = [{"here": "a", "there": "b", "error": "silent"}]
    found = locate(facts("abc", set(), lost=lost))
    assert found["hosts"] == []
    assert "it is over" in found["text"]


def test_a_host_whose_network_answers_and_whose_processes_are_gone() -> None:
    found = locate(facts("abc", set(), mute="b", lost=[{"here": "a", "there": "b", "error": "refused"}]))
    assert found["text"] == "host b answers, and nothing listens there: processes are gone"
    gone = locate(facts("abc", set(), mute="b", missing=["b"]))
    assert gone["text"] == "unknown fault: host b is gone, its network answers"


def test_a_host_that_nobody_has_tried_to_reach_is_not_said_to_answer() -> None:
    gone = locate(facts("ac", set(), missing=["b"]))
    assert gone["text"] == "unknown fault: host b is gone, nobody could tell why"


@pytest.mark.rotate(2)
def test_no_host_that_is_well_is_ever_named() -> None:
    """One to three true faults (a host cut off, a pair cut), any hosts mute: whoever is named was cut off."""
    named = 0
    for seed in range(2000):
        random = Random(seed)
        hosts = "abcdef"[: random.randint(2, 6)]
        cut = set(random.sample(hosts, random.randint(0, min(2, len(hosts) - 1))))
        pairs = {tuple(random.sample(hosts, 2))} if random.random() < 0.3 else set()
        broken = {pair for pair in permutations(hosts, 2) if {*pair} & cut} | pairs
        mute = "".join(
            host for host in hosts if random.random() < 0.2 or (host in cut and random.random() < 0.7)
        )
        found = locate(facts(hosts, broken, mute))  # type: ignore[arg-type]
        named += len(found["hosts"])
        assert {*found["hosts"]} <= cut, (hosts, cut, pairs, mute, found)
    assert named > 50


def test_a_few_pairs_are_asked_about_and_the_witnessed_host_first() -> None:
    lost = [{"here": one, "there": other, "error": "silent"} for one, other in permutations("abcd", 2)]
    chosen = pairs_to_ask(facts("abcd", set(), lost=lost), "c")
    assert chosen[0]["there"] == "c"
    assert len(chosen) == 4
    assert len({frozenset((each["here"], each["there"])) for each in chosen}) == 4


def test_of_a_host_that_is_missing_its_processes_are_asked_about() -> None:
    assert pairs_to_ask(facts("abc", set(), mute="b", missing=["b"]), None) == [
        {"here": "a", "there": "b", "error": "reset"}
    ]


def test_files_of_the_user_that_are_wrong_are_the_reason(tmp_path: Path) -> None:
    bad = tmp_path / "topology.toml"
    bad.write_text("[host")
    found = locate(facts("abc", {("a", "b"), ("b", "c")}, mute="b", topology=str(bad)))
    assert found["hosts"] == ["b"]
    assert "this is no TOML" in found["reason"]
    bad.write_text('[host.x]\naddress = "10.0.0.1"\ninterface = "eth0"\n')
    found = locate(facts("abc", {("a", "b"), ("b", "c")}, mute="b", topology=str(bad)))
    assert found["hosts"] == ["b"]
    assert "no host" in found["reason"]


def test_with_hundreds_of_hosts_the_way_between_two_switches_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 256 hosts it took 4.4 s, since it was looked for between all pairs of hosts."""
    names = [f"n{number:03}" for number in range(64)]
    lines = []
    for number, name in enumerate(names):
        lines += [f"[host.{name}]", f'address = "10.0.0.{number}"', 'interface = "eth0"']
        lines += [f'switch = "s{number // 16}"', f'port = "p{number}"']
    lines += [line for number in range(4) for line in (f"[switch.s{number}]",)]
    lines += [
        line
        for number in range(3)
        for line in ("[[trunk]]", f'ends = [["s{number}", "up"], ["s{number + 1}", "down"]]')
    ]
    (tmp_path / "topology.toml").write_text("\n".join(lines) + "\n")
    looked = []
    monkeypatch.setattr(jobs, "way", lambda *words: looked.append(words) or way(*words))
    silent = {frozenset((one, names[5])) for one in names if one != names[5]}
    said = [
        [one, other, frozenset((one, other)) not in silent]
        for one, other in permutations(names, 2)
        if one != names[5]
    ]
    lost = [{"here": names[0], "there": names[5], "error": "silent"}]
    found = locate(
        {
            "said": said,
            "lost": lost,
            "missing": [],
            "topology": str(tmp_path / "topology.toml"),
            "wanted": False,
        }
    )
    assert found["hosts"] == [names[5]]
    assert len(looked) <= 16


def test_where_no_time_is_left_devices_are_not_asked_and_hosts_have_their_say(tmp_path: Path) -> None:
    known = facts("abc", {("a", "b"), ("b", "c")}, mute="b", addresses={"a": "127.0.0.1", "b": "10.0.0.2"})
    preparation = Preparation(known)
    preparation.files(60)
    found = locate({**known, "until_s": 0.1}, preparation)
    assert found["hosts"] == ["b"] and found["reason"] == "no time was left to ask devices"


def test_a_job_without_a_topology_asks_this_machine_about_its_way_to_the_host() -> None:
    """As `ckpt diagnose HOST HOST` without a topology."""
    lost = [{"here": "a", "there": "b", "error": "silent", "age_s": 3.0}]
    addresses = {"a": "127.0.0.1", "b": "203.0.113.7"}
    found = locate(facts("ab", {("a", "b")}, lost=lost, addresses=addresses))
    asked = [
        *found["clear"],
        *(row["id"] for rows in ("faults", "suspects", "unknown") for row in found[rows]),
    ]
    assert any(name.startswith("filter.drops@a") for name in asked), asked
    assert "no device but this machine was asked" in found["reason"]
    assert "b" not in found["hosts"], "of it nothing was asked"


def test_between_two_others_this_machine_knows_nothing() -> None:
    """Without a topology: so no way is asked about, and the witnesses' word stands alone."""
    lost = [{"here": "b", "there": "c", "error": "silent", "age_s": 3.0}]
    addresses = {"a": "127.0.0.1", "b": "203.0.113.7", "c": "203.0.113.8"}
    found = locate(facts("abc", {("b", "c")}, lost=lost, addresses=addresses))
    assert found["between"] == ["b", "c"] and found["hosts"] == []
    assert not found["faults"] and not found["suspects"] and not found["clear"]


def test_the_process_says_what_hosts_have_said_at_once_and_then_the_record(tmp_path: Path) -> None:
    known = facts("abc", {("a", "b"), ("b", "c")}, mute="b", lost=[])
    early = {"lost": [{"here": "a", "there": "b", "error": "silent"}], "missing": [], "wanted": True}
    early |= {"addresses": {"a": "127.0.0.1", "b": "203.0.113.7"}}
    done = subprocess.run(
        [sys.executable, "-m", "ckpt.diagnosis"],
        input=f"{json.dumps(early)}\n{json.dumps(known)}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, last = map(json.loads, done.stdout.splitlines())
    assert first["more"] is True and "more" not in last
    assert first["hosts"] == last["hosts"] == ["b"]


def test_what_does_not_arrive_though_all_hosts_reach_each_other_is_said() -> None:
    """It was "all hosts reach each other now: it is over"."""
    lost = [{"here": "a", "there": "b", "error": "silent", "age_s": 7.0, "accepts": True}]
    found = locate(facts("abc", set(), lost=lost))
    assert found["text"].startswith(
        "unknown fault: what a sends to b does not arrive, though connections are accepted"
    )
    assert found["hosts"] == [] and found["between"] == []


def test_a_controller_that_has_answered_is_waited_for_longer_than_its_host() -> None:
    """What it says later, of its fan, may be the cause of what it has said: that the power is off. (Found by the soak.)"""
    known = parse(
        b"""
        [host.a]
        address = "10.0.0.1"
        interface = "eth0"
        [host.b]
        address = "10.0.0.2"
        interface = "eth0"
        bmc = "10.1.0.2"
        shell = ["ssh", "b"]
        """,
        "topology.toml",
    )
    request = Request(
        "silent", "a", "b", topology=known, models=library.load(), credentials=Credentials(), age_s=9.0
    )
    of_b = [each for each in request.questions() if each.machine in ("", "b")]
    power = next(each for each in of_b if each.handler == "ipmi" and "sensor" not in each.arguments)
    others = {each: Reply({}, "no answer", 1.0, True) for each in request.questions() if each not in of_b}
    assert request.is_settled(others, 1.6, "b"), "of b nobody answers"
    said = {**others, power: Reply({"power": "off"}, "", 1.0)}
    assert not request.is_settled(said, 1.6, "b")
    assert request.is_settled(said, 2.6, "b")


def test_a_process_of_which_nothing_is_wanted_any_more_ends() -> None:
    early = {"lost": [], "missing": [], "wanted": True}
    for given in ("", f"{json.dumps(early)}\n"):
        done = subprocess.run(
            [sys.executable, "-m", "ckpt.diagnosis"], input=given, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_host_that_lldp_contradicts_is_not_looked_at_and_others_are(tmp_path: Path) -> None:
    hosts = {name: {"address": f"10.0.0.{number}", "interface": "eth0"} for number, name in enumerate("abc")}
    for name in "ab":
        hosts[name] |= {"switch": "sw1", "port": f"p{name}"}
    kept = tmp_path / "topology.json"
    doubtful = {"c": "c hangs on p7 of sw1 in the topology, on p8 of sw1 by LLDP (sw1)"}
    kept.write_text(json.dumps({"host": hosts, "switch": {"sw1": {}}, "doubtful": doubtful}))
    lost = [{"here": "a", "there": there, "error": "silent"} for there in "cb"]
    found = locate(facts("abc", {("a", "b"), ("a", "c")}, mute="bc", lost=lost, topology=str(kept)))
    assert found["reason"] == f"the topology of c is doubtful: {doubtful['c']}"
    places = {row["id"].partition("@")[2] for row in found["unknown"]}
    assert "b:eth0-sw1:pb" in places
    assert not any(place.startswith("c") for place in places)
