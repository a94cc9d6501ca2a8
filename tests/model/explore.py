"""Exhaustive exploration of the production code of a whole job, within small bounds.

A state consists of the state of each process (rank: endpoint, imager and program; controller: supervisor, coordinator and
disk) and the set of everything that was ever put on the wires: frames between ranks, packets between ranks and controller.
An element of this set may arrive any number of times, in any order, or never: so the set covers loss, duplication,
reordering and delay, and frames of dead incarnations stay for ever.

    rank        send       the program enqueues its next message
                transmit   any time passes: timers act, and due frames go on the wire
                take       the messages that have come in order are delivered to the program
                arrive     one frame, or one packet of the controller
                capture    an image is wanted, and the program is at a place where it can be taken
                fail       the same, but the disk refuses the image; or the rank gives it up at its own limit
                freeze     the port stays frozen for a while (synchronous images), and the round may be aborted
                           in the meantime
                finish     the program has ended
                die        kill -9
    controller  arrive     a packet of a rank
                request, time out, written, not written (the control file), die (control file there, or not),
                notice (a death), take over (the next controller)

These properties are checked. In every state, the messages that a program has received are a prefix of those sent to it.
Every line that could commit (an image of every rank, of one incarnation, that stands for the epoch, committed or not)
satisfies base ≤ rx ≤ tx on every link, and if it is restored on a perfect network it runs to its end. A line that commits
has images that are still on disk, and a number above all earlier ones. The finished state can be reached from every state,
and by the fair run without further faults that starts with the loss of all frames and packets on the wires (`_ends`).

Two reductions, both safe:

- *Local steps.* A step concerns one process, and its result depends only on that process and on what arrives. It is computed
  once, on a clone, and stored under the process's key. Global states are then tuples of integers and a bit mask.
- *More frames are worse.* Of two states with the same processes, the one with more on the wires can do all that the other
  can, since nothing has to arrive. So a state is left out if one with a superset was visited (`reduced`; without it every
  state is visited). For reaching the end the opposite holds; so that is checked with no frames at all.

A third, for large bounds (`keeps_late_frames` off): *frames that would wait for an image are lost instead*.
Everything on the wires may arrive again, and after the image the production code passes each kept frame to `receive`. So a
process that keeps frames can reach no state that one without them cannot reach when the network delivers them later. That
kept frames keep their contents, and that the end is reached with them, is checked in bounds with `keeps_late_frames`.

States are not distinguished by the credit that is left (no limit can be reached; `Endpoint.key` gets none), by estimates of
round trips, by counters, and by the order in which units in flight were sent.
"""

from __future__ import annotations

import json
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ckpt.mpi.base.handlers import NoHandlers
from ckpt.transport.errors import StateMismatch
from ckpt.transport.protocol.frames import NACK
from ckpt.transport.protocol.state import Buffer, link_error
from tests.model.controller import ABSENT, Controller, Effects, RuleBroken
from tests.model.process import Image, InMemory, Left, ModelRemote, Process, rank_spec
from tests.model.world import World, production, without_stacks

LONG_NS = 1 << 41
"""Longer than any timer runs (`rto_max_ns`)."""
DEAD = 0
SEND, TRANSMIT, TAKE, CAPTURE, FAIL, GIVE_UP, FREEZE, ABORTED, FINISH, READY = range(-10, 0)
NAMES = {
    SEND: "send", TRANSMIT: "transmit", TAKE: "take", CAPTURE: "capture", FAIL: "image fails",
    GIVE_UP: "image given up", FREEZE: "freeze", ABORTED: "capture, aborted while it is written", FINISH: "finish",
    READY: "could be captured",
}  # fmt: skip
GO_BACK, REQUEST, TIME_OUT, WRITTEN, UNWRITTEN, DIE, DIE_DURABLE, TAKE_OVER = range(-8, 0)
CONTROLLER_NAMES = {
    REQUEST: "request", TIME_OUT: "round times out", WRITTEN: "control file written",
    UNWRITTEN: "control file fails", DIE: "dies", DIE_DURABLE: "dies, control file durable",
    TAKE_OVER: "the next one takes over", GO_BACK: "a rank asks to go back",
}  # fmt: skip
KILLED, NOTICE = 1 << 30, 1 << 31
"""Plus the rank: moves of the controller's table."""

Send = tuple[int, bytes, tuple[int, int] | None]
"""target, content, and (source, count): only after so many messages of source were received"""
State = tuple[tuple[int, ...], int, int]
"""number of each process's state (ranks, then zombies), the controller's, mask of what is on the wires"""


