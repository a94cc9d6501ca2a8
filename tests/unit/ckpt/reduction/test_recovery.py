"""What the living can make of what they hold."""

from __future__ import annotations

from random import Random

import pytest

from ckpt.reduction.messages import path_of, ranks_of
from ckpt.reduction.recovery import copy_places, cover, next_master, next_root


def test_the_lowest_living_rank_is_the_master() -> None:
    assert next_master(4, 0) == 0
    assert next_master(4, path_of([0, 1, 3])) == 2
    with pytest.raises(ValueError, match="all 2 ranks"):
        next_master(2, 3)


def test_the_next_root_is_found_around_the_ring() -> None:
    assert next_root(2, 4, 0) == 2
    assert next_root(3, 4, path_of([3, 0])) == 1
    with pytest.raises(ValueError, match="all 2 ranks"):
        next_root(0, 2, 3)


def test_copies_go_to_the_master_and_across_the_ring() -> None:
    """The master's copy comes with the call; the next rank, (i + 1) mod p in the paper, is on the same host mostly."""
    assert [copy_places(rank, 4, 0, 1) for rank in range(4)] == [[2], [0], [0], [0]]
    assert [copy_places(rank, 4, 0, 2) for rank in range(4)] == [[2, 3], [0, 3], [0, 1], [0, 1]]
    assert [copy_places(rank, 3, 0, 1) for rank in range(3)] == [[1], [0], [0]]
    assert copy_places(3, 4, path_of([0]), 1) == [1]
    assert copy_places(0, 4, 0, 0) == []
    assert copy_places(0, 1, 0, 2) == []


def test_a_dead_owners_original_is_held_by_one_more() -> None:
    assert copy_places(1, 4, path_of([1]), 1) == [0, 3]
    assert copy_places(1, 4, path_of([1]), 0) == []


@pytest.mark.parametrize("hosts", [[2, 2], [4, 4, 4], [1, 1, 1, 1], [3, 2, 1], [8, 8], [5, 1, 4]])
def test_two_copies_outlive_each_host_that_has_at_most_half_of_the_ranks(hosts: list[int]) -> None:
    size, first = sum(hosts), 0
    for count in hosts:
        host = set(range(first, first + count))
        assert all(set(copy_places(owner, size, 0, 2)) - host for owner in host), host
        first += count


def test_a_cover_takes_what_is_nowhere_else_first_and_then_the_largest() -> None:
    held = {0: [1, 7], 1: [2, 6], 2: [4, 24]}  # ranks 3 and 4 are only in 2's intermediate result
    found = cover(held, 31)
    assert found.items == {24: (2,), 7: (0,)} and found.originals == {} and not found.lost


def test_a_cover_names_all_holders_and_what_is_lost() -> None:
    found = cover({0: [1, 2], 2: [2, 4]}, 15)
    assert found.items == {} and found.originals == {0: (0,), 1: (0, 2), 2: (2,)} and found.lost == 8


def test_a_cover_uses_only_what_can_be_part_of_the_order() -> None:
    held = {0: [1, 5], 1: [2], 2: [4]}
    assert cover(held, 7, lambda path: path != 5).items == {}
    assert cover(held, 3).items == {}  # rank 2 is not wanted


def test_covers_of_random_holdings_are_disjoint_and_whole() -> None:
    random = Random(21)
    for _ in range(2000):
        size = random.randint(1, 8)
        everybody = (1 << size) - 1
        held = {rank: {random.randint(1, everybody) for _ in range(3)} for rank in range(0, size, 2)}
        found = cover(held, everybody)
        seen: list[int] = [rank for path in found.items for rank in ranks_of(path)]
        seen += [*found.originals, *ranks_of(found.lost)]
        assert sorted(seen) == list(range(size))
        for path, holders in found.items.items():
            assert all(path in held[holder] for holder in holders)
