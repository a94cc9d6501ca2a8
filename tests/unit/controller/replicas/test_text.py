"""The vote on text: printed is what enough replicas have written, once, in whatever pieces they write it."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from ckpt.controller.replicas.text import Conflict, TextVote, common
from ckpt.redundancy.membership import Lineage


def pieces(text: bytes, random: Random) -> list[bytes]:
    cuts = sorted(random.sample(range(1, len(text)), min(len(text) - 1, 4)))
    return [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]


def written(texts: list[bytes], random: Random) -> tuple[bytes, list[Conflict]]:
    """Let all write in a random order of pieces; returns what is printed and what conflicts."""
    vote, found, printed = TextVote(len(texts)), [], b""
    left = [pieces(text, random) for text in texts]
    while any(left):
        replica = random.choice([k for k, each in enumerate(left) if each])
        vote.write(replica, left[replica].pop(0))
        text, conflict = vote.take()
        printed += text
        if conflict is not None:
            found.append(conflict)
            vote.drop(conflict.odd)
    return printed, found


@pytest.mark.parametrize("seed", range(40))
def test_one_of_three_that_writes_something_else_is_named_and_its_text_is_not_printed(seed: int) -> None:
    random = Random(seed)
    right = bytes(random.choice(b"ab\n") for _ in range(30))
    odd, at = random.randrange(3), random.randrange(30)
    texts = [right] * 3
    texts[odd] = right[:at] + b"X" + right[at + 1 :]
    printed, found = written(texts, random)
    assert printed == right
    assert [conflict.odd for conflict in found] == [(odd,)]


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_equal_text_is_printed_once_and_nobody_is_named(replicas: int, seed: int) -> None:
    text = bytes(range(50))
    assert written([text] * replicas, Random(seed)) == (text, [])


@pytest.mark.parametrize("seed", range(10))
def test_of_two_that_differ_nobody_is_named_and_nothing_is_printed_from_there(seed: int) -> None:
    printed, found = written([b"abcdef", b"abXdef"], Random(seed))
    assert printed == b"ab"
    assert found and all(conflict == Conflict((), 2) for conflict in found)


def test_text_of_one_replica_alone_waits_for_another() -> None:
    vote = TextVote(3)
    vote.write(1, b"abc")
    assert vote.take() == (b"", None)
    vote.write(2, b"ab")
    assert vote.take() == (b"ab", None)


def test_with_one_replica_left_its_text_is_printed() -> None:
    vote = TextVote(3)
    vote.write(1, b"abc")
    vote.drop([0, 2])
    assert vote.take() == (b"abc", None)


def test_the_first_byte_that_differs_is_found() -> None:
    for size, at in itertools.product(range(1, 20), range(20)):
        one = bytes(size)
        other = one[:at] + b"x" + one[at + 1 :] if at < size else one
        assert common(one, other) == min(size, at)


def test_text_of_a_replica_and_its_own_copy_is_not_printed_before_another_has_written_it() -> None:
    lineage = Lineage()
    vote = TextVote(3, lineage)
    vote.write(1, b"begin ")
    vote.write(2, b"begin ")
    assert vote.take() == (b"begin ", None)
    vote.drop([0])
    lineage.copied(3, donor=1, epoch=1)
    vote.join(3, b"beg", b"begin ")
    for replica, text in ((1, b"wrong"), (3, b"in wrong")):
        vote.write(replica, text)
    assert vote.take() == (b"", None)
    vote.write(2, b"right")
    assert vote.take() == (b"", Conflict((), 6))


def test_a_copy_that_has_written_something_else_is_odd() -> None:
    lineage = Lineage()
    vote = TextVote(2, lineage)
    lineage.copied(2, donor=0, epoch=1)
    vote.drop([1])
    vote.write(0, b"begin")
    vote.take()
    vote.join(2, b"bad", b"begin")
    assert vote.take() == (b"", Conflict((2,), 1))


def test_what_an_odd_replica_writes_is_compared_with_nothing_and_it_is_told_until_it_is_dropped() -> None:
    vote = TextVote(3)
    for replica, text in ((0, b"same one"), (1, b"same two"), (2, b"not one")):
        vote.write(replica, text)
    assert vote.take() == (b"same ", Conflict((2,), 0))
    vote.write(2, b" one")
    assert vote.take() == (b"", Conflict((2,), 0))
    vote.drop([2])
    assert vote.take() == (b"", Conflict((), 5))  # the others differ, too