@dataclass(frozen=True)
class Bounds:
    """The bounds of an exploration. `scripts[rank]`: the messages that it sends. `limits`: fields of EndpointConfig."""

    scripts: tuple[tuple[Send, ...], ...]
    rounds: int = 1
    kills: int = 0
    controller_deaths: int = 0
    adopts: bool = False
    """The next controller goes on with the ranks if all of them run."""
    failing_images: bool = False
    failing_commits: int = 0
    timeouts: bool = True
    continues: bool = False
    """The program deals with failures itself: the others go on, and so do the rounds; it may ask to go back."""
    zombies: bool = False
    frozen: bool = False
    late_tables: bool = False
    asks: bool = False
    """Ranks are asked before a round whether they could be captured."""
    large: bool = False
    remote: bool = False
    """Payloads stay in their sender's memory, and are read into the receiver's when they come; each frame comes, too,
    with a payload that cannot be read."""
    announcements: bool = False
    could_commit: bool = True
    """Check lines that could commit, too (otherwise only those that do)."""
    keeps_late_frames: bool = True
    """A frame of a later epoch is kept until the image is taken (see the module)."""

    def limits(self) -> dict[str, Any]:
        """No credit limit in reach, nobody ever reported as silent."""
        limits: dict[str, Any] = {"silent_ns": 1 << 60, "rto_max_ns": 1 << 40}
        if self.remote:
            limits |= {"large_bytes": 1, "fragment_bytes": 1 << 20}
        if self.large:
            limits |= {"large_bytes": 1, "fragment_bytes": 1}
        return limits


class Failed:
    """In place of `ckpt.mpi.engine.failures.FailedRanks`: which ranks have failed, as far as the program was told."""

    def __init__(self, ranks: frozenset[int] = frozenset()) -> None:
        self.known = ranks
        self.diagnoses: dict[int, Any] = {}

    def add(self, ranks: Iterable[int]) -> None:
        self.known |= frozenset(ranks)


class Script(InMemory):
    """One rank's program: sends in order, each when its condition holds; receives whatever comes."""

    predefined: Mapping[str, Any] = {}
    """No communicators (see `Engine`)."""
    handlers = NoHandlers()
    spawns = None

    def __init__(self, sends: Sequence[Send], size: int) -> None:
        self.sends = sends
        self.sent = 0
        self.received: tuple[tuple[bytes, ...], ...] = ((),) * size
        self.failed_ranks = Failed()
        self._consumed: Callable[[int, int, int], None]

    def attach(self, endpoint: Any) -> None:
        self._consumed = endpoint.consumed

    def on_messages(self, source: int, messages: list[Buffer]) -> None:  # type: ignore[override]
        received = list(self.received)
        received[source] += tuple(map(bytes, messages))
        self.received = tuple(received)
        self._consumed(source, sum(map(len, messages)), len(messages))

    def attend(self) -> None:
        """There are no handlers."""

    def copy(self) -> Self:
        new = type(self)(self.sends, len(self.received))
        new.sent, new.received = self.sent, self.received
        new.failed_ranks = Failed(self.failed_ranks.known)
        return new

    def key(self) -> tuple[object, ...]:
        return self.sent, self.received, self.failed_ranks.known

    def can_send(self) -> bool:
        if self.sent == len(self.sends):
            return False
        after = self.sends[self.sent][2]
        return (
            after is None or len(self.received[after[0]]) >= after[1] or after[0] in self.failed_ranks.known
        )


