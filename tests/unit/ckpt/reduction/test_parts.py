"""Reductions in parts: how values are split, when the whole has ended, and ranks that do not split alike."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any, Self

import pytest

np = pytest.importorskip("numpy")

from ckpt.reduction import Body, InvalidInput  # noqa: E402
from ckpt.reduction.body import LEAST_PART_BYTES, OWN, bounds, content_of, parts_of  # noqa: E402
from ckpt.reduction.copies import LEAST_BYTES  # noqa: E402
from ckpt.reduction.future import Future, Whole, is_divisible  # noqa: E402
from ckpt.reduction.members import Completed, Computing, Members, Sent, Step, part_key, whole_of  # noqa: E402
from ckpt.reduction.messages import (  # noqa: E402
    AS_COPY,
    Call,
    Contract,
    Fetch,
    Gone,
    HeldItem,
    Key,
    Message,
    Original,
    Outcome,
)
from ckpt.reduction.values import Joined  # noqa: E402

LONG = LEAST_PART_BYTES // 8
FUTURE: Future = None  # type: ignore[assignment]
assert LEAST_PART_BYTES >= LEAST_BYTES


class Text(Body):
    def __init__(self, text: str, into: Any = None) -> None:
        self.text, self.into = text, into

    def split(self, count: int) -> Any:
        return [Text(each) for each in self.text.split()] if self.into is None else self.into

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        return cls(" ".join(part.text for part in parts))

    def size(self) -> int:
        return len(self.text)


def contents(value: Any, op: str = "MPI_SUM") -> str:
    return content_of(value, "" if isinstance(value, Body) else op)


@pytest.mark.parametrize(("count", "wanted"), [(2 * LONG, 2), (5 * LONG + 3, 5), (40 * LONG, 8)])
def test_parts_of_an_array_are_all_of_it_in_order(count: int, wanted: int) -> None:
    array = np.arange(float(count)).reshape(1, -1)
    parts = parts_of(array, contents(array), 8)
    assert len(parts) == wanted, "none is so short that others cannot read it where it lies"
    assert (np.concatenate([part.value for part in parts]) == array[0]).all()
    assert all(np.shares_memory(part.value, array) for part in parts)
    assert [part.value.size for part in parts] == [b - a for a, b in bounds(count, wanted)]
    first, second = parts[0].content, parts[1].content
    assert f"[1, {count}]" in first and f"in {len(parts)} parts" in first and first.endswith("|MPI_SUM")
    assert second == content_of(parts[1].value, "MPI_SUM")


@pytest.mark.parametrize(
    "options",
    [{"quorum": 2}, {"deadline_ns": 1}, {"on_loss": "partial"}, {"root": 1, "on_root_loss": "next"}],
)
def test_what_could_end_in_different_ways_has_one_part(options: dict[str, Any]) -> None:
    assert is_divisible(Contract()) and is_divisible(Contract(root=1))
    assert not is_divisible(Contract(**options))


def test_short_arrays_and_those_under_an_operation_of_the_program_have_one_part() -> None:
    for array, op in ((np.zeros(2 * LONG - 1), "MPI_SUM"), (np.zeros(4 * LONG), OWN)):
        (part,) = parts_of(array, contents(array, op), 4)
        assert part.value is array and part.content == contents(array, op)


def test_a_body_says_how_it_is_split() -> None:
    body = Text("one three")
    parts = parts_of(body, contents(body), 2)
    assert [part.value.text for part in parts] == ["one", "three"]
    assert "of size 9 in 2 parts" in parts[0].content
    assert "of size 5" in parts[1].content
    plain = Body()
    assert parts_of(plain, contents(plain), 2) == [(plain, contents(plain))]
    joined = Joined(body, 2)
    kept = Text("a")
    joined.put(0, kept)
    joined.put(1, Text("b"))
    assert joined.place(0) is None
    assert joined.join().text == "a b"


@pytest.mark.parametrize("into", [[], None, "ab", [Body()], [1]])
def test_what_split_returns_is_looked_at(into: Any) -> None:
    body = Text("x", into=0 if into is None else into)
    with pytest.raises(InvalidInput, match="split"):
        parts_of(body, contents(body), 2)


def joined_of(count: int = 4 * LONG) -> tuple[Any, Joined]:
    array = np.arange(float(count))
    return array, Joined(array, 4)


def test_a_result_is_put_together_from_what_was_written_in_place_and_what_was_not() -> None:
    array, joined = joined_of()
    for part, (first, last) in enumerate(bounds(array.size, 4)):
        value = array[first:last]
        if part % 2:
            place = joined.place(part)
            place[:] = value
            value = place
        joined.put(part, value)
    out = joined.out
    result = joined.join()
    assert (result == array).all() and result is out and result.base is None


@pytest.mark.parametrize("again", ["place", "put"])
def test_who_still_writes_to_a_place_that_is_not_wanted_any_more_does_not_change_the_result(
    again: str,
) -> None:
    """The holder of a result has died while it was read: another one is read, or comes in a message."""
    array, joined = joined_of()
    whole = bounds(array.size, 4)
    for part, (first, last) in enumerate(whole[:2]):
        place = joined.place(part)
        place[:] = array[first:last]
        joined.put(part, place)
    stale, also = joined.place(2), joined.place(3)
    first, last = whole[2]
    if again == "place":
        place = joined.place(2)
        place[:] = array[first:last]
        joined.put(2, place)
    else:
        joined.put(2, array[first:last].copy())
    stale[:] = -1
    also[:] = array[slice(*whole[3])]  # of another part: it is wanted
    joined.put(3, also)
    assert (joined.join() == array).all()


def outcome_of(error: str = "", ranks: int = 0) -> Outcome:
    return Outcome(error, 0 if error else 3, 0, -1, 0, 2.0, "", ranks)


def test_a_whole_ends_with_its_last_part_or_with_an_error_of_its_first() -> None:
    array = np.zeros(3 * LONG)
    whole = Whole(FUTURE, array, 3)
    assert [whole.complete(part, outcome_of(), array[:LONG], None) for part in (2, 0, 1)] == [
        False,
        False,
        True,
    ]
    assert whole.outcome == outcome_of()
    whole = Whole(FUTURE, array, 3)
    assert not whole.complete(1, outcome_of("RootLost"), None, None)
    assert whole.complete(0, outcome_of("Mismatch"), None, None) and whole.outcome == outcome_of("Mismatch")
    assert not whole.complete(2, outcome_of(), None, None)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_error_of_a_whole_does_not_depend_on_which_part_is_told_first(order: tuple[int, ...]) -> None:
    """The ranks hear of the parts' ends in different orders, and raise the same."""
    ends = [outcome_of(), outcome_of("ContributionLost", 1), outcome_of("ContributionLost", 2)]
    whole = Whole(FUTURE, np.zeros(3 * LONG), 3)
    assert [whole.complete(part, ends[part], None, None) for part in order] == [False, False, True]
    assert whole.outcome == ends[1]


