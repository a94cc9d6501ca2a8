"""The commit check: base_i ≤ rx_j ≤ tx_i on every link."""

from __future__ import annotations

import itertools
import random

from ckpt.controller.supervision.cuts.vectors import Vector, check


def test_nothing_was_ever_sent() -> None:
    assert check({0: {}, 1: {}}) == []


def test_messages_under_way_are_in_the_senders_image() -> None:
    assert check({0: {1: (5, 3, 0)}, 1: {0: (0, 0, 4)}}) == []


def test_an_orphan_is_named() -> None:
    wrong = check({0: {1: (5, 3, 0)}, 1: {0: (0, 0, 6)}})
    assert [str(each) for each in wrong] == ["orphan on link 0→1: base 3 ≤ rx 6 ≤ tx 5 does not hold"]


def test_a_lost_message_is_named() -> None:
    wrong = check({0: {1: (5, 3, 0)}, 1: {0: (0, 0, 2)}})
    assert [str(each) for each in wrong] == ["lost message on link 0→1: base 3 ≤ rx 2 ≤ tx 5 does not hold"]


def test_a_link_to_oneself_counts() -> None:
    assert check({0: {0: (2, 1, 1)}}) == []
    assert len(check({0: {0: (2, 1, 3)}})) == 1


def test_both_directions_are_links_of_their_own() -> None:
    assert len(check({0: {1: (1, 1, 9)}, 1: {0: (1, 1, 9)}})) == 2


def test_against_a_dumb_version() -> None:
    rng = random.Random(5)
    for _ in range(300):
        size = rng.randint(1, 4)
        vectors: dict[int, dict[int, Vector]] = {
            rank: {
                peer: (rng.randint(0, 3), rng.randint(0, 3), rng.randint(0, 3))
                for peer in range(size)
                if rng.random() < 0.8
            }
            for rank in range(size)
        }
        bad = 0
        for i, j in itertools.product(range(size), repeat=2):
            tx, base = vectors[i].get(j, (0, 0, 0))[:2]
            rx = vectors[j].get(i, (0, 0, 0))[2]
            bad += not (base <= rx and rx <= tx)
        assert len(check(vectors)) == bad
