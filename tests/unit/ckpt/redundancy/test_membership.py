"""Numbers of processes, who is a copy of whom and what that means for a majority, how many copies there may be."""

from __future__ import annotations

import pytest

from ckpt.redundancy.ahead import AHEAD_MAX, Floors
from ckpt.redundancy.digest import EVERY, RING, Streams
from ckpt.redundancy.lines import LineVote
from ckpt.redundancy.membership import HOUR_NS, Budget, Lineage, Numbering
from ckpt.redundancy.vote import Vote


@pytest.mark.parametrize(("ranks", "replicas"), [(1, 2), (1, 3), (4, 3), (5, 2)])
def test_every_number_is_one_replica_and_copies_come_after_all_others(ranks: int, replicas: int) -> None:
    numbers = Numbering(ranks, replicas)
    for process in range(ranks * (replicas + 4)):
        assert numbers.process(*numbers.parts(process)) == process
    assert numbers.parts(replicas) == ((1, 0) if ranks > 1 else (0, replicas))
    assert numbers.of_plane(replicas) == tuple(range(ranks * replicas, ranks * (replicas + 1)))


def test_a_replica_and_its_own_copy_do_not_decide_against_one_that_is_independent() -> None:
    lineage = Lineage()
    assert lineage.decides({0, 1}, {2})
    lineage.copied(3, donor=1, epoch=5)
    assert not lineage.decides({1, 3}, {2})  # 1 may have had an error in its memory when it was copied
    assert lineage.decides({2, 3}, {1}) and lineage.decides({1, 2}, {3})
    assert lineage.decides({1, 3}, ()) and lineage.decides({1, 2, 3}, ())
    lineage.copied(4, donor=3, epoch=9)
    assert lineage.shared(1, 4) == 5 and lineage.shared(3, 4) == 9
    assert not lineage.decides({3, 4}, {1})
    assert lineage.decides({1, 4}, {3})
    lineage.begin()
    assert lineage.decides({3, 4}, {1})


def test_copies_of_one_image_decide_against_their_donor() -> None:
    lineage = Lineage()
    lineage.copied(3, donor=2, epoch=4)
    lineage.copied(4, donor=2, epoch=4)
    assert lineage.decides({3, 4}, {2}) and lineage.decides({2, 4}, {3})


def test_so_many_copies_within_an_hour() -> None:
    budget = Budget(2)
    assert budget.free_ns(0, 10) == 10
    budget.spend(0, 10)
    budget.spend(0, 20)
    assert budget.free_ns(0, 30) == 10 + HOUR_NS
    assert budget.free_ns(1, 30) == 30
    assert budget.free_ns(0, 10 + HOUR_NS) == 10 + HOUR_NS
    assert Budget(0).free_ns(0, 0) is None


def test_a_vote_of_a_copy_with_its_donor_against_another_cannot_be_told() -> None:
    lineage = Lineage()
    vote = Vote(3, lineage)
    for replica in range(3):
        vote.report(replica, "point", [(64, "aa")])
    vote.drop([0])
    lineage.copied(3, donor=1, epoch=1)
    vote.join(3)
    vote.report(3, "point", [(70, "of its image")])
    for replica in (1, 3):
        assert vote.report(replica, "point", [(128, "bb")]) is None
    verdict = vote.report(2, "point", [(128, "cc")])
    assert verdict is not None and verdict.odd == ()
    for replica in (2, 3):
        assert vote.report(replica, "point", [(192, "dd")]) is None
    verdict = vote.report(1, "point", [(192, "ee")])
    assert verdict is not None and verdict.odd == (1,)


def test_a_line_that_a_copy_alone_confirms_for_its_donor_waits_for_another() -> None:
    lineage = Lineage()
    lineage.copied(3, donor=1, epoch=1)
    vote = LineVote(1, 1, {2, 3}, 2, lineage)
    vote.begin(0, {"point": (9, "aa")})
    vote.answer(0, 3, {"point": (9, "aa")})
    assert vote.state() == "open"
    twin = LineVote(1, 1, {2, 3}, 2, lineage)
    twin.begin(0, {"point": (9, "aa")})
    twin.answer(0, 3, {"point": (9, "aa")})
    twin.answer(0, 2, {"point": (9, "bb")})
    assert twin.state() == "failed" and "different" in twin.trouble()
    vote.answer(0, 2, {"point": (9, "aa")})
    assert vote.state() == "verified"


def test_a_copy_holds_nobody_up_before_it_has_told_how_far_it_is() -> None:
    floors = Floors(1, [1, 2], 0)
    for plane in (1, 2):
        floors.sent(0, plane, 4 * AHEAD_MAX, 1)
    floors.joined(3)
    assert floors.look(2) == []
    assert floors.sent(0, 3, 3 * AHEAD_MAX, 3) == [(0, 3 * AHEAD_MAX)]


@pytest.mark.parametrize("count", [1, 5, EVERY, RING, RING + 3])
def test_the_digests_of_a_copy_go_on_where_those_of_its_donor_were(count: int) -> None:
    donor, copy = Streams(), Streams()
    for number in range(count):
        donor.named("point").add(1, b"%d" % number, None, number)
    copy.go_on(donor.states(), 7)
    assert copy.counts() == donor.counts() and copy.last_marks() == donor.last_marks()
    assert copy.report(all_of_it=True) == {"point": [donor.last_marks()["point"]]}  # where it began
    for number in range(EVERY + 2):
        for streams in (donor, copy):
            streams.named("point").add(1, b"more %d" % number, None, number)
    marks = copy.report(all_of_it=True)["point"]
    assert marks and all(donor.digest_at("point", at) == digest for at, digest in marks)
    assert copy.digest_at("point", count - 1) == ""  # that is not known here