class Explorer:
    """Explores one `Bounds`. `most`: give up (RuleBroken) beyond so many states, or stop there if `partly`.

    `both_ends`: next comes in turn the state that was found last and the one that was found first. Whole bounds
    are visited faster from the last one (states with much on the wires come early); of what is too large for
    that, and for a counterexample, it is the corner that the first states happen to lead to, and no more.
    """

    def __init__(
        self,
        bounds: Bounds,
        world: World | None = None,
        *,
        reduced: bool = True,
        both_ends: bool = False,
        most: int = 5_000_000,
        partly: bool = False,
    ) -> None:
        self.bounds = bounds
        self.world = production() if world is None else world
        self.size = len(bounds.scripts)
        self.reduced = reduced
        self.both_ends = both_ends
        self.most = most
        self.partly = partly
        self._limits = bounds.limits()
        self._nacks = bounds.frozen or bounds.announcements
        self._untold = set() if bounds.announcements else {"committed"}
        if not bounds.late_tables:
            self._untold.add("table")
        # ranks
        self._numbers: list[dict[Hashable, int]] = [{} for _ in bounds.scripts]
        self._things: list[list[Process | None]] = [[None] for _ in bounds.scripts]
        self._moves: list[list[tuple[int, ...]]] = [[()] for _ in bounds.scripts]
        self._idle: list[list[int]] = [[0] for _ in bounds.scripts]
        """per state: bits that change nothing"""
        self._known: list[dict[tuple[int, int], tuple[int, int]]] = [{} for _ in bounds.scripts]
        # controller
        self._c_numbers: dict[Hashable, int] = {}
        self._c_things: list[Controller] = []
        self._c_moves: list[tuple[int, ...]] = []
        self._c_idle: list[int] = []
        self._c_known: dict[tuple[int, int], tuple[int, int, bool, tuple[int, ...] | None]] = {}
        # wires
        self._bits: dict[Hashable, int] = {}
        self._wire: list[tuple[str, int, Any]] = []
        """kind ("frame", "order", "report"), rank, content"""
        self._for: list[int] = [0] * (self.size + 1)
        """for each rank the mask of what is addressed to it; last: the same for the controller"""
        self.images: list[Image] = []
        self._image_of_bit: dict[int, int] = {}
        self._good_lines: set[tuple[int, ...]] = set()
        self._ending: set[State] = set()
        self._reliable = 0
        """mask of the packets between ranks and controller"""
        self.states = 0
        self.steps = 0

    # ---- the graph

    def explore(self) -> int:
        """Visit all states; returns how many. Raises RuleBroken."""
        with without_stacks():
            return self._explore()

    def _first_state(self) -> State:
        """Before anything has happened: the controller has just launched the ranks."""
        bounds = self.bounds
        first = Controller(
            self.world, self.size, kills=bounds.kills, deaths=bounds.controller_deaths,
            failures=bounds.failing_commits, asks=bounds.asks, adopts=bounds.adopts, continues=bounds.continues,
        )  # fmt: skip
        packets, _, launch = self._effects(first, first.take_over())
        assert launch is not None
        zombies = (DEAD,) * self.size if bounds.zombies else ()
        return launch + zombies, self._number_controller(first), packets

    def _explore(self) -> int:
        self._parents = array("q", (-1, -1, 0))
        """of every state, in threes: the state before it, which process moved, and how"""
        start = self._first_state()
        seen: dict[tuple[tuple[int, ...], int], list[int]] = {(start[0], start[1]): [start[2]]}
        self._seen = seen
        todo = deque([(0, start)])
        first_found = False
        parents = self._parents
        reduced = self.reduced
        while todo:
            first_found = self.both_ends and not first_found
            number, state = todo.popleft() if first_found else todo.pop()
            key = (state[0], state[1])
            if reduced and state[2] not in seen[key]:
                continue  # one with more on the wires was found meanwhile
            try:
                steps = self._steps(state)
                for _, _, after in steps:
                    picture = (after[0], after[1], after[2] & self._reliable)
                    if picture not in self._ending:
                        self._ends(*picture)
            except RuleBroken as broken:
                raise RuleBroken(f"{broken}\n{self._path(number)}") from broken.__cause__
            for slot, code, after in steps:
                self.steps += 1
                key = (after[0], after[1])
                masks = seen.get(key)
                mask = after[2]
                if masks is None:
                    seen[key] = [mask]
                elif not reduced:
                    if mask in masks:
                        continue
                    masks.append(mask)
                else:
                    if any(mask & known == mask for known in masks):
                        continue
                    masks[:] = [known for known in masks if known & mask != known]
                    masks.append(mask)
                parents.extend((number, slot, code))
                self.states = found = len(parents) // 3
                if code in (CAPTURE, ABORTED) and slot < 2 * self.size and self.bounds.could_commit:
                    reason = self._check_lines(mask & ~state[2], mask)
                    if reason:
                        raise RuleBroken(f"{reason}\n{self._path(found - 1)}")
                if found >= self.most:
                    if self.partly:
                        return self.states
                    raise RuleBroken(f"more than {self.most} states")
                todo.append((found - 1, after))
        self.states = len(parents) // 3
        return self.states

    def pictures(self) -> set[tuple[object, ...]]:
        """The states of the processes that were visited, by what they are (not by number), until the end is
        declared."""
        return {
            (
                tuple(
                    "dead" if process is None else process.key(nacks=self._nacks)
                    for process in (self._things[i % self.size][n] for i, n in enumerate(slots))
                ),
                self._c_things[controller].key(),
            )
            for slots, controller in self._seen
            if not self._is_end(slots, controller)
        }

    def keep_images_of(self, other: Explorer) -> None:
        """Number images as `other` has: the controller knows them by number, and its states are compared."""
        self.images = other.images
        self._image_numbers.update(other._image_numbers)

    def _steps(self, state: State) -> list[tuple[int, int, State]]:
        slots, controller, mask = state
        out: list[tuple[int, int, State]] = []
        if self._is_end(slots, controller):
            return out
        size = self.size
        self._controller_steps(state, out)
        for slot, local in enumerate(slots):
            if local == DEAD:
                continue
            rank = slot % size
            known = self._known[rank]
            codes = list(self._moves[rank][local])
            bits = mask & self._for[rank] & ~self._idle[rank][local]
            while bits:
                low = bits & -bits
                bits ^= low
                codes.append(low.bit_length() - 1)
            for code in codes:
                result = known.get((local, code))
                if result is None:
                    result = known[local, code] = self._apply(rank, local, code)
                then, more = result
                if then == local:
                    if code >= 0 and not more:
                        self._idle[rank][local] |= 1 << code
                        continue
                    if more | mask == mask:
                        continue
                out.append((slot, code, ((*slots[:slot], then, *slots[slot + 1 :]), controller, mask | more)))
        # popped last first: transmissions early, so that states with much on the wires come first
        out.sort(key=lambda step: step[1] == TRANSMIT)
        return out

    def _controller_steps(self, state: State, out: list[tuple[int, int, State]]) -> None:
        slots, controller, mask = state
        size = self.size
        codes = list(self._c_moves[controller])
        bits = mask & self._for[size] & ~self._c_idle[controller]
        while bits:
            low = bits & -bits
            bits ^= low
            codes.append(low.bit_length() - 1)
        for code in codes:
            if KILLED <= code < NOTICE and slots[code - KILLED] == DEAD:
                continue
            then, more, fenced, launch = self._control(controller, code)
            if then == controller and more | mask == mask:
                if code >= 0 and not more:
                    self._c_idle[controller] |= 1 << code
                continue
            out.append((2 * size, code, (self._slots_after(slots, code, fenced, launch), then, mask | more)))

    def _slots_after(
        self, slots: tuple[int, ...], code: int, fenced: bool, launch: tuple[int, ...] | None
    ) -> tuple[int, ...]:
        size = self.size
        if KILLED <= code < NOTICE:
            rank = code - KILLED
            return (*slots[:rank], DEAD, *slots[rank + 1 :])
        if launch is not None:
            return launch + (slots[:size] if self.bounds.zombies else ())
        if fenced and not self.bounds.zombies:
            return (DEAD,) * size
        return slots

    def _path(self, number: int) -> str:
        steps = []
        while number > 0:
            number, slot, code = self._parents[3 * number : 3 * number + 3]
            steps.append(self._describe(slot, code))
        return "\n".join(reversed(steps))

    def _describe(self, slot: int, code: int) -> str:
        size = self.size
        if slot == 2 * size:
            if code >= NOTICE:
                return f"the controller learns of rank {code - NOTICE}'s death"
            if code >= KILLED:
                return f"rank {code - KILLED} is killed"
            if code < 0:
                return f"controller: {CONTROLLER_NAMES[code]}"
            return f"controller hears {self._wire[code]}"
        who = f"rank {slot}" if slot < size else f"zombie of rank {slot - size}"
        if code < 0:
            return f"{who}: {NAMES[code]}"
        kind, _, what = self._wire[code]
        if kind == "order":
            return f"{who} obeys {what}"
        frame = what[0][0]
        name = {1: "messages", 2: "fragment", 3: "ack", 4: "probe", 5: "nack"}[frame[6]]
        stamp, ack = (int.from_bytes(frame[i : i + 8], "little") for i in (32, 40))
        incarnation = int.from_bytes(frame[24:28], "little")
        return f"{who}: {name} arrives, of incarnation {incarnation}, stamp {stamp}, ack {ack} {frame[72:]!r}"

    # ---- ranks

    def _number(self, rank: int, process: Process) -> int:
        numbers, things = self._numbers[rank], self._things[rank]
        key = (process.spec["incarnation"], process.key(nacks=self._nacks))
        found = numbers.get(key)
        if found is None:
            found = numbers[key] = len(things)
            things.append(process)
            self._moves[rank].append(self._moves_of(process))
            self._idle[rank].append(0)
        return found

    def _moves_of(self, process: Process) -> tuple[int, ...]:
        moves = [TRANSMIT]
        program = process.engine
        if process.stopped:
            return (TRANSMIT, CAPTURE, ABORTED) if process.image_is_wanted() else (TRANSMIT, CAPTURE)
        if process.endpoint.deliverable:
            moves.append(TAKE)
        if program.can_send():
            moves.append(SEND)
        elif self._complete(process) and process.runtime.finished_code is None:
            moves.append(FINISH)
        if process.is_asked():
            moves.append(READY)
        if process.image_is_wanted():
            moves.append(CAPTURE)
            if self.bounds.failing_images:
                moves += [FAIL, GIVE_UP]
            if self.bounds.frozen:
                moves.append(FREEZE)
        return tuple(moves)

    def _apply(self, rank: int, local: int, code: int) -> tuple[int, int]:
        """The rank's next state, and the frames that it puts on the wires."""
        before = self._things[rank][local]
        assert before is not None
        process = before.clone()
        process.write = self._keep_image
        try:
            more = self._act(process, rank, code)
            process.port.tell()
        except Left as left:
            return DEAD, self._reports(process) | self._left(process, left.code)
        except RuleBroken:
            raise
        except Exception as error:
            raise RuleBroken(f"rank {rank}, {NAMES.get(code, 'arrive')}: {error!r}") from error
        return self._number(rank, process), more | self._reports(process)

    def _act(self, process: Process, rank: int, code: int) -> int:
        program, endpoint = process.engine, process.endpoint
        if code >= 0:
            kind, _, (what, incarnation) = self._wire[code]
            if kind == "order":
                if incarnation == process.spec["incarnation"]:
                    process.obey(what)
            else:
                self._arrive(process, what)
        elif code == SEND:
            target, content, _ = program.sends[program.sent]
            endpoint.send(target, content)
            program.sent += 1
        elif code == TRANSMIT:
            process.port.now_ns += LONG_NS
            endpoint.tick(process.port.now_ns)
            return self._transmitted(process)
        elif code == TAKE:
            process.port.deliver()
            self._check_contents(rank, program)
        elif code == FREEZE:
            process.stop()
        elif code == FINISH:
            process.finish()
        elif code == READY:
            process.look()
        elif process.stopped and not process.image_is_wanted():
            process.go_on()  # aborted meanwhile
        else:
            if code == ABORTED:
                process.meanwhile = [{"m": "abort", "epoch": process.runtime.imager.wanted}]
            process.capture(blocked=not program.can_send(), fails=code == FAIL, late=code == GIVE_UP)
            self._check_contents(rank, program)
        return 0

    def _arrive(self, process: Process, parts: tuple[bytes, ...]) -> None:
        if self.bounds.remote and len(parts) > 1:
            process.port.take_remote((parts[0], ModelRemote(parts[1], len(parts) == 2)))
        else:
            process.endpoint.receive(parts, process.port.now_ns)
        if not self.bounds.keeps_late_frames:
            process.lose_held()
        if int.from_bytes(parts[0][28:32], "little") > process.spec["incarnation"]:
            process.port.tell()
            raise RuleBroken("a zombie was told so, and goes on")

    def _transmitted(self, process: Process) -> int:
        more = 0
        for target, parts in process.endpoint.transmit(process.port.now_ns):
            frame = tuple(map(bytes, parts))
            assert frame[0][6] != NACK or self._nacks, "the peer's epoch would have to be in the key"
            more |= self._bit(("frame", target, frame), target, (frame, process.spec["incarnation"]))
            if self.bounds.remote and len(frame) == 2:
                gone = (*frame, b"cannot be read")
                more |= self._bit(("frame", target, gone), target, (gone, process.spec["incarnation"]))
        return more

    def _bit(self, key: tuple[str, int, Hashable], target: int, what: Any) -> int:
        bit = self._bits.get(key)
        if bit is None:
            bit = self._bits[key] = len(self._wire)
            self._wire.append((key[0], target, what))
            self._for[target] |= 1 << bit
            if key[0] != "frame":
                self._reliable |= 1 << bit
        return 1 << bit

    def _reports(self, process: Process) -> int:
        """The packets that the rank has sent to the controller, without `captured` and events, which are for people only."""
        more = 0
        rank, incarnation = process.spec["rank"], process.spec["incarnation"]
        for packet in process.control.sent:
            if packet["m"] in ("ready", "voted", "failed", "finished", "error"):
                key = ("report", rank, (incarnation, _without_reason(packet)))
                bit = self._bit(key, self.size, (rank, incarnation, packet))
                if packet["m"] == "voted":
                    self._image_of_bit[bit.bit_length() - 1] = int(packet["manifest"])
                more |= bit
        return more

    def _left(self, process: Process, code: int) -> int:
        rank, incarnation = process.spec["rank"], process.spec["incarnation"]
        key = ("report", rank, (incarnation, f"left {code}"))
        return self._bit(key, self.size, (rank, incarnation, {"m": "left", "code": code}))

    def _keep_image(self, process: Process, job: Any, image: Image) -> tuple[str, str]:
        key = (
            image.rank,
            image.incarnation,
            image.previous,
            image.epoch,
            _port_key(image),
            image.engine.key(),
        )
        number = self._image_numbers.setdefault(key, len(self.images))
        if number == len(self.images):
            self.images.append(image)
        return str(number), ""

    @property
    def _image_numbers(self) -> dict[Hashable, int]:
        found: dict[Hashable, int] = self.__dict__.setdefault("_numbers_of_images", {})
        return found

    # ---- the controller

    def _number_controller(self, controller: Controller) -> int:
        key = controller.key()
        found = self._c_numbers.get(key)
        if found is None:
            found = self._c_numbers[key] = len(self._c_things)
            self._c_things.append(controller)
            self._c_moves.append(self._controller_moves(controller))
            self._c_idle.append(0)
        return found

    def _controller_moves(self, controller: Controller) -> tuple[int, ...]:
        if controller.ended:
            return ()
        kills = range(KILLED, KILLED + self.size) if controller.kills else ()
        if controller.supervisor is None:
            return TAKE_OVER, *kills
        moves: list[int] = list(kills)
        moves += [NOTICE + rank for rank, _ in sorted(controller.unnoticed)]
        if controller.pending is not None:
            moves += [WRITTEN, UNWRITTEN] if controller.failures else [WRITTEN]
        elif controller.phase == "running":
            if controller.round is None and controller.highest < self.bounds.rounds:
                moves.append(REQUEST)
            elif controller.round is not None and self.bounds.timeouts:
                moves.append(TIME_OUT)
        if controller.phase == "running" and set(controller.supervisor.failed) > controller.supervisor.absent:
            moves.append(GO_BACK)
        if controller.deaths:
            moves += [DIE] if controller.pending is None else [DIE, DIE_DURABLE]
        return tuple(moves)

    def _control(self, number: int, code: int) -> tuple[int, int, bool, tuple[int, ...] | None]:
        """The controller's next state, the packets that it sends, whether it fences, the line that it launches."""
        found = self._c_known.get((number, code))
        if found is None:
            controller = self._c_things[number].clone()
            try:
                effects = self._direct(controller, code)
            except Exception as error:
                raise RuleBroken(f"controller: {error!r}") from error
            more, fenced, launch = self._effects(controller, effects)
            found = self._c_known[number, code] = (self._number_controller(controller), more, fenced, launch)
        return found

    def _direct(self, controller: Controller, code: int) -> Effects:
        if code >= NOTICE:
            rank = code - NOTICE
            return controller.notice(rank, controller.incarnation)
        if code >= KILLED:
            controller.kills -= 1
            controller.unnoticed |= {(code - KILLED, controller.incarnation)}
            return Effects()
        if code >= 0:
            if controller.supervisor is None:
                return Effects()
            rank, incarnation, packet = self._wire[code][2]
            if packet["m"] == "left":
                return controller.left(rank, incarnation, packet["code"])
            return controller.hear(rank, incarnation, packet)
        match code:
            case _ if code == REQUEST:
                return controller.request()
            case _ if code == TIME_OUT:
                return controller.time_out()
            case _ if code in (WRITTEN, UNWRITTEN):
                return controller.written(fails=code == UNWRITTEN)
            case _ if code == GO_BACK:
                return controller.go_back()
            case _ if code in (DIE, DIE_DURABLE):
                return controller.die(durable=code == DIE_DURABLE)
        return controller.take_over()

    def _effects(self, controller: Controller, effects: Effects) -> tuple[int, bool, tuple[int, ...] | None]:
        if effects.committing is not None:
            self._check_commit(controller, effects.committing)
        launch = None
        if effects.launch is not None:
            launch = self._launch(
                *effects.launch, tables=not self.bounds.late_tables, packets=effects.packets
            )
        more = 0
        for rank, incarnation, packet in effects.packets:
            if packet["m"] in self._untold:
                continue
            for target in range(self.size) if rank is None else (rank,):
                key = ("order", target, (incarnation, _without_reason(packet)))
                more |= self._bit(key, target, (packet, incarnation))
        return more, effects.fenced, launch

    def _launch(
        self,
        incarnation: int,
        line: tuple[int, tuple[int, ...]] | None,
        *,
        tables: bool,
        packets: Sequence[tuple[int | None, int, Mapping[str, Any]]],
    ) -> tuple[int, ...]:
        slots = []
        for rank in range(self.size):
            if line is not None and line[1][rank] == ABSENT:
                slots.append(DEAD)
                continue
            process = self._start(rank, incarnation, line)
            for _, _, packet in packets:
                if packet["m"] == "table" and tables:
                    process.obey(packet)
            process.endpoint.transmit(0)
            slots.append(self._number(rank, process))
        return tuple(slots)

    def _start(self, rank: int, incarnation: int, line: tuple[int, tuple[int, ...]] | None) -> Process:
        spec = rank_spec(rank, self.size, incarnation, None if line is None else line[0])
        image = None if line is None else self.images[line[1][rank]]
        script = self.bounds.scripts[rank]
        return Process.start(self.world, spec, image, lambda: Script(script, self.size), self._limits)

    # ---- what must hold

    def _expected(self, source: int, target: int) -> list[bytes]:
        return [content for to, content, _ in self.bounds.scripts[source] if to == target]

    def _check_contents(self, rank: int, program: Script) -> None:
        for source, messages in enumerate(program.received):
            if list(messages) != self._expected(source, rank)[: len(messages)]:
                raise RuleBroken(f"rank {rank} received {messages} from {source}")

    def _complete(self, process: Process) -> bool:
        program, rank = process.engine, process.spec["rank"]
        return program.sent == len(program.sends) and all(
            len(messages) == len(self._expected(source, rank)) or source in program.failed_ranks.known
            for source, messages in enumerate(program.received)
        )

    def _is_end(self, slots: tuple[int, ...], controller: int) -> bool:
        """All processes have finished and know it. Raises RuleBroken if one was released too early."""
        state = self._c_things[controller]
        if state.outcome is not None and (state.outcome.exit_code or state.outcome.kind != "finished"):
            raise RuleBroken(f"the job ends with {state.outcome}")
        if state.phase not in ("releasing", "ended") and not state.ended:
            return False
        for rank in range(self.size):
            process = self._things[rank][slots[rank]]
            if process is not None and not self._complete(process):
                raise RuleBroken(f"the end is declared ({state.phase}), and rank {rank} is not done")
        return True

    def _check_commit(self, controller: Controller, control: Any) -> None:
        images = [self.images[int(vote.manifest)] for vote in control.votes]
        absent = set(control.absent)
        if absent and not self.bounds.continues:
            raise RuleBroken(f"line {control.epoch} lacks {sorted(absent)}")
        if [image.rank for image in images] != [rank for rank in range(self.size) if rank not in absent]:
            raise RuleBroken(f"line {control.epoch} has images of {[image.rank for image in images]}")
        gone = [image.rank for image in images if (image.incarnation, image.epoch) in controller.removed]
        if gone:
            raise RuleBroken(f"line {control.epoch} is committed with removed images of {gone}")
        if any(control.epoch <= epoch for epoch, _ in controller.lines):
            raise RuleBroken(f"epoch {control.epoch} is committed after {controller.lines}")
        line = {vote.rank: int(vote.manifest) for vote in control.votes}
        reason = self._line_error(control.epoch, [line.get(rank, ABSENT) for rank in range(self.size)])
        if reason:
            raise RuleBroken(f"committed: {reason}")

    def _check_lines(self, fresh: int, mask: int) -> str | None:
        """Check every line that could commit with the image just taken."""
        new = [number for bit, number in self._image_of_bit.items() if fresh >> bit & 1]
        for number in new:
            image = self.images[number]
            there = [
                other
                for bit, other in self._image_of_bit.items()
                if mask >> bit & 1 and self.images[other].incarnation == image.incarnation
            ]
            for epoch in range(image.previous + 1, image.epoch + 1):
                line = {
                    self.images[other].rank: other
                    for other in there
                    if self.images[other].previous < epoch <= self.images[other].epoch
                }
                if len(line) == self.size:
                    reason = self._line_error(epoch, [line[rank] for rank in range(self.size)])
                    if reason:
                        return reason
        return None

    def _line_error(self, epoch: int, line: list[int]) -> str | None:
        key = (epoch, *line)
        if key in self._good_lines:
            return None
        images = {rank: self.images[number] for rank, number in enumerate(line) if number != ABSENT}
        reason = link_error({rank: image.port.vectors() for rank, image in images.items()})
        reason = reason or self._restore(epoch, line)
        if reason is None:
            self._good_lines.add(key)
            return None
        return f"line {epoch}: {reason}"

    def _restore(self, epoch: int, line: list[int]) -> str | None:
        """Restart this line as a later incarnation on a perfect network; None if it ends as it should."""
        last = max(self.images[number].incarnation for number in line if number != ABSENT)
        present = [rank for rank, number in enumerate(line) if number != ABSENT]
        absent = [rank for rank, number in enumerate(line) if number == ABSENT]
        try:
            processes = {rank: self._start(rank, last + 1, (epoch, tuple(line))) for rank in present}
        except StateMismatch as error:
            return f"it cannot be restored: {error}"
        peers = {str(rank): [last + 1, "model"] for rank in present}
        for process in processes.values():
            if absent:
                process.obey({"m": "failed", "ranks": absent})
            process.obey({"m": "table", "peers": peers})
        for _ in range(30):
            for rank, process in processes.items():
                endpoint, program = process.endpoint, process.engine
                while program.can_send():
                    endpoint.send(*program.sends[program.sent][:2])
                    program.sent += 1
                process.port.now_ns += LONG_NS
                endpoint.tick(process.port.now_ns)
                process.port.deliver()
                try:
                    self._check_contents(rank, program)
                except RuleBroken as broken:
                    return f"restored, {broken}"
                for target, parts in endpoint.transmit(process.port.now_ns):
                    processes[target].endpoint.receive(
                        tuple(map(bytes, parts)), processes[target].port.now_ns
                    )
            if all(self._complete(process) and process.endpoint.idle() for process in processes.values()):
                return None
        received = {rank: process.engine.received for rank, process in processes.items()}
        return f"restored and run, it ends with {received}"

    # ---- can the end be reached?

    def _ends(self, slots: tuple[int, ...], controller: int, packets: int) -> None:
        """RuleBroken unless the fair run from here, with every frame lost, ends as it should."""
        visited = [(slots, controller, packets)]
        state = (slots[: self.size], controller, packets)
        for _ in range(60):
            if state in self._ending or self._is_end(state[0], state[1]):
                self._ending.update(visited)
                return
            visited.append(state)
            state = self._sweep(*state)
        raise RuleBroken("the end cannot be reached any more: " + self._stuck(*state))

    def _stuck(self, slots: tuple[int, ...], controller: int, packets: int) -> str:
        ranks = []
        for rank, local in enumerate(slots):
            process = self._things[rank][local]
            ranks.append(
                "dead" if process is None else f"{process.engine.key()} of epoch {process.endpoint.epoch}"
            )
        return f"{self._c_things[controller].phase}, {ranks}"

    def _sweep(self, slots: tuple[int, ...], number: int, wires: int) -> State:
        """One step of each process, without faults; packets of the control channel are not lost."""
        now = list(slots)

        def control(code: int) -> None:
            nonlocal number, wires
            number, more, fenced, launch = self._control(number, code)
            wires |= more
            now[:] = self._slots_after(tuple(now), code, fenced, launch)[: self.size]

        def step(rank: int, code: int) -> None:
            nonlocal wires
            local = now[rank]
            if local == DEAD:
                return
            result = self._known[rank].get((local, code))
            if result is None:
                result = self._known[rank][local, code] = self._apply(rank, local, code)
            now[rank] = result[0]
            wires |= result[1]

        here = self._c_things[number]
        if here.supervisor is None:
            control(TAKE_OVER)
        elif here.pending is not None:
            control(WRITTEN)
        for rank, incarnation in sorted(here.unnoticed):
            if incarnation == self._c_things[number].incarnation:
                control(NOTICE + rank)
        for rank in range(self.size):
            for bit in bits_of(wires & self._for[rank] & ~self._idle[rank][now[rank]]):
                step(rank, bit)
            for code in (READY, CAPTURE, TAKE, SEND, SEND, SEND, SEND, FINISH, TRANSMIT):
                if code in self._moves[rank][now[rank]]:
                    step(rank, code)
            for other in range(self.size):
                for bit in bits_of(wires & self._for[other] & ~self._idle[other][now[other]]):
                    step(other, bit)
        for bit in bits_of(wires & self._for[self.size] & ~self._c_idle[number]):
            if self._c_things[number].supervisor is not None and not self._c_things[number].ended:
                control(bit)
        return tuple(now), number, wires & self._reliable


def _without_reason(packet: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in packet.items() if name != "reason"}, sort_keys=True)


def bits_of(mask: int) -> list[int]:
    """Numbers of the bits that are set, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        mask ^= low
        found.append(low.bit_length() - 1)
    return found


def _port_key(image: Image) -> tuple[object, ...]:
    def plain(message: Any) -> bytes:
        return b"".join(map(bytes, message)) if isinstance(message, tuple) else bytes(message)

    return tuple(
        (peer, s.tx, s.base, s.rx, s.unconsumed_bytes, tuple(map(plain, s.messages)))
        for peer, s in image.port.links.items()
    )
