"""What all ranks say of each other, joined: with three hosts or more it names host, switch, trunk or direction."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from random import Random

import pytest

from ckpt.diagnosis.witnesses import Hypothesis, Said, join
from tests.seeds import seed_of_the_commit

ONE_SWITCH = dict.fromkeys(permutations("ABCD", 2), ("sw1",))
SWITCH_OF = {"A": "sw1", "B": "sw1", "C": "sw2", "D": "sw2"}
TWO_SWITCHES = {
    (a, b): ("sw1",) if SWITCH_OF[a] == SWITCH_OF[b] == "sw1" else (SWITCH_OF[a], SWITCH_OF[b])
    if SWITCH_OF[a] != SWITCH_OF[b]
    else ("sw2",)
    for a, b in permutations("ABCD", 2)
}  # fmt: skip
FOUR = dict(enumerate("ABCD"))
THREE = dict(enumerate("ABC"))
Ways = dict[tuple[str, str], tuple[str, ...]]


def world(hosts: dict[int, str], is_silent: Callable[[str, str], bool]) -> list[Said]:
    """All pairs; `is_silent(observer, peer)` of hosts."""
    return [
        Said(a, b, not is_silent(hosts[a], hosts[b]) or hosts[a] == hosts[b])
        for a, b in permutations(hosts, 2)
    ]


def named(said: list[Said], hosts: dict[int, str], ways: Ways) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.kind, each.names) for each in join(said, hosts, ways).named]


@pytest.mark.parametrize("hosts", [THREE, FOUR])
def test_all_pairs_of_a_host(hosts: dict[int, str]) -> None:
    said = world(hosts, lambda a, b: "B" in (a, b))
    assert named(said, hosts, ONE_SWITCH) == [("host", ("B",))]


@pytest.mark.parametrize("hosts", [THREE, FOUR])
def test_all_pairs_across_the_only_switch(hosts: dict[int, str]) -> None:
    assert named(world(hosts, lambda a, b: True), hosts, ONE_SWITCH) == [("switch", ("sw1",))]


def test_all_pairs_across_one_of_two_switches() -> None:
    said = world(FOUR, lambda a, b: "sw2" in TWO_SWITCHES[a, b])
    assert named(said, FOUR, TWO_SWITCHES) == [("switch", ("sw2",))]


def test_all_pairs_across_the_trunk() -> None:
    said = world(FOUR, lambda a, b: len(TWO_SWITCHES[a, b]) == 2)
    assert named(said, FOUR, TWO_SWITCHES) == [("trunk", ("sw1", "sw2"))]


def test_one_direction_is_a_filter() -> None:
    said = world(FOUR, lambda a, b: (a, b) == ("B", "A"))
    assert named(said, FOUR, ONE_SWITCH) == [("direction", ("A", "B"))]


def test_one_pair_only_is_neither_host() -> None:
    said = world(FOUR, lambda a, b: {a, b} == {"A", "B"})
    assert named(said, FOUR, ONE_SWITCH) == [("pair", ("A", "B"))]


def test_a_line_that_is_half_dead() -> None:
    assert named(world(FOUR, lambda a, b: b == "C"), FOUR, ONE_SWITCH) == [("sending", ("C",))]
    assert named(world(FOUR, lambda a, b: a == "C"), FOUR, ONE_SWITCH) == [("receiving", ("C",))]


def test_one_rank_of_a_host_with_others() -> None:
    hosts = {0: "A", 1: "A", 2: "B", 3: "B"}
    said = [Said(a, b, 1 not in (a, b)) for a, b in permutations(hosts, 2)]
    assert named(said, hosts, ONE_SWITCH) == [("process", ("1",))]


def test_two_faults_at_once() -> None:
    said = world(FOUR, lambda a, b: "A" in (a, b) or (a, b) == ("C", "D"))
    assert named(said, FOUR, ONE_SWITCH) == [("direction", ("D", "C")), ("host", ("A",))]


def test_two_hosts_alone_cannot_be_told_apart() -> None:
    hosts = dict(enumerate("AB"))
    found = join(world(hosts, lambda a, b: True), hosts, ONE_SWITCH)
    assert found.named == ()
    assert {each.kind for chosen in found.possible for each in chosen} == {"host", "pair", "switch"}


def test_what_nobody_has_said_counts_neither_way() -> None:
    said = [Said(0, 1, False), Said(2, 1, False)]
    found = join(said, THREE, ONE_SWITCH)
    assert found.named == ()
    assert (Hypothesis("host", ("B",)),) in found.possible
    assert (Hypothesis("switch", ("sw1",)),) in found.possible
    assert named([*said, Said(0, 2, True)], THREE, ONE_SWITCH) == []  # sending of B is as good as B
    assert named([*said, Said(0, 2, True), Said(1, 0, False)], THREE, ONE_SWITCH) == [("host", ("B",))]


def test_the_newest_word_counts() -> None:
    said = world(THREE, lambda a, b: True) + world(THREE, lambda a, b: False)
    assert join(said, THREE, ONE_SWITCH).possible == ()


def test_nothing_silent_is_nothing() -> None:
    assert join([], THREE, ONE_SWITCH).possible == ()
    assert join(world(THREE, lambda a, b: False), THREE, ONE_SWITCH).possible == ()


def test_ranks_of_one_host_say_nothing_of_the_network() -> None:
    assert join([Said(0, 1, False)], {0: "A", 1: "A"}, ONE_SWITCH).possible == ()


def test_sixty_four_hosts_behind_a_dead_switch() -> None:
    hosts = {rank: f"n{rank}" for rank in range(64)}
    ways: Ways = dict.fromkeys(permutations(hosts.values(), 2), ("sw1",))
    assert named(world(hosts, lambda a, b: True), hosts, ways) == [("switch", ("sw1",))]


def test_of_one_fault_the_truth_is_named_or_nothing_whatever_is_not_said() -> None:
    """One true fault, any part of the reports missing: what is named is the truth, and the truth is always possible."""
    random = Random(seed_of_the_commit())
    truths = {
        Hypothesis("host", ("B",)): lambda a, b: "B" in (a, b),
        Hypothesis("switch", ("sw2",)): lambda a, b: "sw2" in TWO_SWITCHES[a, b],
        Hypothesis("trunk", ("sw1", "sw2")): lambda a, b: len(TWO_SWITCHES[a, b]) == 2,
        Hypothesis("sending", ("C",)): lambda a, b: b == "C",
        Hypothesis("receiving", ("C",)): lambda a, b: a == "C",
        Hypothesis("direction", ("A", "D")): lambda a, b: (a, b) == ("D", "A"),
        Hypothesis("pair", ("A", "B")): lambda a, b: {a, b} == {"A", "B"},
    }
    named_at_all = 0
    for _ in range(600):
        truth, is_silent = random.choice(list(truths.items()))
        said = [each for each in world(FOUR, is_silent) if random.random() < 0.8]
        found = join(said, FOUR, TWO_SWITCHES)
        assert found.named in ((), (truth,))
        assert ((truth,) in found.possible) == any(not each.heard for each in said)
        named_at_all += bool(found.named)
    assert named_at_all > 200
