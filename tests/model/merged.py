"""Exploration that merges silent steps, so that larger bounds can be visited completely.

A step is *visible* if it puts something new on the wires, or starts or ends processes; every other step is *silent*: no
other process can notice it. Everything on the wires stays there. So a silent step stays possible and has the same effect,
whatever the other processes do before it: it commutes with all their steps. Hence a state of this search (a *node*) consists
of the state of each process after its last visible step (its *root*), the same for the controller, and of the wires. A node
represents all states in which every process has made only silent steps since its root. The states that one process can
reach so are its *closure*, which is computed once for each root and the part of the wires to and from the process. Each of
these states is reachable, in every combination, and every reachable state is represented by some node. From a node, the
search follows all visible steps of all members of all closures.

Nodes that other nodes represent are left out. Each rule has its reason why no state is lost:

- *One root for those that reach each other.* Roots that reach each other by silent steps have the same closure: the search
  uses the one with the lowest number.
- *Frames without a cost.* If a process can send frames and return to its root by silent steps, these frames are put on the
  wires at once: a node without them can do nothing that the node with them cannot. For the same reason, of two nodes with
  the same roots the one with fewer frames is left out, and of two visible steps of one process the one that leads into the
  closure of the other with no more frames. This does not apply to packets between ranks and controller: the check that the
  end can be reached is made with exactly the packets that are there.
- *Messages of dead incarnations* are removed when the next incarnation starts, unless zombies are explored. At the end,
  every process that was seen gets all of them, and must ignore them (`_check_forgotten`).
- *A kill comes before silent steps of the controller*: none of them depends on which processes live, or on the number of
  kills that are left.

Nodes with fewer packets are visited first. Then most frames that are possible are on the wires before the next packet comes,
and few nodes are visited that a later node with more frames represents.

`generous`, for large bounds: each frame brings all known frames onto the wires that say no more than it does, with the same
incarnations and epoch: those with an ack that is not higher, with the same hints or none, with some of its messages or none,
with or without a request for an answer. And nodes that differ only in their frames become one node with the frames of all.
Everything that can happen without a frame can happen with it, so no error is hidden. But states are visited that no job
reaches, and an error in one of these alone would be reported, too.

The properties are checked in every state that a node represents. Contents and exceptions: in every member of every closure.
Lines that could commit: when something new is on the wires (all images are). That no rank is released too early: in the root
of each rank, the state in which it has done least. That the end can be reached: from every combination of members, after
each rank has done what it can do alone (`_settled`), which leaves few combinations.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable, Iterator
from heapq import heappop, heappush
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ckpt.transport.protocol import frames
from tests.model.controller import RuleBroken
from tests.model.explore import (
    ABORTED,
    CAPTURE,
    DEAD,
    FINISH,
    KILLED,
    NOTICE,
    READY,
    SEND,
    TAKE,
    TRANSMIT,
    Explorer,
    State,
    bits_of,
)

REMEMBERED = 1_000_000
"""Closures of a rank, which are worked out again otherwise: they are most of the memory."""

Visible = tuple[int, int, int, int]
"""member, how it moves, what it is then (a process's or the controller's number), what it puts on the wires"""


class Closure:
    """The states that silent steps reach. `members`: each with the member before it and the move, for error texts."""

    __slots__ = ("best", "members", "root", "settled", "visible")

    def __init__(self) -> None:
        self.members: dict[int, tuple[int, int] | None] = {}
        self.visible: list[Visible] = []
        self.root = 0
        """the lowest number of those that reach each other"""
        self.best: list[Visible] | None = None
        """those of `visible` that have to be followed"""
        self.settled: tuple[tuple[int, int], ...] | None = None
        """what the members come to by themselves, and the packets they then have sent"""

    def elsewhere(self) -> Closure:
        """The same closure, with other things on the wires that change it not, but the steps after it."""
        new = Closure()
        new.members, new.visible, new.root = self.members, self.visible, self.root
        return new


class Moves(NamedTuple):
    """The moves of one member. `silent`: the next state and the move. `visible`: the same with a key; of the moves
    with the same key it is enough to follow one."""

    silent: dict[int, int]
    visible: dict[Hashable, Visible]


def closure_of(root: int, moves: Callable[[int], Moves]) -> Closure:
    """All that `root` reaches by silent steps."""
    closure = Closure()
    members = closure.members
    members[root] = None
    into: dict[int, list[int]] = {}
    visible: dict[Hashable, Visible] = {}
    todo = [root]
    for member in todo:
        then_and_code, and_visible = moves(member)
        for then, code in then_and_code.items():
            into.setdefault(then, []).append(member)
            if then not in members:
                members[then] = (member, code)
                todo.append(then)
        for key, step in and_visible.items():
            visible.setdefault(key, step)
    closure.visible = list(visible.values())
    closure.root = lowest(root, into)
    return closure


def lowest(root: int, into: dict[int, list[int]]) -> int:
    """The lowest number of those that reach `root`, all of which it reaches; `into`: the steps, backwards."""
    back = {root: None}
    todo = [root]
    for member in todo:
        for before in into.get(member, ()):
            if before not in back:
                back[before] = None
                todo.append(before)
    return min(back)


class Said(NamedTuple):
    """The content of a frame. `route`: ranks, incarnations and epoch; `messages`: from `sequence` on; `body`: hints."""

    route: tuple[int, ...]
    ack: int
    kind: int
    sequence: int
    messages: tuple[bytes, ...]
    body: bytes

    @classmethod
    def by(cls, frame: tuple[bytes, ...]) -> Said:
        header, head = frames.open_frame(frame)
        messages: tuple[bytes, ...] = ()
        if header[2] == frames.MESSAGES:
            messages = tuple(map(bytes, frames.decode_messages(head, *header[13:15])))
        return cls(header[5:10], header[10], header[2], header[12], messages, head[frames.BODY :])

    def says_no_more_than(self, other: Said) -> bool:
        if self.route != other.route or self.ack > other.ack:
            return False
        if self.kind == frames.PROBE or (self.kind == frames.ACK and not self.body):
            return True
        if self.kind != other.kind or self.kind not in (frames.MESSAGES, frames.ACK):
            return False
        if self.kind == frames.ACK:
            return self.body == other.body
        start = self.sequence - other.sequence
        return start >= 0 and other.messages[start : start + len(self.messages)] == self.messages


class Merged(Explorer):
    """Explores one `Bounds`; `states` counts nodes. See the module."""

    def __init__(self, *args: Any, generous: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self.generous = generous
        self._said: list[Said | None] = []
        self._with: list[int] = []
        """by frame: mask of those that say no more than it does"""
        self._from = [0] * self.size
        """mask of what each rank has put on the wires"""
        self._of: list[int] = []
        """by incarnation: mask of what belongs to it"""
        self._forgotten = 0
        self._closures: list[dict[tuple[int, int], Closure]] = [{} for _ in range(self.size)]
        """of a root, with this on the wires"""
        self._alike: list[dict[int, dict[int, dict[int, Closure]]]] = [{} for _ in range(self.size)]
        """of a root, by what makes a difference to the closure, by how much of that is on the wires"""
        self._c_closures: dict[tuple[int, int], Closure] = {}
        self._moves_by: list[dict[int, tuple[int, dict[int, Moves]]]] = [{} for _ in range(self.size)]
        """of each member: what makes a difference to its moves, and by how much of that is on the wires"""
        self._says: list[dict[int, int]] = [{} for _ in range(self.size)]
        """by member: mask of what its steps put on the wires"""
        self._mark: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._nodes: dict[tuple[tuple[int, ...], int, int], list[int]] = {}
        """roots, the controller's, packets: masks of which none contains another"""
        self._led_to: dict[tuple[tuple[int, ...], int, int], int] = {}
        """after a step: roots, the controller's, packets, and what was on the wires of the node that it led to"""
        self._todo: list[tuple[int, int, State]] = []
        """a heap: how many packets; number of the node (the first one first when more may yet be put on its wires, else
        the last one, negative); and the node"""

    def _bit(self, key: tuple[str, int, Hashable], target: int, what: Any) -> int:
        bit = super()._bit(key, target, what)
        kind, incarnation = key[0], what[1]
        if kind == "frame":
            self._from[int.from_bytes(what[0][0][16:20], "little")] |= bit
            # a frame belongs to the incarnation that it is sent to
            incarnation = int.from_bytes(what[0][0][28:32], "little")
        elif kind == "report":
            self._from[key[1]] |= bit
        while len(self._of) <= incarnation:
            self._of.append(0)
        self._of[incarnation] |= bit
        return bit

    # ---- silent steps

    def _closure(self, rank: int, root: int, mask: int) -> Closure:
        near = mask & (self._for[rank] | self._from[rank])
        found = self._closures[rank].get((root, near))
        if found is None:
            if len(self._closures[rank]) >= REMEMBERED:
                self._closures[rank].clear()
                self._alike[rank].clear()
            found = self._closures[rank][root, near] = self._closure_like(rank, root, near)
        return found

    def _closure_like(self, rank: int, root: int, mask: int) -> Closure:
        alike = self._alike[rank].setdefault(root, {})
        for matters, known in alike.items():
            found = known.get(mask & matters)
            if found is not None:
                return found.elsewhere()
        found = closure_of(root, lambda member: self._moves_in(rank, member, mask))
        unheeded, said = self._for[rank], 0
        for member in found.members:
            if member != DEAD:
                unheeded &= self._idle[rank][member]
                said |= self._says[rank].get(member, 0)
        matters = self._what_matters(rank, unheeded, said)
        alike.setdefault(matters, {})[mask & matters] = found
        return found

    def _moves_in(self, rank: int, member: int, mask: int) -> Moves:
        matters, known = self._moves_by[rank].get(member, (0, {}))
        found = known.get(mask & matters)
        if found is None:
            found = self._find_moves(rank, member, mask)
            now = self._what_matters(rank, self._idle[rank][member], self._says[rank].get(member, 0))
            if now != matters:
                known = {}
                self._moves_by[rank][member] = now, known
            known[mask & now] = found
        return found

    def _what_matters(self, rank: int, unheeded: int, said: int) -> int:
        """Mask of the elements that change silent steps: those for the process, if it does not ignore them, or from it."""
        return ~unheeded & (~self._from[rank] | said)

    def _find_moves(self, rank: int, member: int, mask: int) -> Moves:
        found = Moves({}, {})
        if member == DEAD:
            return found
        own, idle = self._moves[rank][member], self._idle[rank]
        for code in (*own, *bits_of(mask & self._for[rank] & ~idle[member])):
            then, more = self._step(rank, member, code)
            if more & ~mask:
                found.visible.setdefault((then, more), (member, code, then, more))
            elif then != member:
                found.silent.setdefault(then, code)
            elif code >= 0 and not more:
                idle[member] |= 1 << code
        return found

    def _step(self, rank: int, member: int, code: int) -> tuple[int, int]:
        found = self._known[rank].get((member, code))
        if found is None:
            found = self._known[rank][member, code] = self._apply(rank, member, code)
        return found

    def _apply(self, rank: int, local: int, code: int) -> tuple[int, int]:
        then, more = super()._apply(rank, local, code)
        if more:
            self._says[rank][local] = self._says[rank].get(local, 0) | more
        return then, more

    def _settled_of(self, rank: int, closure: Closure, mask: int) -> tuple[tuple[int, int], ...]:
        if closure.settled is None:
            orders = mask & self._for[rank] & self._reliable
            closure.settled = tuple({self._settled(rank, member, orders): None for member in closure.members})
        return closure.settled

    def _settled(self, rank: int, member: int, orders: int) -> tuple[int, int]:
        """The state that the process reaches alone, without any frame, and the packets that it sends to the controller."""
        key = (rank, member, orders)
        found = self._mark.get(key)
        if found is None:
            more = 0
            for code in bits_of(orders):
                if member != DEAD:
                    member, said = self._step(rank, member, code)
                    more |= said
            for code in (READY, CAPTURE, TAKE, SEND, SEND, SEND, SEND, FINISH, TRANSMIT):
                if code in self._moves[rank][member]:
                    member, said = self._step(rank, member, code)
                    more |= said
            found = self._mark[key] = member, more & self._reliable
        return found

    def _best(self, rank: int, closure: Closure, mask: int) -> list[Visible]:
        """The visible steps, without those that lead into the closure of another one."""
        if closure.best is None:
            best: list[Visible] = []
            for step in closure.visible:
                if not any(self._stands_for(rank, other, step, mask) for other in best):
                    best = [other for other in best if not self._stands_for(rank, step, other, mask)]
                    best.append(step)
            closure.best = best
        return closure.best

    def _stands_for(self, rank: int, one: Visible, other: Visible, mask: int) -> bool:
        mine, its = one[3] & ~mask, other[3] & ~mask
        return (
            its & ~mine == 0
            and (mine ^ its) & self._reliable == 0
            and other[2] in self._closure(rank, one[2], mask | mine).members
        )

    def _c_closure(self, root: int, mask: int) -> Closure:
        near = mask & self._reliable
        found = self._c_closures.get((root, near))
        if found is None:
            found = closure_of(root, lambda member: self._c_moves_in(root, member, near))
            self._c_closures[root, near] = found
        return found

    def _c_moves_in(self, root: int, member: int, mask: int) -> Moves:
        found = Moves({}, {})
        if self._c_things[member].ended or self._c_things[member].phase in ("releasing", "ended"):
            return found
        for code in (
            *self._c_moves[member],
            *bits_of(mask & self._for[self.size] & ~self._c_idle[member]),
        ):
            kill = KILLED <= code < NOTICE
            if kill and member != root:
                continue
            then, more, fenced, launch = self._control(member, code)
            if kill or fenced or launch is not None or more & ~mask:
                found.visible.setdefault(
                    (then, more, kill and code, fenced, launch), (member, code, then, more)
                )
            elif then != member:
                found.silent.setdefault(then, code)
            elif code >= 0 and not more:
                self._c_idle[member] |= 1 << code
        return found

    # ---- the graph of nodes

    def _explore(self) -> int:
        self._parents = array("q")
        """of every node, in fours: the node before, which process moved, from which member, and how"""
        self._add(self._first_state(), (-1, 0, 0, 0))
        todo = self._todo
        while todo:
            _, number, state = heappop(todo)
            number = abs(number)
            slots, controller, mask = state
            if mask not in self._nodes[slots, controller, mask & self._reliable]:
                continue
            try:
                self._expand(number, state)
            except RuleBroken as broken:
                raise RuleBroken(f"{broken}\n{self._path(number)}") from broken.__cause__
            if self.states >= self.most:
                self._check_forgotten()
                if self.partly:
                    return self.states
                raise RuleBroken(f"more than {self.most} states")
        self._check_forgotten()
        return self.states

    def _expand(self, number: int, state: State) -> None:
        slots, controller, mask = state
        size = self.size
        closures = [self._closure(i % size, local, mask) for i, local in enumerate(slots)]
        c_closure = self._c_closure(controller, mask)
        self._check_ends(state, closures, c_closure)
        if self._is_end(slots, controller):
            return
        for i, closure in enumerate(closures):
            for member, code, then, more in self._best(i % size, closure, mask):
                self.steps += 1
                if code in (CAPTURE, ABORTED) and i < size and self.bounds.could_commit:
                    reason = self._check_lines(more & ~mask, mask | more)
                    if reason:
                        raise RuleBroken(f"{reason}, after {self._describe(i, code)}")
                after = (*slots[:i], then, *slots[i + 1 :])
                self._add((after, controller, mask | more), (number, i, member, code))
        for member, code, then, more in c_closure.visible:
            if KILLED <= code < NOTICE and slots[code - KILLED] == DEAD:
                continue
            self.steps += 1
            _, _, fenced, launch = self._control(member, code)
            wires = mask | more
            if launch is not None and not self.bounds.zombies:
                wires = self._forget(wires, self._c_things[then].incarnation)
            after = self._slots_after(slots, code, fenced, launch)
            self._add((after, then, wires), (number, 2 * size, member, code))

    def _add(self, state: State, parent: tuple[int, int, int, int]) -> None:
        slots, controller, mask = state
        before = (slots, controller, mask & self._reliable)
        known = self._led_to.get(before)
        if known is not None:
            if mask & known == mask:
                return
            mask |= known
        while True:
            mask = self._saturated(slots, mask)
            slots = tuple(self._closure(i % self.size, local, mask).root for i, local in enumerate(slots))
            controller = self._c_closure(controller, mask).root
            masks = self._nodes.setdefault((slots, controller, mask & self._reliable), [])
            covering = [known for known in masks if mask & known == mask]
            if covering:
                mask = covering[0]
                break
            if not self.generous or not masks:
                masks[:] = [known for known in masks if known & mask != known]
                masks.append(mask)
                self._found((slots, controller, mask), parent)
                break
            mask |= masks.pop()
        if self.generous:
            self._led_to[before] = mask

    def _found(self, node: State, parent: tuple[int, int, int, int]) -> None:
        packets = (node[2] & self._reliable).bit_count()
        heappush(self._todo, (packets, self.states if self.generous else -self.states, node))
        self._parents.extend(parent)
        self.states += 1

    def _saturated(self, slots: tuple[int, ...], mask: int) -> int:
        """The wires with all frames that some process can send without a change of its root."""
        before = -1
        while before != mask:
            if self.generous:
                for bit in bits_of(mask & ~max(before, 0) & ~self._reliable):
                    mask |= self._no_more_than()[bit]
            before = mask
            for i, root in enumerate(slots):
                rank = i % self.size
                for _, _, then, more in self._closure(rank, root, mask).visible:
                    fresh = more & ~mask
                    if (
                        fresh
                        and not fresh & self._reliable
                        and root in self._closure(rank, then, mask | more).members
                    ):
                        mask |= more
        return mask

    def _no_more_than(self) -> list[int]:
        for bit in range(len(self._with), len(self._wire)):
            kind, _, what = self._wire[bit]
            new = Said.by(what[0]) if kind == "frame" else None
            self._said.append(new)
            self._with.append(0)
            for other, said in enumerate(self._said):
                if new is not None and said is not None:
                    self._with[bit] |= said.says_no_more_than(new) << other
                    self._with[other] |= new.says_no_more_than(said) << bit
        return self._with

    # ---- what must hold

    def _check_ends(self, state: State, closures: list[Closure], c_closure: Closure) -> None:
        slots, _, mask = state
        ways: list[tuple[tuple[int, ...], int]] = [((), mask & self._reliable)]
        for rank, closure in enumerate(closures[: self.size]):
            settled = self._settled_of(rank, closure, mask)
            ways = [((*now, one), said | more) for now, said in ways for one, more in settled]
        for member in c_closure.members:
            if self._is_end(slots, member):
                continue
            for now, said in ways:
                picture = (now, member, said)
                if picture not in self._ending:
                    self._ends(*picture)

    def _forget(self, mask: int, incarnation: int) -> int:
        """The wires without the elements from and for incarnations before this one."""
        old = 0
        for bits in self._of[:incarnation]:
            old |= bits
        self._forgotten |= mask & old
        return mask & ~old

    def _check_forgotten(self) -> None:
        for bit in bits_of(self._forgotten):
            incarnation = next(i for i, bits in enumerate(self._of) if bits >> bit & 1)
            _, to, what = self._wire[bit]
            if self._for[self.size] >> bit & 1:
                for number, controller in enumerate(list(self._c_things)):
                    heeds = controller.incarnation > incarnation and not controller.ended
                    if heeds and self._control(number, bit) != (number, 0, False, None):
                        raise RuleBroken(f"the controller of {controller.incarnation} heeds {what}")
                continue
            for number, process in enumerate(list(self._things[to])):
                later = process is not None and process.spec["incarnation"] > incarnation
                if later and self._step(to, number, bit) != (number, 0):
                    raise RuleBroken(f"rank {to}: what is meant for the dead is heeded: {what}")

    # ---- for people and tests

    def _path(self, number: int) -> str:
        """The visible steps that lead to a node."""
        steps = []
        while number > 0:
            number, slot, _, code = self._parents[4 * number : 4 * number + 4]
            steps.append(self._describe(slot, code))
        return "\n".join(["(steps that nobody else notices are left out)", *reversed(steps)])

    def pictures(self) -> set[tuple[object, ...]]:
        """All states that the nodes represent."""
        self._seen = {
            (now, end): [] for _, members, ends in self._stands() for now in product(*members) for end in ends
        }
        return super().pictures()

    def stands_for(self) -> int:
        """A lower bound of the number of states (processes, controller, wires) that the nodes represent. Nodes with the same
        wires may have states in common, so only the largest of them is counted."""
        most: dict[int, int] = {}
        for mask, members, ends in self._stands():
            most[mask] = max(most.get(mask, 0), prod(map(len, members)) * len(ends))
        return sum(most.values())

    def _stands(self) -> Iterator[tuple[int, list[Collection[int]], Collection[int]]]:
        """For every node the wires, and the possible states of each process and of the controller."""
        for (slots, controller, _), masks in self._nodes.items():
            if self._is_end(slots, controller):
                continue
            for mask in masks:
                yield (
                    mask,
                    [self._closure(i % self.size, root, mask).members for i, root in enumerate(slots)],
                    self._c_closure(controller, mask).members,
                )