class Ranks:
    """Ranks that reduce in parts, and what is under way between them."""

    def __init__(self, counts: list[int], random: Random) -> None:
        self.random, self.counts = random, counts
        self.members = [Members(rank, len(counts)) for rank in range(len(counts))]
        self.links: dict[tuple[int, int], deque[tuple[Key, Message]]] = {}
        self.uncalled = set(range(len(counts)))
        self.ends: list[dict[int, Outcome]] = [{} for _ in counts]
        self.computing: list[tuple[int, Computing]] = []

    def take(self, rank: int, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Sent):
                self.links.setdefault((rank, step.dest), deque()).append((step.key, step.message))
            elif isinstance(step, Computing):
                self.computing.append((rank, step))
            elif isinstance(step, Completed):
                self.ends[rank][whole_of(step.key)[1]] = step.outcome

    def call(self, rank: int) -> None:
        self.uncalled.discard(rank)
        count = self.counts[rank]
        contracts = [Contract(content=f"in {count} parts"), *[Contract(content="part")] * (count - 1)]
        key, steps = self.members[rank].start("sum", Call(contracts[0], 1.0), 1)
        self.take(rank, steps)
        for part in range(1, count):
            if 0 in self.ends[rank] and self.ends[rank][0].error:
                break
            own, steps = self.members[rank].start_part(key, part, Call(contracts[part], 1.0), 1)
            assert own == part_key(key, part)
            self.take(rank, steps)

    def run(self) -> None:
        while self.uncalled or self.links or self.computing:
            events: list[Any] = [*self.uncalled, *self.links, *(-1 for _ in self.computing)]
            event = self.random.choice(events)
            if event == -1:
                rank, task = self.computing.pop(self.random.randrange(len(self.computing)))
                steps = self.members[rank].computed(task.key, task.number, task.left + task.right, 1)
                self.take(rank, steps)
            elif isinstance(event, int):
                self.call(event)
            else:
                queue = self.links[event]
                key, message = queue.popleft()
                if not queue:
                    del self.links[event]
                self.take(event[1], self.members[event[1]].receive(event[0], key, message))


