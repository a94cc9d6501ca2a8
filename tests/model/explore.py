"""Exhaustive exploration of the production endpoints: every order of everything, within small bounds.

A state is what each rank is (its endpoint and what its program has sent and received), the set of all
frames ever put on the wire, and the images taken. A frame of that set may arrive any number of times, in
any order, or never. A step is

    send       a rank's program enqueues its next message
    transmit   any time passes at a rank: its timers act, its frames go on the wire
    arrive     one frame reaches its target's endpoint
    take       a rank's program takes what is delivered
    image      a rank takes the image of an epoch, at any moment

In every state: each line that could commit satisfies base ≤ rx ≤ tx on every link, its contents agree, and
it can be restored and run to its end. From every state: the finished state can be reached.

Every step concerns one rank, so what it does follows from that rank alone: it is worked out once on a clone
of the endpoint and remembered under the endpoint's key. The rest is integers: states of ranks, frames and
images are numbered as they are found, the set of frames is a bit mask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from transport.endpoint import Endpoint, EndpointConfig
from transport.state import PortState, link_error

LONG_NS = 1 << 50
Received = tuple[tuple[bytes, ...], ...]
State = tuple[tuple[int, ...], int, tuple[int, ...]]
"""number of each rank's state; mask of the frames; for each epoch and rank, number of its image or -1"""
Move = tuple[str, int]
"""what, and the epoch (image) or the frame's number (arrive)"""


class RuleBroken(AssertionError):
    """A counterexample; the text is the sequence of steps that leads to it."""


