"""Flips on purpose: which message, which process, and nothing but content."""

from __future__ import annotations

import pytest

from ckpt.errors import CkptError
from ckpt.mpi.base.envelope import EAGER, WINDOW, pack
from ckpt.redundancy.inject import Turns, parse

HEAD = pack(EAGER, 0, 5, 0)


def bits(one: bytes, other: bytes) -> int:
    return sum((a ^ b).bit_count() for a, b in zip(one, other, strict=True))


def test_one_bit_of_the_content_of_the_named_message_flips() -> None:
    flips = parse("rank=1,replica=2,message=3", 1, 2)
    assert flips is not None
    sent = [flips.message(HEAD + b"content", None)[0] for _ in range(5)]
    assert [bits(bytes(each), HEAD + b"content") for each in sent] == [0, 0, 1, 0, 0]
    assert all(bytes(each[:32]) == HEAD for each in sent)


def test_a_payload_is_content_and_a_message_without_any_is_left_for_the_next() -> None:
    flips = parse("message=1", 0, 0)
    assert flips is not None
    assert flips.message(HEAD, None) == (HEAD, None)
    _, payload = flips.message(HEAD, bytes(8))
    assert bits(bytes(payload or b""), bytes(8)) == 1


def test_what_a_one_sided_operation_is_flips_and_its_data_and_other_messages_are_left_alone() -> None:
    put, flipped = pack(WINDOW, 0, 1, 12, 0) + bytes(20) + b"data", set()
    for seed in range(40):
        flips = parse(f"seed={seed},message=2,where=description", 0, 0)
        assert flips is not None
        assert flips.message(HEAD + b"content", None) == (HEAD + b"content", None)
        first, _ = flips.message(put, None)
        second, _ = flips.message(put, None)
        assert first == put and bits(bytes(second), put) == 1 and bytes(second).endswith(b"data")
        (at,) = [at for at, (one, other) in enumerate(zip(put, bytes(second), strict=True)) if one != other]
        flipped.add("action" if at == 8 else "place" if at < 40 else "length")
        assert at == 8 or at >= 32
    assert flipped == {"action", "place", "length"}


def test_other_processes_are_left_alone() -> None:
    assert parse("rank=1,message=3", 0, 2) is None
    assert parse("replica=1,rate=0.5", 0, 2) is None


@pytest.mark.parametrize("text", ["rank", "rate=x", "colour=1", "rank=1", "rate=1,where=disk"])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(CkptError, match="CKPT_FLIPS"):
        parse(text, 1, 1)


def test_a_bit_flips_in_the_array_that_is_named_and_the_message_is_left_as_it_is() -> None:
    kept, other = bytearray(64), bytearray(64)
    name = "test_a_bit_flips_in_the_array_that_is_named_and_the_message_is_left_as_it_is().kept"
    flips = parse(f"message=2,where=array,variable={name}", 0, 0)
    assert flips is not None
    for _ in range(3):
        assert flips.message(HEAD + b"content", None) == (HEAD + b"content", None)
        other[0] += 1
    assert bits(bytes(kept), bytes(64)) == 1


def test_every_so_often_it_is_the_turn_of_one_process_and_all_agree_on_which() -> None:
    processes = [Turns(seed=3, every_s=2.0, number=number, count=6) for number in range(6)]
    assert not any(each.is_due(9.9) for each in processes)
    chosen = [[each.is_due(10.0 + second / 2) for second in range(4)] for each in processes]
    assert sorted(chosen) == [[False] * 4] * 5 + [[True, False, False, False]]
    later = [sum(each.is_due(20.0 + 2 * turn) for turn in range(60)) for each in processes]
    assert sum(later) == 60 and all(later)
