"""Memory that ranks of one host share: allocated, mapped, and copied when all of them stand still."""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ckpt.shared_memory import host as host_module
from ckpt.shared_memory import table as table_module
from ckpt.shared_memory.host import HostMemory, NoImage
from ckpt.shared_memory.segment import Segment, segment_at

PAGE = os.sysconf("SC_PAGESIZE")


_ranks: dict[int, Rank] = {}


def rank_of(number: int) -> Rank:
    return _ranks[number]


class Rank:
    """What has a `HostMemory` as its attribute ``shared_memory``: found by number after a pickle."""

    def __init__(self, number: int, fd: int) -> None:
        self.epoch, self.left = 0, 1 << 30
        self.lock = threading.Lock()
        self.number, self.shared_memory = number, HostMemory(self, (os.getpid(), fd), number, self.lock)
        _ranks[number] = self

    def __reduce__(self) -> Any:
        return rank_of, (self.number,)

    def gathers(self, epoch: int = 1) -> str:
        with self.lock:
            return self.shared_memory.gather(epoch, lambda: True)

    def stands(self, epoch: int = 1) -> Exception | None:
        with self.lock:
            try:
                self.shared_memory.stand(epoch, lambda: self.left)
                self.shared_memory.copied()
            except Exception as failure:
                return failure
        return None


