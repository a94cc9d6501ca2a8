"""A write to a parallel file waits until all replicas have come to it, and mean the same; the leader makes it, once."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.layer import FILE_WRITE, WINDOW, pack, unpack
from tests.unit.ckpt.redundancy.agreement.test_choices import Replica, gone_on
from tests.unit.ckpt.redundancy.agreement.test_requests import image_of

NUMBER = 28


def write(source: int, content: bytes) -> bytes:
    return pack(WINDOW, source, FILE_WRITE, NUMBER, 7) + content


def read(source: int) -> bytes:
    return pack(WINDOW, source, 1, NUMBER, 8)


class File:
    """What the windows of a replica know of a parallel file. `made`: what it has written; `seen`: what its program is told,
    and the requests that it has handled."""

    number = NUMBER

    def __init__(self, replica: Replica, failure: bytes = b"") -> None:
        self.made: list[bytes] = []
        self.seen: list[Any] = []
        self.failure = failure
        replica.engine.windows.open[NUMBER] = self
        replica.choices.digest_of = lambda source, data: f"{source} {bytes(data).hex()}"

    def change(self, data: bytes) -> bytes:
        self.made.append(bytes(data)[32:])
        return self.failure

    def changed(self, src: int, data: bytes, failure: bytes) -> None:
        self.seen.append((src, bytes(data)[32:], failure))

    def on_message(self, src: int, data: bytes) -> None:
        self.seen.append((src, unpack(data)[2]))


def exchange(*replicas: Replica) -> None:
    """Each tells the other what it has to tell, until nobody has."""
    while any(each.sent for each in replicas):
        for at, each in enumerate(replicas):
            told, each.sent[:] = list(each.sent), []
            for to, message in told:
                replicas[to].choices.receive(at, message)


def pair() -> tuple[Replica, Replica, File, File]:
    one, other = Replica(0), Replica(1)
    return one, other, File(one), File(other)


def test_the_leader_writes_once_when_the_other_replica_has_come_to_the_same() -> None:
    leader, follower, first, second = pair()
    leader.engine.windows.on_message(1, write(1, b"x"))
    exchange(leader, follower)
    assert not first.made and not first.seen
    follower.engine.windows.on_message(1, write(1, b"x"))
    exchange(leader, follower)
    assert (first.made, second.made) == ([b"x"], [])
    assert first.seen == second.seen == [(1, b"x", b"")]


def test_so_it_is_where_the_follower_comes_first() -> None:
    leader, follower, first, second = pair()
    follower.engine.windows.on_message(1, write(1, b"x"))
    exchange(leader, follower)
    assert not second.seen
    leader.engine.windows.on_message(1, write(1, b"x"))
    exchange(leader, follower)
    assert (first.made, second.made) == ([b"x"], [])
    assert first.seen == second.seen == [(1, b"x", b"")]


def test_what_comes_behind_a_write_waits_too_also_of_other_ranks() -> None:
    leader, follower, first, second = pair()
    for data, source in ((write(1, b"x"), 1), (read(2), 2), (write(2, b"y"), 2)):
        leader.engine.windows.on_message(source, data)
    assert not first.seen
    for data, source in ((read(2), 2), (write(2, b"y"), 2), (write(1, b"x"), 1)):
        follower.engine.windows.on_message(source, data)
    exchange(leader, follower)
    assert first.made == [b"x", b"y"] and not second.made
    assert first.seen == second.seen == [(1, b"x", b""), (2, 1), (2, b"y", b"")]


def test_replicas_that_mean_other_data_write_nothing_until_one_of_them_is_lost() -> None:
    leader, follower, first, second = pair()
    leader.engine.windows.on_message(1, write(1, b"x"))
    follower.engine.windows.on_message(1, write(1, b"y"))
    exchange(leader, follower)
    assert not first.made + second.made + first.seen + second.seen
    follower.choices.lost([0], wrong=True)
    assert second.made == [b"y"] and second.seen == [(1, b"y", b"")]


def test_an_error_of_the_disk_is_told_in_all_replicas() -> None:
    leader, follower, first, second = pair()
    first.failure = b"no space"
    for each in (leader, follower):
        each.engine.windows.on_message(1, write(1, b"x"))
    exchange(leader, follower)
    assert first.seen == second.seen == [(1, b"x", b"no space")]


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_leader_dies_after_it_has_written_the_next_one_writes_again_unless_it_has_heard_of_it(
    is_heard: bool,
) -> None:
    leader, follower, first, second = pair()
    for each in (leader, follower):
        each.engine.windows.on_message(1, write(1, b"x"))
    for _, message in leader.sent:
        follower.choices.receive(0, message)
    leader.sent.clear()
    for _, message in follower.sent:
        leader.choices.receive(1, message)
    assert first.made == [b"x"]
    for _, message in leader.sent:
        if is_heard or message[:3:2] != ("d", ("c", 0)):
            follower.choices.receive(0, message)
    follower.choices.lost([0], wrong=False)
    assert second.made == ([] if is_heard else [b"x"])
    assert second.seen == [(1, b"x", b"")]


def test_a_write_to_a_file_that_the_program_is_about_to_open_waits_for_that() -> None:
    leader, follower, first, second = pair()
    follower.engine.windows.open.clear()
    for each in (leader, follower):
        each.engine.windows.on_message(1, write(1, b"x"))
    exchange(leader, follower)
    assert not first.made
    follower.engine.windows.open[NUMBER] = second
    follower.choices.tick(0, has_ended=False)
    exchange(leader, follower)
    assert first.made == [b"x"] and second.seen == [(1, b"x", b"")]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_write_that_waits_in_an_image_is_made_after_it(replicas: int) -> None:
    leader, *_ = pair()
    leader.engine.windows.on_message(1, write(1, b"x"))
    leader.engine.windows.open.clear()
    del leader.choices.digest_of
    image = image_of(leader)
    again = gone_on(image, 0, replicas)
    file = File(again)
    again.choices.go_on_serving()
    if replicas == 1:
        assert file.seen == [(1, FILE_WRITE)]  # handled as any request: this process writes for itself
        return
    assert not file.made
    other = gone_on(image, 1, 2)
    there = File(other)
    other.choices.go_on_serving()
    exchange(again, other)
    assert file.made == [b"x"] and file.seen == there.seen == [(1, b"x", b"")]


def test_replicas_that_do_not_come_to_a_write_are_late() -> None:
    leader, follower, first, _ = pair()
    leader.engine.windows.on_message(1, write(1, b"x"))
    begun_ns = leader.choices._pending_ns
    assert leader.choices.writes_late(begun_ns + 9, 10) == set()
    assert leader.choices.writes_late(begun_ns + 10, 10) == {1}
    assert leader.choices.writes_late(begun_ns + 11, 10) == set()
    follower.engine.windows.on_message(1, write(1, b"x"))
    exchange(leader, follower)
    assert first.made and leader.choices.writes_late(begun_ns + 100, 10) == set()