@dataclass(frozen=True)
class Saved:
    """One rank's image: it stands for (previous, epoch]."""

    previous: int
    epoch: int
    port: PortState
    sent: int
    received: Received

    def key(self) -> tuple[object, ...]:
        links = self.port.links.items()
        return (
            self.previous,
            self.epoch,
            self.sent,
            self.received,
            tuple((peer, s.tx, s.base, s.rx, tuple(map(bytes, s.messages))) for peer, s in links),  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class Rank:
    """One rank: its endpoint, how many messages its program has sent, and what it has received."""

    port: Endpoint
    sent: int
    received: Received

    def key(self) -> tuple[object, ...]:
        return self.port.key(), self.sent, self.received


class Explorer:
    """`scripts[rank]` is the list of (target, content) it sends; epochs 1 … rounds. `most`: give up beyond
    so many states.
    """

    def __init__(
        self,
        scripts: Sequence[Sequence[tuple[int, bytes]]],
        rounds: int,
        endpoint: type[Endpoint] = Endpoint,
        most: int = 3_000_000,
    ) -> None:
        self.scripts = scripts
        self.size = len(scripts)
        self.rounds = rounds
        self.most = most
        self._class = endpoint
        self._ranks: list[dict[Hashable, int]] = [{} for _ in scripts]
        self._rank_things: list[list[Rank]] = [[] for _ in scripts]
        self._frames: dict[tuple[int, bytes], int] = {}
        self._frame_list: list[tuple[int, bytes]] = []
        self._images: dict[Hashable, int] = {}
        self._image_list: list[Saved] = []
        self._moves: list[dict[tuple[int, Move], tuple[int, int, int]]] = [{} for _ in scripts]
        self._good_lines: set[tuple[int, ...]] = set()

    # ---- the graph

    def explore(self) -> int:
        """All states; how many there are. Raises RuleBroken."""
        nothing: Received = ((),) * self.size
        ranks = tuple(
            self._number(rank, Rank(self._port(rank, None, 0), 0, nothing)) for rank in range(self.size)
        )
        start: State = (ranks, 0, (-1,) * (self.rounds * self.size))
        numbers = {start: 0}
        parents: list[tuple[int, int, Move]] = [(-1, -1, ("", 0))]
        before: list[list[int]] = [[]]
        finished: list[int] = []
        todo = deque([start])
        number = -1
        while todo:
            state = todo.popleft()
            number += 1
            if self._finished([self._rank_things[r][n] for r, n in enumerate(state[0])]):
                finished.append(number)
            for rank, move, after in self._steps(state):
                found = numbers.get(after)
                if found is None:
                    found = numbers[after] = len(parents)
                    parents.append((number, rank, move))
                    before.append([])
                    if found >= self.most:
                        raise RuleBroken(f"more than {self.most} states")
                    reason = self._check(after) if move[0] == "image" else None
                    if reason:
                        raise RuleBroken(f"{reason}\n{self._path(parents, found)}")
                    todo.append(after)
                if found != number:
                    before[found].append(number)
        self._check_reachable(finished, before, parents)
        return len(numbers)

    def explore_safety(self) -> int:
        """Safety alone, within larger bounds: a state is left out when another one has the same ranks and
        images and more frames, since frames need not arrive. How many states were visited."""
        nothing: Received = ((),) * self.size
        ranks = tuple(
            self._number(rank, Rank(self._port(rank, None, 0), 0, nothing)) for rank in range(self.size)
        )
        start: State = (ranks, 0, (-1,) * (self.rounds * self.size))
        parents: list[tuple[int, int, Move]] = [(-1, -1, ("", 0))]
        largest: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {(start[0], start[2]): [0]}
        todo = [(0, start)]
        while todo:
            number, state = todo.pop()
            if state[1] not in largest[state[0], state[2]]:
                continue  # a larger one was found meanwhile
            steps = self._steps(state)
            steps.sort(key=lambda step: step[1][0] == "transmit")  # popped first: many frames early
            for rank, move, after in steps:
                masks = largest.setdefault((after[0], after[2]), [])
                mask = after[1]
                if any(mask & known == mask for known in masks):
                    continue
                masks[:] = [known for known in masks if known & mask != known]
                masks.append(mask)
                parents.append((number, rank, move))
                if len(parents) > self.most:
                    raise RuleBroken(f"more than {self.most} states")
                reason = self._check(after) if move[0] == "image" else None
                if reason:
                    raise RuleBroken(f"{reason}\n{self._path(parents, len(parents) - 1)}")
                todo.append((len(parents) - 1, after))
        return len(parents)

    def _steps(self, state: State) -> list[tuple[int, Move, State]]:
        ranks, mask, images = state
        out = []
        for rank, local in enumerate(ranks):
            moves = self._local_moves(rank, local)
            bits, frame = mask, 0
            while bits:
                if bits & 1 and self._frame_list[frame][0] == rank:
                    moves.append(("arrive", frame))
                bits >>= 1
                frame += 1
            known = self._moves[rank]
            for move in moves:
                result = known.get((local, move))
                if result is None:
                    result = known[local, move] = self._apply(rank, local, move)
                then, frames, image = result
                if then == local and frames | mask == mask and image < 0:
                    continue
                after_images = images if image < 0 else self._with_image(images, rank, image)
                after_ranks = (*ranks[:rank], then, *ranks[rank + 1 :])
                out.append((rank, move, (after_ranks, mask | frames, after_images)))
        return out

    def _with_image(self, images: tuple[int, ...], rank: int, image: int) -> tuple[int, ...]:
        saved = self._image_list[image]
        new = list(images)
        for epoch in range(saved.previous + 1, saved.epoch + 1):
            new[(epoch - 1) * self.size + rank] = image
        return tuple(new)

    def _check_reachable(
        self, finished: list[int], before: list[list[int]], parents: list[tuple[int, int, Move]]
    ) -> None:
        reached = bytearray(len(before))
        todo = list(finished)
        for number in todo:
            reached[number] = 1
        while todo:
            for number in before[todo.pop()]:
                if not reached[number]:
                    reached[number] = 1
                    todo.append(number)
        missing = reached.find(0)
        if missing >= 0:
            raise RuleBroken(f"the end cannot be reached any more\n{self._path(parents, missing)}")

    def _path(self, parents: list[tuple[int, int, Move]], number: int) -> str:
        steps = []
        while number > 0:
            number, rank, (what, which) = parents[number]
            if what == "arrive":
                frame = self._frame_list[which][1]
                kind = {1: "messages", 3: "ack", 4: "probe", 5: "nack"}[frame[6]]
                stamp, ack = (int.from_bytes(frame[i : i + 8], "little") for i in (32, 40))
                steps.append(f"arrive at {rank}: {kind}, stamp {stamp}, ack {ack} {frame[72:]!r}")
            else:
                steps.append(f"{what} {rank}" + (f" epoch {which}" if which else ""))
        return "\n".join(reversed(steps))

    # ---- one rank

    def _port(self, rank: int, state: PortState | None, incarnation: int, epoch: int = 0) -> Endpoint:
        """An endpoint with no limit in reach and nobody ever reported as silent."""
        credit = 16 << 20
        config = EndpointConfig(
            1, rank, self.size, incarnation, epoch, credit, credit, silent_ns=1 << 60, rto_max_ns=1 << 40
        )
        port = self._class(config, state)
        for peer in range(self.size):
            port.set_peer(peer, incarnation, 0)
        if state is None:
            port.transmit(0)
        return port

    def _number(self, rank: int, thing: Rank) -> int:
        numbers, things = self._ranks[rank], self._rank_things[rank]
        key = thing.key()
        found = numbers.get(key)
        if found is None:
            found = numbers[key] = len(things)
            things.append(thing)
        return found

    def _local_moves(self, rank: int, local: int) -> list[Move]:
        thing = self._rank_things[rank][local]
        moves: list[Move] = [("transmit", 0), ("take", 0)]
        if thing.sent < len(self.scripts[rank]):
            moves.append(("send", 0))
        moves += [("image", epoch) for epoch in range(thing.port.epoch + 1, self.rounds + 1)]
        return moves

    def _apply(self, rank: int, local: int, move: Move) -> tuple[int, int, int]:
        """The rank's next state, the frames it puts on the wire, and its image if it takes one."""
        before = self._rank_things[rank][local]
        port, sent, received = before.port.clone(), before.sent, before.received
        what, which = move
        frames, image = 0, -1
        if what == "send":
            port.send(*self.scripts[rank][sent])
            sent += 1
        elif what == "transmit":
            port.tick(LONG_NS)
            for target, parts in port.transmit(0):
                frames |= 1 << self._frame((target, bytes(parts[0])))
        elif what == "take":
            received = take(port, received)
            reason = self._wrong_contents(rank, received)
            if reason:
                raise RuleBroken(reason)
        elif what == "arrive":
            port.receive((self._frame_list[which][1],), 0)
        else:
            port.freeze()
            saved = Saved(port.epoch, which, port.snapshot(), sent, received)
            port.advance(which, 0)
            port.thaw(0)
            image = self._images.setdefault((rank, saved.key()), len(self._image_list))
            if image == len(self._image_list):
                self._image_list.append(saved)
        port.events()
        return self._number(rank, Rank(port, sent, received)), frames, image

    def _frame(self, frame: tuple[int, bytes]) -> int:
        number = self._frames.setdefault(frame, len(self._frame_list))
        if number == len(self._frame_list):
            self._frame_list.append(frame)
        return number

    # ---- what must hold

    def _expected(self, source: int, target: int) -> list[bytes]:
        return [content for to, content in self.scripts[source] if to == target]

    def _wrong_contents(self, rank: int, received: Received) -> str | None:
        for source, messages in enumerate(received):
            if list(messages) != self._expected(source, rank)[: len(messages)]:
                return f"rank {rank} received {messages} from {source}"
        return None

    def _finished(self, ranks: Sequence[Rank]) -> bool:
        return all(
            rank.sent == len(self.scripts[number])
            and rank.port.idle()
            and all(
                len(messages) == len(self._expected(source, number))
                for source, messages in enumerate(rank.received)
            )
            for number, rank in enumerate(ranks)
        )

    def _check(self, state: State) -> str | None:
        """Every line that could commit is consistent and restorable."""
        for epoch in range(1, self.rounds + 1):
            line = state[2][(epoch - 1) * self.size : epoch * self.size]
            if min(line) < 0 or (epoch, *line) in self._good_lines:
                continue
            images = [self._image_list[number] for number in line]
            reason = link_error({rank: image.port.vectors() for rank, image in enumerate(images)})
            reason = reason or self._restore(images, epoch)
            if reason:
                return f"line {epoch}: {reason}"
            self._good_lines.add((epoch, *line))
        return None

    def _restore(self, images: list[Saved], epoch: int) -> str | None:
        """Restart this line as the next incarnation on a perfect network; None if it ends as it should."""
        ranks = [
            Rank(self._port(rank, image.port, 1, epoch), image.sent, image.received)
            for rank, image in enumerate(images)
        ]
        for _ in range(20):
            for number, rank in enumerate(ranks):
                for target, content in self.scripts[number][rank.sent :]:
                    rank.port.send(target, content)
                rank.port.tick(LONG_NS)
                ranks[number] = Rank(rank.port, len(self.scripts[number]), take(rank.port, rank.received))
                for target, parts in rank.port.transmit(0):
                    ranks[target].port.receive(parts, 0)
            if self._finished(ranks):
                return None
        return f"restored and run, it ends with {[rank.received for rank in ranks]}"


def take(port: Endpoint, received: Received) -> Received:
    """Deliver to the program; what it has received then."""
    mine = list(received)
    for source, messages in port.delivered():
        mine[source] += tuple(bytes(message) for message in messages)
        port.consumed(source, sum(map(len, messages)), len(messages))
    return tuple(mine)