@pytest.mark.parametrize("counts", [[2, 2, 2], [2, 1, 2], [1, 3, 2], [3, 3, 1]], ids=str)
def test_ranks_that_do_not_split_alike_are_all_told_so_and_nothing_is_left(counts: list[int]) -> None:
    for seed in range(150):
        ranks = Ranks(counts, Random(seed))
        for _ in range(2):  # the next one of this name is not mixed up with what is left of the first
            ranks.run()
            ranks.uncalled = set(range(3))
            firsts = {ends[0] for ends in ranks.ends}
            if len(set(counts)) == 1:
                assert all(len(ends) == count for ends, count in zip(ranks.ends, counts, strict=True))
                assert not any(end.error for ends in ranks.ends for end in ends.values())
            else:
                assert {first.error for first in firsts} == {"Mismatch"} and len(firsts) == 1
            assert not any(members.members for members in ranks.members), seed
            assert not any(members.in_use("sum") or members.pending() for members in ranks.members)
            ranks.ends = [{} for _ in counts]


def test_what_is_pending_and_in_use_are_wholes() -> None:
    members = Members(1, 3)
    key, _ = members.start("sum", Call(Contract(), 1.0), 1)
    members.start_part(key, 1, Call(Contract(), 1.0), 1)
    assert list(members.pending()) == [("sum", 0)] and members.in_use("sum")
    assert not members.in_use("sum\0001")


def test_the_lowest_rank_that_lives_takes_over_from_the_dead() -> None:
    members = Members(1, 4)
    assert members.left_to_this(2) == [], "rank 0 lives"
    members.died(2)
    assert members.left_to_this(0) == [0, 2], "those before, too: it was not the lowest"
    members.died(0)
    assert members.left_to_this(3) == [3]


def test_the_lowest_rank_of_a_host_takes_over_from_the_dead_there() -> None:
    members = Members(3, 6)  # ranks 0 to 2 are elsewhere
    assert members.left_to_this(4) == [], "rank 0 lives, and is not known to be elsewhere"
    assert members.left_to_this(4, 0b000111) == [4]
    members.died(4)
    assert members.left_to_this(0, 0b000111) == [0], (
        "there is nothing of it here, which shows when it is looked for"
    )
    assert Members(4, 6).left_to_this(5, 0b000111) == []


def test_a_copy_that_cannot_be_read_where_it_lies_is_sent() -> None:
    members, contract = Members(1, 3), Contract(content="ours")
    key, _ = members.start("sum", Call(contract, 2.0, "", "there"), 7)
    (sent,) = members.receive(0, key, Fetch(1 << 1, AS_COPY))
    assert sent.dest == 0 and sent.message == Original(1, contract, HeldItem(7, 2.0, None)), (
        "not where it lies: itself"
    )
    (sent,) = members.receive(0, key, Fetch(1 << 2, AS_COPY))
    assert isinstance(sent.message, Gone) and Members(0, 3).receive(1, key, sent.message) == []


def test_what_does_not_fit_is_not_taken_over() -> None:
    members, ours, theirs = Members(0, 3), Contract(content="ours"), Contract(content="theirs")
    assert members.lacks(("", 0), 2, theirs), "nobody here has asked for it yet"
    members.start("", Call(ours, 1.0), 1)
    assert members.lacks(("", 0), 2, ours) and not members.lacks(("", 0), 2, theirs)
    members.receive(1, ("", 0), Original(2, theirs, HeldItem(1, 1.0)))
    assert members.lacks(("", 0), 2, ours), "a copy that does not fit is not kept"
    members.receive(1, ("", 0), Original(2, ours, HeldItem(1, 1.0)))
    assert not members.lacks(("", 0), 2, ours)
    assert not members.lacks(("", 0), 0, ours)