Make = Callable[[int], list[Rank]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_GATHER_FIRST_S", 0.01)
    monkeypatch.setattr(host_module, "_LOOK_FOR_DEAD_S", 0.0)
    monkeypatch.setattr(table_module, "_LOCK_S", 0.05)


@pytest.fixture
def make() -> Iterator[Make]:
    opened: list[int] = []

    def ranks(count: int) -> list[Rank]:
        opened.append(os.memfd_create("test"))
        return [Rank(number, opened[-1]) for number in range(count)]

    yield ranks
    for fd in opened:
        os.close(fd)


def window(ranks: list[Rank], nbytes: int = 8) -> list[Segment]:
    """A window of which each rank has so many bytes."""
    offset, group = ranks[0].shared_memory.allocate(nbytes * len(ranks)), tuple(range(len(ranks)))
    made = []
    for number, rank in enumerate(ranks):
        part = number * nbytes, nbytes
        segment = rank.shared_memory.map(offset, nbytes * len(ranks), part, group)
        rank.shared_memory.join(segment)
        segment.is_complete = True
        made.append(segment)
    return made


def beside(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return, made by a thread each."""
    results: list[Any] = [None] * len(calls)

    def run(at: int, call: Callable[[], Any]) -> None:
        results[at] = call()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


# ---- memory ------------------------------------------------------------------------------------------------


def test_what_one_rank_stores_the_others_see(make: Make) -> None:
    one, other = window(make(2))
    assert bytes(one) == bytes(16)
    other.own_part()[:] = b"from one"
    assert one.view(8, 8) == b"from one"
    assert memoryview(one.view(8, 8)).obj is one


def test_no_byte_is_given_out_twice_and_freed_memory_goes(make: Make) -> None:
    ranks = make(1)
    first = window(ranks, PAGE + 1)[0]
    memoryview(first)[:] = b"x" * (PAGE + 1)
    second = window(ranks)[0]
    assert second.offset >= first.offset + PAGE + 1 and second.offset % PAGE == 0
    fd = ranks[0].shared_memory.place[1]
    before = os.fstat(fd).st_blocks
    ranks[0].shared_memory.part(first)
    ranks[0].shared_memory.discard(first)
    assert os.fstat(fd).st_blocks == before - 2 * PAGE // 512
    assert ranks[0].shared_memory.is_in_use
    ranks[0].shared_memory.part(second)
    assert not ranks[0].shared_memory.is_in_use


def test_no_descriptor_stays_open(make: Make) -> None:
    before = os.listdir("/proc/self/fd")
    ranks = make(2)
    window(ranks)
    assert ranks[0].gathers() and len(os.listdir("/proc/self/fd")) == len(before) + 1  # the file itself


def test_an_address_in_a_segment_is_found(make: Make) -> None:
    (segment,) = window(make(1), 64)
    assert segment_at(segment.address + 60, 4) is segment
    assert segment_at(segment.address + 60, 5) is None
    assert segment_at(segment.address - 1, 2) is None


# ---- images ------------------------------------------------------------------------------------------------


def test_a_rank_waits_for_the_others_and_names_who_has_not_come(make: Make) -> None:
    ranks = make(3)
    kept = window(ranks)
    assert ranks[0].shared_memory.rests(1) == ""
    assert "ranks 1, 2, with which this rank shares memory" in ranks[0].gathers()
    with ranks[0].lock:
        assert "ranks 1, 2" in ranks[0].shared_memory.rests(1)  # it does not look again at once
    assert beside(*(rank.gathers for rank in ranks)) == ["", "", ""]
    assert len(kept) == 3


def test_the_wait_ends_when_no_image_is_wanted_any_more(make: Make) -> None:
    ranks = make(2)
    window(ranks)
    with ranks[0].lock:
        assert ranks[0].shared_memory.gather(1, lambda: False)


def test_nobody_waits_for_a_rank_whose_program_was_interrupted(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = make(2)
    kept = window(ranks)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(host_module.time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ranks[1].gathers()
    assert "rank 1" in ranks[0].gathers() and len(kept) == 2


def test_images_have_what_was_there_when_all_stood(make: Make) -> None:
    ranks = make(2)
    one, other = window(ranks)
    one.own_part()[:] = b"at first"
    assert beside(*(rank.gathers for rank in ranks)) == ["", ""]
    assert beside(*(rank.stands for rank in ranks)) == [None, None]
    one.own_part()[:] = other.own_part()[:] = b"later..."
    buffers: list[Any] = []
    saved = pickle.dumps(one, 5, buffer_callback=buffers.append)
    assert beside(*(rank.shared_memory.leave for rank in ranks)) == [None, None]

    new = make(2)
    loaded: Segment = pickle.loads(saved, buffers=buffers)
    assert (loaded.offset, loaded.nbytes, loaded.part) == (one.offset, 16, (0, 8))
    assert bytes(loaded) == b"at first" + bytes(8)  # the other part is in the image of its rank
    assert new[0].shared_memory.is_in_use and loaded.is_complete


def test_a_rank_goes_on_only_when_the_others_have_copied(make: Make) -> None:
    ranks = make(2)
    window(ranks)
    beside(*(rank.gathers for rank in ranks))
    table = ranks[0].shared_memory._table
    standing = threading.Thread(target=ranks[0].stands)
    standing.start()
    with table.changed() as (now, _):  # rank 1 stands, and has not copied
        now.stand(1, 1, 0)
    standing.join()
    leaving = threading.Thread(target=ranks[0].shared_memory.leave)
    leaving.start()
    leaving.join(0.05)
    assert leaving.is_alive()
    with table.changed() as (now, _):
        now.copied(1)
    leaving.join(10)
    assert not leaving.is_alive()


def test_who_copies_for_too_long_has_no_image(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_COPY_S", 0.0)
    ranks = make(2)
    kept = window(ranks)
    beside(*(rank.gathers for rank in ranks))
    with ranks[0].shared_memory._table.changed() as (table, _):
        table.stand(0, 1, 0)
    ranks[1].shared_memory.stand(1, lambda: None)
    ranks[0].shared_memory.leave()  # while rank 1 has not copied
    with pytest.raises(NoImage, match="has taken too long"):
        ranks[1].shared_memory.copied()
    assert len(kept) == 2


def test_who_writes_a_mapped_file_without_a_copy_is_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "_COPY_S", 0.0)
    ranks = make(2)
    for rank in ranks:
        rank.shared_memory.map_files(frozenset([5]))
    beside(*(rank.gathers for rank in ranks))
    with ranks[0].shared_memory._table.changed() as (table, _):
        table.stand(0, 1, 0)
    ranks[1].shared_memory.stand(1, lambda: None, forks=False)
    ranks[1].shared_memory.copied()
    leaving = threading.Thread(target=ranks[0].shared_memory.leave)
    leaving.start()
    leaving.join(0.05)
    assert leaving.is_alive()
    ranks[1].shared_memory.leave()
    leaving.join(10)
    assert not leaving.is_alive()


# ---- mapped files --------------------------------------------------------------------------------------------


def test_ranks_that_have_mapped_one_file_stand_together(make: Make) -> None:
    ranks = make(3)
    for rank, files in zip(ranks, ({5, 6}, {6, 7}, {8}), strict=True):
        rank.shared_memory.map_files(frozenset(files))
    assert [rank.shared_memory.shares_files for rank in ranks] == [True, True, False]
    assert "rank 1, with which this rank shares memory" in ranks[0].gathers()
    assert ranks[2].gathers() == "" and ranks[2].stands() is None  # it waits for nobody
    ranks[2].shared_memory.leave()
    assert beside(*(rank.gathers for rank in ranks[:2])) == ["", ""]
    assert beside(*(rank.stands for rank in ranks[:2])) == [None, None]


def test_a_file_that_is_mapped_while_images_are_taken_costs_an_image(make: Make) -> None:
    ranks = make(2)
    ranks[0].shared_memory.map_files(frozenset([5]))
    assert ranks[0].gathers() == "" and ranks[0].stands() is None
    ranks[0].shared_memory.leave()
    ranks[1].shared_memory.map_files(frozenset([5]), all_of_them=False)
    assert ranks[1].gathers() == ""
    failure = ranks[1].stands()
    assert isinstance(failure, NoImage) and "a file was mapped for shared writing while" in str(failure)
    ranks[1].shared_memory.leave()
    assert beside(*(lambda rank=rank: rank.gathers(2) for rank in ranks)) == ["", ""]
    assert beside(*(lambda rank=rank: rank.stands(2) for rank in ranks)) == [None, None]


def test_a_file_that_is_mapped_anew_for_each_step_costs_no_image(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = make(2)
    for rank in ranks:
        rank.shared_memory.map_files(frozenset([5]), all_of_them=False)
    ranks[1].shared_memory.map_files(frozenset())  # it is not mapped at the look
    assert beside(*(rank.gathers for rank in ranks)) == ["", ""]
    assert beside(*(rank.stands for rank in ranks)) == [None, None]
    monkeypatch.setattr(host_module, "_KEPT_S", 0.0)
    ranks[1].shared_memory.map_files(frozenset())
    assert not ranks[0].shared_memory.shares_files


def test_each_of_those_that_stand_together_has_their_token(make: Make) -> None:
    """The last one was drawn for a rank that stood alone, with a file of its own, and the restart was refused."""
    ranks = make(3)
    kept = window(ranks[:2])
    ranks[2].shared_memory.map_files(frozenset([5]))
    assert beside(*(rank.gathers for rank in ranks)) == ["", "", ""]
    with ranks[0].shared_memory._table.changed() as (table, _):
        table.stand(0, 1, 11)
        table.stand(1, 1, 12)
        table.stand(2, 1, 13)
        assert [table.slots[rank].token for rank in range(3)] == [12, 12, 13]
    with ranks[0].lock:
        assert ranks[0].shared_memory._is_together(1, 0.0) and ranks[0].shared_memory.token == 12
    assert len(kept) == 2


def test_of_very_many_files_any_may_be_shared(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_KEPT_S", 0.0)
    ranks = make(2)
    ranks[0].shared_memory.map_files(frozenset(range(1, 100)))
    assert not ranks[0].shared_memory.shares_files
    ranks[1].shared_memory.map_files(frozenset([1000]))
    assert ranks[0].shared_memory.shares_files
    ranks[1].shared_memory.map_files(frozenset())
    assert not ranks[0].shared_memory.shares_files


@pytest.mark.parametrize("nbytes", [8, 3 << 20])
def test_where_there_is_no_memory_for_a_copy_the_image_fails_by_name(make: Make, nbytes: int) -> None:
    ranks = make(1)
    (segment,) = window(ranks, nbytes)
    segment.own_part()[-1] = 5
    assert ranks[0].gathers() == "" and ranks[0].stands() is None
    content = ranks[0].shared_memory.content_of(segment)
    assert len(content) == nbytes and content[-1] == 5
    ranks[0].shared_memory.leave()
    ranks[0].left = nbytes - 1
    assert ranks[0].gathers(2) == ""
    failure = ranks[0].stands(2)
    assert isinstance(failure, NoImage) and f"{nbytes} bytes of shared memory cannot be copied" in str(
        failure
    )
    ranks[0].shared_memory.leave()


def test_when_one_withdraws_the_others_try_again(make: Make) -> None:
    ranks = make(2)
    window(ranks)
    beside(*(rank.gathers for rank in ranks))
    ranks[1].shared_memory.leave()  # its threads could not be captured
    failure = ranks[0].stands()
    assert failure is not None and HostMemory.is_refusal(failure) and "rank 1" in str(failure)
    ranks[0].shared_memory.leave()
    assert beside(*(rank.gathers for rank in ranks)) == ["", ""]


def test_nobody_waits_for_a_rank_that_has_died(make: Make) -> None:
    ranks = make(2)
    kept = window(ranks)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with ranks[0].shared_memory._table.changed() as (table, _):
        table.slots[1].pid = gone.pid
    assert ranks[0].gathers() == ""
    failure = ranks[0].stands()
    assert isinstance(failure, NoImage) and "rank 1 has died" in str(failure)
    assert len(kept) == 2


def test_a_rank_that_is_stopped_with_the_table_is_not_waited_for(make: Make) -> None:
    ranks = make(2)
    window(ranks)
    place = ranks[0].shared_memory.place
    stopped = os.open(f"/proc/{place[0]}/fd/{place[1]}", os.O_RDWR)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    assert "cannot be had" in ranks[0].gathers()
    os.close(stopped)
    assert beside(*(rank.gathers for rank in ranks)) == ["", ""]


# ---- restarts ----------------------------------------------------------------------------------------------


def test_after_a_restart_all_members_must_be_here_with_images_of_one_instant(make: Make) -> None:
    ranks = make(2)
    segments = window(ranks)
    assert ranks[0].shared_memory.problem() == ""
    with ranks[0].shared_memory._table.changed() as (table, _):
        table.slots[1].token = 7
    assert "rank 1 were not taken at one instant" in ranks[0].shared_memory.problem()
    ranks[1].shared_memory.part(segments[1])
    assert "rank 1 is not on this host" in ranks[0].shared_memory.problem()
