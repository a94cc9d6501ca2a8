"""Running digests over what a replica sends, one for each stream, and which of them it reports when. Pure.

A *stream* is a sequence of messages that all correct replicas send in the same order, whatever the order of arrivals:

    point          all messages that the program starts itself: sends of any kind, of all communicators, to all ranks
    result         what the program gives to `ckpt.redundancy.result`
    files.w        writes to parallel files that this rank is asked for, in the order in which all replicas handle these
    C.t            the messages of the collectives of communicator C with tag t. A collective sends in a fixed order; two
                   that are under way together have different tags, and may send in any order relative to each other
    W.w            answers to requests to window W, in the order in which all replicas handle these (order.py). How
                   many a process makes after its program's end is up to others

The digest is chained: it covers content, destination, tag, communicator and kind (the envelope has these), and by its place
the count. Answers of the engine itself (that a synchronous send was matched) are sent when messages arrive: they are no part
of a stream.

What is reported, at most every REPORT_NS: of a stream that has moved, the marks at multiples of EVERY and, if these are few,
all others since the last report; of one that has not moved, its last mark, once. So replicas that wait at the same place,
and replicas that send much, both report counts that the others report too.

Not here: the digest (chain.py), the comparison (vote.py), when a report is sent (layer.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

from ckpt.layer import ACTIVE, PLANE_COLLECTIVE, PLANES, SYNC, WINDOW, WINDOW_CALLS, Buffer, unpack
from ckpt.redundancy.chain import chained, number_of
from ckpt.redundancy.vote import ANSWERS, Mark

__all__ = ["EVERY", "REPORT_NS", "Stream", "Streams", "parts"]

EVERY = 64
"""Every so many messages of a stream there is a mark that all replicas report."""

REPORT_NS = 50_000_000
"""A replica reports at most so often, and at least so often while there is something to report."""

RING = 16384
"""So many messages of a stream are remembered one by one, to find the first that differs."""

DETAILS_MAX = 2048
"""At most so many are told at once, of all streams together."""

HEADS_MAX = 4096

PACKET_MARKS = 2000
"""Marks of one packet: some 60 kB."""
_FEW = 64


class Stream:
    """One stream of one replica: `count` messages so far, `state` the digest over all of them."""

    __slots__ = ("_digests", "_due", "_from", "_last", "_times", "count", "name", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.state = b""
        self._due: list[tuple[int, str]] = []
        self._last = 0
        self._from = 0
        """Messages below this number are not remembered, since another process has sent them."""
        # of the last RING messages, at (number - 1) % RING
        self._digests = array("Q")
        self._times = array("Q")

    def add(self, dst: int, data: Buffer, payload: Buffer | None, now_ns: int) -> None:
        """One message for rank `dst`: `data`, which begins with the envelope, and then `payload`."""
        self.state = state = chained(self.state, dst, data, payload)
        digest, at = number_of(state), self.count % RING
        self.count = count = self.count + 1
        if at == len(self._digests):
            self._digests.append(digest)
            self._times.append(now_ns)
        else:
            self._digests[at], self._times[at] = digest, now_ns
        if not count % EVERY:
            self._due.append((count, f"{digest:x}"))

    def marks(self, *, up_to_last: bool) -> list[tuple[int, str]]:
        """The marks to report now; `up_to_last`: with all those behind the last one at a multiple of EVERY."""
        fresh = [mark for mark in self._due if mark[0] > self._last]
        self._due = []
        if up_to_last:
            first = max(self.count - self.waiting, fresh[-1][0] if fresh else self._last)
            fresh += [(number, digest) for number, digest, _ in self.details(first + 1, self.count)]
        if fresh:
            self._last = fresh[-1][0]
        return fresh

    def details(self, first: int, last: int) -> list[tuple[int, str, int]]:
        """Messages one by one, from number `first` to `last`, as far as they are remembered: number, digest, when (ns of
        the monotonic clock)."""
        first, last = max(first, self.count - RING + 1, self._from, 1), min(last, self.count)
        places = [(number, (number - 1) % RING) for number in range(first, last + 1)]
        return [(number, f"{self._digests[at]:x}", self._times[at]) for number, at in places]

    def go_on(self, count: int, state: bytes, now_ns: int) -> None:
        """This stream goes on where that of another process was: after `count` messages, with the digest `state`. The mark
        of that place is reported."""
        digest = number_of(state)
        filled = min(count, RING)
        self.count, self.state, self._from = count, state, count
        self._digests, self._times = array("Q", bytes(8 * filled)), array("Q", bytes(8 * filled))
        if count:
            at = (count - 1) % RING
            self._digests[at], self._times[at] = digest, now_ns
            self._due = [(count, f"{digest:x}")]

    @property
    def is_open(self) -> bool:
        """Is there a message behind the last reported mark?"""
        return self.count > self._last

    @property
    def waiting(self) -> int:
        """Messages behind the last multiple of EVERY."""
        return self.count % EVERY


class Streams:
    """All streams of one replica."""

    def __init__(self) -> None:
        self._by_head: dict[bytes, Stream] = {}
        self._by_name: dict[str, Stream] = {}
        self._seen: dict[str, int] = {}
        self.point = self.named("point")

    def named(self, name: str) -> Stream:
        """The stream of this name; made on first use."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Stream(name)
        return found

    def find(self, head: bytes) -> Stream | None:
        """The stream of a message with this envelope; None: it is an answer of the engine. ValueError: one that cannot be
        compared, and whose content may depend on time (active messages)."""
        found = self._by_head.get(head)
        if found is not None:
            return found
        kind, _, tag, number, token = unpack(head)
        if kind == ACTIVE:
            raise ValueError("active messages")
        if kind == WINDOW:
            found = self.point if tag <= WINDOW_CALLS else self.named(f"{number // PLANES:x}{ANSWERS}")
        elif kind > SYNC:
            return None
        elif number % PLANES == PLANE_COLLECTIVE:
            found = self.named(f"{number // PLANES:x}.{tag}")
        else:
            found = self.point
        if not token:  # an envelope with a token comes once
            if len(self._by_head) >= HEADS_MAX:
                self._by_head.clear()
            self._by_head[head] = found
        return found

    def report(self, *, all_of_it: bool = False) -> dict[str, list[tuple[int, str]]]:
        """What is to be reported now, by stream. `all_of_it`: the program has ended."""
        opened = [stream for stream in self._by_name.values() if stream.is_open]
        are_few = all_of_it or sum(stream.waiting for stream in opened) <= _FEW
        found: dict[str, list[tuple[int, str]]] = {}
        for stream in opened:
            rests = self._seen.get(stream.name) == stream.count
            self._seen[stream.name] = stream.count
            marks = stream.marks(up_to_last=are_few or rests)
            if marks:
                found[stream.name] = marks
        return found

    def details(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, list[tuple[int, str, int]]]:
        """Messages one by one, by stream, in these ranges of numbers, as far as they are remembered."""
        each, left = max(EVERY, DETAILS_MAX // max(1, len(ranges))), DETAILS_MAX
        found = {}
        for name, (first, last) in ranges.items():
            stream = self._by_name.get(name)
            rows = [] if stream is None else stream.details(first, last)[: min(each, left)]
            left -= len(rows)
            if rows:
                found[name] = rows
        return found

    def last_details(self) -> dict[str, list[tuple[int, str, int]]]:
        """The last messages of each stream one by one, as many as are told at once."""
        counts = self.counts()
        each = max(EVERY, DETAILS_MAX // max(1, len(counts)))
        return self.details({name: (count - each + 1, count) for name, count in counts.items()})

    def last_marks(self) -> dict[str, tuple[int, str]]:
        """How many messages each stream has, with the digest over all of them; streams without messages are left out."""
        return {
            name: (stream.count, self.digest_at(name, stream.count))
            for name, stream in self._by_name.items()
            if stream.count
        }

    def digest_at(self, name: str, count: int) -> str:
        """The digest over the first `count` messages of a stream; empty where that is not remembered any more."""
        stream = self._by_name.get(name)
        rows = [] if stream is None else stream.details(count, count)
        return rows[0][1] if rows else ""

    def states(self) -> dict[str, tuple[int, bytes]]:
        """For an image: count and digest of every stream."""
        return {name: (stream.count, stream.state) for name, stream in self._by_name.items() if stream.count}

    def go_on(self, states: Mapping[str, tuple[int, bytes]], now_ns: int) -> None:
        """All streams go on where those of another process were."""
        for name, (count, state) in states.items():
            self.named(name).go_on(count, state, now_ns)

    def counts(self) -> dict[str, int]:
        """How many messages each stream has."""
        return {name: stream.count for name, stream in self._by_name.items()}


def parts(marks: dict[str, list[Mark]], most: int = PACKET_MARKS) -> Iterator[dict[str, list[Mark]]]:
    """The same marks, in order, in pieces that fit into a packet; at least one, which may be empty."""
    part: dict[str, list[Mark]] = {}
    count = 0
    for name, rows in marks.items():
        for at in range(0, len(rows), most):
            piece = rows[at : at + most]
            if count + len(piece) > most:
                yield part
                part, count = {}, 0
            part[name] = piece
            count += len(piece)
    yield part
