"""The vote on messages: in every order of reports the odd replica is named, and only that one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from hashlib import blake2b

import pytest

from ckpt.redundancy.vote import Mark, Verdict, Vote

MESSAGES = 4


def chain(contents: Sequence[int]) -> list[Mark]:
    """The marks of all messages of these contents."""
    state, marks = "", []
    for count, content in enumerate(contents, 1):
        state = blake2b(f"{state} {content}".encode(), digest_size=4).hexdigest()
        marks.append((count, state))
    return marks


def cuts(marks: list[Mark]) -> list[list[list[Mark]]]:
    """Ways in which a replica may report: at some counts only, in one report or in several; always the last one."""
    found = []
    for chosen in itertools.product([False, True], repeat=len(marks) - 1):
        kept = [mark for mark, keep in zip(marks, (*chosen, True), strict=True) if keep]
        found += [[kept], [[mark] for mark in kept]]
    return found


def interleavings(reports: list[list[list[Mark]]]) -> list[list[int]]:
    """Orders in which the reports of the replicas may come."""
    who = [replica for replica, each in enumerate(reports) for _ in each]
    return sorted(set(itertools.permutations(who)))  # type: ignore[arg-type]


def vote_on(reports: list[list[list[Mark]]], order: Sequence[int]) -> tuple[Vote, list[Verdict]]:
    vote, left, verdicts = Vote(len(reports)), [list(each) for each in reports], []
    for replica in order:
        verdict = vote.report(replica, "point", left[replica].pop(0))
        if verdict is not None:
            verdicts.append(verdict)
    return vote, verdicts


RIGHT = chain([1, 2, 3, 4])


@pytest.mark.parametrize("odd", [0, 1, 2])
@pytest.mark.parametrize("at", [0, 2, 3])
def test_the_odd_one_of_three_is_named_and_nobody_else(odd: int, at: int) -> None:
    contents = [1, 2, 3, 4]
    contents[at] = 9
    for cut in cuts(chain(contents))[:12:3]:
        reports = [[RIGHT[:2], RIGHT[2:]] for _ in range(3)]
        reports[odd] = cut
        for order in interleavings(reports):
            _, verdicts = vote_on(reports, order)
            assert verdicts, (cut, order)
            assert {verdict.odd for verdict in verdicts} == {(odd,)}, (cut, order, verdicts)
            assert all(verdict.first <= at + 1 <= verdict.last for verdict in verdicts[:1]), (cut, verdicts)


def test_replicas_that_send_the_same_are_never_called_different_however_they_report() -> None:
    ways = cuts(RIGHT)[::3]
    for one, other in itertools.product(ways, ways):
        reports = [one, other, [RIGHT]]
        for order in interleavings(reports)[:6]:
            vote, verdicts = vote_on(reports, order)
            assert not verdicts
            assert vote.compared == MESSAGES
            assert vote.finish() is None


def test_of_two_that_differ_nobody_is_named() -> None:
    for order in ([0, 1], [1, 0]):
        _, verdicts = vote_on([[RIGHT], [chain([1, 2, 9, 4])]], order)
        assert verdicts == [Verdict("point", (), 3, 3)]


def test_of_three_that_all_differ_nobody_is_named() -> None:
    for order in itertools.permutations(range(3)):
        _, verdicts = vote_on([[chain([1, each, 3, 4])] for each in range(3)], order)
        assert [verdict.odd for verdict in verdicts] == [()]


def test_what_is_verified_needs_more_than_half() -> None:
    vote = Vote(3)
    vote.report(0, "point", RIGHT)
    assert vote.compared == 0
    vote.report(2, "point", RIGHT[:2])
    assert vote.compared == 2


def test_a_lost_replica_has_no_voice() -> None:
    vote = Vote(3)
    vote.report(0, "point", chain([9, 9, 9, 9]))
    vote.drop([0])
    assert vote.report(0, "point", RIGHT) is None
    assert vote.report(1, "point", RIGHT) is None
    assert vote.report(2, "point", RIGHT) is None
    assert vote.compared == MESSAGES


@pytest.mark.parametrize("more", [3, 5])
def test_a_replica_that_sends_more_messages_or_fewer_is_named_at_the_end(more: int) -> None:
    vote = Vote(3)
    for replica in range(3):
        vote.report(replica, "point", chain([1, 2, 3, 4, 5][:more] if replica == 1 else [1, 2, 3, 4])[-1:])
    assert vote.finish() == Verdict("point", (1,), min(4, more) + 1, max(4, more))


def test_marks_that_all_have_passed_are_forgotten() -> None:
    vote, marks = Vote(3), chain(range(2000))
    for at in range(0, 2000, 10):
        for replica in range(3):
            vote.report(replica, "point", marks[at : at + 10])
    assert len(vote.streams["point"].marks) <= 20


class Hasty(Vote):
    """Calls the first one odd that differs, with two reports there."""

    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self.needed = 1


def test_a_majority_is_needed() -> None:
    vote = Hasty(3)
    vote.report(0, "point", chain([9]))
    assert vote.report(1, "point", chain([1])) != Vote(3).report(1, "point", chain([1]))
