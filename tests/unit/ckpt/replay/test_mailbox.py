"""Messages of a replay and of before: kept apart, and the credit of what is dropped given back."""

from __future__ import annotations

from ckpt.replay.mailbox import MessageSorter


class Rank:
    def __init__(self) -> None:
        self.delivered: list[tuple[int, bytes]] = []
        self.credit: list[tuple[int, int, int]] = []
        self.sent: list[tuple[int, bytes, bytes | None]] = []
        self.sorter = MessageSorter(
            lambda src, batch: self.delivered.extend((src, bytes(data)) for data in batch),
            lambda src, nbytes, count: self.credit.append((src, nbytes, count)),
        )
        self.send = self.sorter.marked(self._send)

    def _send(self, dst: int, data: bytes, payload: bytes | None = None) -> int:
        self.sent.append((dst, bytes(data), payload))
        return len(self.sent)


def marked(incarnation: int, text: bytes) -> bytes:
    rank = Rank()
    rank.sorter.replay(incarnation)
    rank.send(0, text)
    return rank.sent[0][1]


def test_a_rank_that_does_not_replay_gets_batches_as_they_are() -> None:
    rank = Rank()
    rank.sorter.on_messages(1, [b"Ca", b"Cb"])
    assert rank.delivered == [(1, b"Ca"), (1, b"Cb")] and not rank.credit


def test_replayed_messages_of_the_same_restart_lose_their_mark() -> None:
    rank = Rank()
    rank.sorter.replay(4)
    rank.sorter.on_messages(1, [marked(4, b"Chello")])
    assert rank.delivered == [(1, b"Chello")]
    assert rank.credit == [(1, 32, 0)]  # the mark's bytes; the message's are the engine's to report


def test_payloads_travel_behind_the_mark() -> None:
    rank = Rank()
    rank.sorter.replay(4)
    rank.send(2, b"Chead", b"payload")
    [(dst, head, payload)] = rank.sent
    assert dst == 2 and head.endswith(b"Chead") and payload == b"payload"


def test_replays_of_another_life_are_dropped_and_their_credit_given_back() -> None:
    rank = Rank()
    old = marked(3, b"Cold")
    rank.sorter.on_messages(1, [b"C1", old, b"C2"])
    assert rank.delivered == [(1, b"C1"), (1, b"C2")]
    assert rank.credit == [(1, len(old), 1)]
    rank.sorter.replay(4)
    rank.sorter.on_messages(1, [old])
    assert rank.delivered == [(1, b"C1"), (1, b"C2")] and len(rank.credit) == 2


def test_messages_from_before_wait_for_the_end_of_the_replay_in_order() -> None:
    rank = Rank()
    rank.sorter.replay(4)
    rank.sorter.on_messages(1, [b"C1", marked(4, b"Cr"), b"C2"])
    rank.sorter.on_messages(2, [b"C3"])
    assert rank.delivered == [(1, b"Cr")]
    rank.sorter.end_replay()
    assert rank.delivered == [(1, b"Cr"), (1, b"C1"), (1, b"C2"), (2, b"C3")]
    rank.sorter.on_messages(1, [b"C4"])
    assert rank.delivered[-1] == (1, b"C4")
