"""A job of many endpoints on a lossy network under a virtual clock: everything follows from a seed.

For tests of this project and of its users' programs. The shipped code (Endpoint and the modules it uses) runs unchanged;
the network, time, the coordinator of checkpoints and the death of processes are simulated.

    network       loses, duplicates, delays, reorders and corrupts frames, and partitions ranks
    processes     make progress late; freeze for an image and thaw later; take the image some time after
                  it is due; write an image that never becomes a vote
    coordinator   starts rounds (commands get lost too: stamps on traffic have to spread them), aborts some rounds,
                  commits a line once every rank has voted, checks every link's vectors, keeps the last line
    crashes       a rank dies; some time later all ranks restart from the last line as the next incarnation.
                  Processes of the old incarnation may go on for some time as zombies
    kernels       acknowledge what comes to their host, whatever its processes do; a `LinkWatch` of each process looks at
                  them, and must not say that a link is down whose kernel has answered within `give_up_ns`

A *line* is a recovery line: one image of every rank. The number of an aborted round is *burnt*: never used again. A
program is a `Program`: it runs as far as it can without waiting. A simulation is done when every program is
finished and every message is acknowledged. `run` is the phase with faults; `finish` switches them off and gives a
bounded time until the simulation must be done.

Only virtual time passes here, and every choice comes from one random generator in the order of events: two runs with the
same seed and options are the same, byte for byte.

This module is long because it is one simulated network with all its faults, for tests only.
"""

from __future__ import annotations

import errno
import heapq
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol, Self

from ckpt.transport.protocol.endpoint import Endpoint, EndpointConfig
from ckpt.transport.protocol.events import Event, ImageDue, LinkDown, LinkLate, Zombie
from ckpt.transport.protocol.state import Buffer, PortState, link_error
from ckpt.transport.protocol.watch import LinkWatch, TcpState
from ckpt.transport.records import dataclass, field, replace

MS = 1_000_000
JOB = 0x5EED
GIVE_UP_NS = 20 * MS
MOST_EVENTS = 500_000


class SimulationError(AssertionError):
    """A rule of the protocol was broken; the text names the rule, the seed and the latest events."""


class Program(Protocol):
    """The program of a simulated rank; a value that an image can copy."""

    def deliver(self, source: int, messages: list[Buffer]) -> None:
        """Put messages into the mailbox."""

    def run(self, port: Endpoint) -> None:
        """Go on until a message is missing. The program calls `port.send`, and `port.consumed` for each message that it
        takes from its mailbox."""

    def copy(self) -> Self:
        """Return an independent copy, which an image keeps."""

    @property
    def finished(self) -> bool:
        """Has the program nothing left to do?"""


@dataclass(frozen=True)
class Faults:
    """Which faults happen. Probabilities per frame, per image or per round; times in virtual nanoseconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay_ns: int = MS // 20
    late_ns: int = 5 * MS
    """A reordered frame is late by up to this."""
    partition_every_ns: int = 0
    partition_ns: int = 5 * MS
    crash_every_ns: int = 0
    zombies: float = 0.0
    round_every_ns: int = 0
    command_loss: float = 0.0
    burn: float = 0.0
    """Probability that one rank's image in a round gets no vote, so that the round is aborted."""
    slow_image: float = 0.0
    """Probability that an image is taken only some time after it is due."""
    frozen: float = 0.0
    """Probability that the port stays frozen for some time at an image."""
    pump_ns: int = 0
    """A process handles arrived frames up to this late."""
    undelivered: float = 0.0
    """Probability that a round of progress takes frames but delivers their messages only in the next round."""

    @classmethod
    def drawn(cls, random: Random) -> Faults:
        """Draw the settings for one run from `random`; some faults are switched off in it."""

        def maybe(most: float) -> float:
            return round(random.uniform(0, most), 3) if random.random() < 0.6 else 0.0

        def every(low_ms: int, high_ms: int, chance: float) -> int:
            return random.randint(low_ms, high_ms) * MS if random.random() < chance else 0

        return cls(
            loss=maybe(0.3),
            duplicate=maybe(0.5),
            reorder=maybe(0.5),
            corrupt=maybe(0.1),
            late_ns=random.choice([1, 5, 20]) * MS,
            partition_every_ns=every(10, 60, 0.3),
            crash_every_ns=every(8, 100, 0.6),
            zombies=maybe(1.0),
            round_every_ns=every(1, 15, 0.9),
            command_loss=maybe(0.9),
            burn=maybe(0.3),
            slow_image=maybe(0.8),
            frozen=maybe(0.8),
            pump_ns=random.choice([0, 0, MS // 10, 2 * MS]),
            undelivered=maybe(0.5),
        )


@dataclass(frozen=True)
class Image:
    """The image of one rank: it is valid for the epochs (previous, epoch]."""

    previous: int
    epoch: int
    port: PortState
    program: Program


@dataclass
class Process:
    """One incarnation of one rank."""

    endpoint: Endpoint
    program: Program
    watch: LinkWatch
    alive: bool = True
    inputs: list[tuple[Buffer, ...]] = field(default_factory=list)
    wake_ns: int = -1
    due_epoch: int = 0


LIMITS: Mapping[str, int | bool] = {
    "checksum_payload": True,
    "large_bytes": 200,
    "fragment_bytes": 128,
    "coalesce_bytes": 400,
    "credit_bytes": 4000,
    "initial_credit_bytes": 2000,
    "hungry_credit_bytes": 500,
    "burst_bytes": 2000,
    "pipeline_bytes": 1000,
    "held_bytes": 4000,
    "ack_delay_ns": MS // 5,
    "rto_initial_ns": 2 * MS,
    "rto_min_ns": MS,
    "rto_max_ns": 40 * MS,
    "probe_ns": 2 * MS,
    "probe_max_ns": 20 * MS,
}
"""Small limits for `EndpointConfig`, so that a short run reaches all of them."""


class Simulation:
    """One simulated job. `make(rank)` returns the program of a rank in its initial state."""

    def __init__(
        self,
        size: int,
        make: Callable[[int], Program],
        *,
        seed: int,
        faults: Faults,
        limits: Mapping[str, int | bool] = LIMITS,
        endpoint: type[Endpoint] = Endpoint,
        line: Mapping[int, Image] | None = None,
    ) -> None:
        """`endpoint`: the class to run (mutation tests pass a broken one). `line`: start from these images."""
        self.size = size
        self.seed = seed
        self.faults = faults
        self.now_ns = 0
        self.events = 0
        self.crashes = 0
        self.commits = 0
        self.line: dict[int, Image] | None = None if line is None else dict(line)
        self.on_commit: Callable[[int, dict[int, Image]], None] = lambda epoch, line: None
        self.log: deque[str] = deque(maxlen=60)
        self._make_program = make
        self._limits = dict(limits)
        self._endpoint_class = endpoint
        self._random = Random(seed)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0
        self._incarnation = max((image.port.incarnation for image in (line or {}).values()), default=-1)
        self._epoch = max((image.epoch for image in (line or {}).values()), default=0)
        self._line_epoch = self._epoch
        self._votes: dict[int, Image] = {}
        self._burnt = -1
        self._partitioned: set[int] = set()
        self._partitioned_ns = 0
        self.links_down: list[tuple[int, Event]] = []
        """Who has said so, and what (LinkDown, LinkUp)."""
        self._faults_off = False
        self._restarting = False
        self.processes: list[Process] = []
        self.zombies: list[Process] = []
        self._start()
        for every_ns, act in (
            (faults.round_every_ns, self._round),
            (faults.crash_every_ns, self._crash),
            (faults.partition_every_ns, self._partition),
        ):
            if every_ns:
                self._later(self._about(every_ns), act)

    # ---- time

    def _later(self, delay_ns: int, act: Callable[..., None], *args: object) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ns + delay_ns, self._count, act, args))

    def _about(self, mean_ns: int) -> int:
        return self._random.randint(mean_ns // 2, mean_ns * 3 // 2)

    def _note(self, text: str) -> None:
        self.log.append(f"{self.now_ns / MS:10.3f} ms  {text}")

    def fail(self, reason: str) -> None:
        """Raise SimulationError with the reason, the seed, the faults and the latest events."""
        log = "\n".join(self.log)
        raise SimulationError(f"{reason}\nseed {self.seed}, {self.faults}\nlatest events:\n{log}")

    def run(self, until_ns: int) -> None:
        """Run with faults for `until_ns` of virtual time, or until the simulation is done."""
        self._run(self.now_ns + until_ns)

    def finish(self, within_ns: int = 20_000 * MS) -> None:
        """Run without faults. Raises SimulationError unless the simulation is done within this virtual time."""
        self._faults_off = True
        self._partitioned.clear()
        self._run(self.now_ns + within_ns)
        if not self.done():
            self.fail("stuck\n" + "\n".join(map(self._describe, range(self.size))))

    def _describe(self, rank: int) -> str:
        process = self.processes[rank]
        endpoint = process.endpoint
        vectors = endpoint.snapshot().vectors()
        return f"rank {rank}: finished {process.program.finished}, {vectors}, epoch {endpoint.epoch}"

    def _run(self, end_ns: int) -> None:
        heap = self._heap
        while heap and not self.done():
            if heap[0][0] > end_ns:
                self.now_ns = end_ns
                return
            self.now_ns, _, act, args = heapq.heappop(heap)
            self.events += 1
            if self.events > MOST_EVENTS:
                self.fail(f"{MOST_EVENTS} events and no end")
            act(*args)

    def done(self) -> bool:
        """Is every program finished and every message acknowledged?"""
        return not self._restarting and all(p.program.finished and p.endpoint.idle() for p in self.processes)

    # ---- processes

    def _start(self) -> None:
        """Start all ranks from the last line, or from the beginning, as the next incarnation."""
        self._incarnation += 1
        self._restarting = False
        self._votes = {}
        self.processes = []
        for rank in range(self.size):
            image = None if self.line is None else self.line[rank]
            config = EndpointConfig(
                JOB,
                rank,
                self.size,
                self._incarnation,
                self._line_epoch,
                **self._limits,  # type: ignore[arg-type]
            )
            port = None if image is None else replace_links(image.port)
            program = self._make_program(rank) if image is None else image.program.copy()
            self.processes.append(Process(self._endpoint_class(config, port), program, LinkWatch(GIVE_UP_NS)))
        for process in self.processes:
            for peer in range(self.size):
                self._later(self._about(MS // 2), self._meet, process, peer, self._incarnation)
            self._wake(process, 0)

    def _meet(self, process: Process, peer: int, incarnation: int) -> None:
        process.watch.forget(peer)
        process.endpoint.set_peer(peer, incarnation, self.now_ns)
        self._wake(process, 0)

    def _wake(self, process: Process, delay_ns: int) -> None:
        at_ns = self.now_ns + delay_ns
        if process.wake_ns < 0 or at_ns < process.wake_ns:
            process.wake_ns = at_ns
            self._later(delay_ns, self._pump, process, at_ns)

    def _pump(self, process: Process, at_ns: int) -> None:
        """One round of a process's progress."""
        if not process.alive or process.wake_ns != at_ns:
            return
        process.wake_ns = -1
        endpoint, program, now_ns = process.endpoint, process.program, self.now_ns
        inputs, process.inputs = process.inputs, []
        for parts in inputs:
            endpoint.receive(parts, now_ns)
        endpoint.tick(now_ns)
        undelivered = not self._faults_off and self._random.random() < self.faults.undelivered
        if undelivered:
            self._wake(process, MS)
        elif not endpoint.frozen:
            for source, messages in endpoint.delivered():
                program.deliver(source, messages)
            program.run(endpoint)
            endpoint.hungry(not program.finished, now_ns)
        for event in endpoint.events():
            if isinstance(event, ImageDue):
                self._image_due(process, event.epoch)
            elif isinstance(event, Zombie):
                self._note(f"rank {endpoint.config.rank}.{endpoint.config.incarnation} knows it is a zombie")
                process.alive = False
            elif isinstance(event, LinkLate):
                process.watch.late(event.rank, event.silent_ns, now_ns)
        self._look(process)
        for target, parts in endpoint.transmit(now_ns):
            self._carry(endpoint.config.rank, target, parts)
        if endpoint.flush_due:
            self._wake(process, 0)
        for deadline_ns in (endpoint.deadline_ns(), process.watch.deadline_ns()):
            if deadline_ns is not None:
                self._wake(process, max(deadline_ns - now_ns, 0))

    # ---- kernels

    def _look(self, process: Process) -> None:
        """What the kernels say of the connections of which a process wants to know."""
        watch, now_ns = process.watch, self.now_ns
        for peer in watch.due(now_ns):
            silent_ns = self._silent_ns(process, peer)
            host_answers, has_peer = silent_ns == 0, self.processes[peer].alive
            tcp = TcpState(0 if host_answers else 1, 0, silent_ns) if has_peer else None
            told = watch.looked(peer, tcp, now_ns)
            if told is True:
                number = (
                    None
                    if has_peer and host_answers
                    else errno.ECONNREFUSED
                    if host_answers
                    else errno.ETIMEDOUT
                )
                told = watch.probed(peer, number, now_ns) or False
            if isinstance(told, Event):
                if isinstance(told, LinkDown) and has_peer and silent_ns < GIVE_UP_NS:
                    self.fail(f"{told}, whose kernel answered {silent_ns} ns ago")
                self.links_down.append((process.endpoint.config.rank, told))

    def _silent_ns(self, process: Process, peer: int) -> int:
        """For how long the kernel of `peer` has not answered this process."""
        is_cut = (process.endpoint.config.rank in self._partitioned) != (peer in self._partitioned)
        return self.now_ns - self._partitioned_ns if is_cut else 0

    # ---- network

    def _carry(self, source: int, target: int, parts: tuple[Buffer, ...]) -> None:
        faults, chance = self.faults, self._random.random
        if self._faults_off:
            self._later(faults.delay_ns, self._arrive, target, parts)
            return
        if (source in self._partitioned) != (target in self._partitioned):
            return
        copies = 1
        if faults.loss and chance() < faults.loss:
            copies -= 1
        if faults.duplicate and chance() < faults.duplicate:
            copies += 1
        for _ in range(copies):
            delay_ns = faults.delay_ns
            if faults.reorder and chance() < faults.reorder:
                delay_ns += self._random.randint(0, faults.late_ns)
            damaged = parts
            if faults.corrupt and chance() < faults.corrupt:
                damaged = corrupted(parts, self._random)
            self._later(delay_ns, self._arrive, target, damaged)

    def _arrive(self, target: int, parts: tuple[Buffer, ...]) -> None:
        late_ns = 0 if self._faults_off else self.faults.pump_ns
        processes = [self.processes[target]]
        processes += [z for z in self.zombies if z.alive and z.endpoint.config.rank == target]
        for process in processes:
            if process.alive:
                process.inputs.append(parts)
                self._wake(process, self._random.randint(0, late_ns) if late_ns else 0)

    def _partition(self) -> None:
        if self._faults_off:
            return
        self._partitioned = {rank for rank in range(self.size) if self._random.random() < 0.5}
        self._partitioned_ns = self.now_ns
        self._note(f"partition {sorted(self._partitioned)}")
        self._later(self._about(self.faults.partition_ns), self._partitioned.clear)
        self._later(self._about(self.faults.partition_every_ns), self._partition)

    # ---- checkpoints

    def _round(self) -> None:
        """Start a round; an open round is aborted, and its number is burnt."""
        if self._faults_off:
            return
        if not self._restarting:
            self._epoch += 1 if self._random.random() < 0.8 else self._random.randint(2, 4)
            self._votes = {}
            self._burnt = (
                self._random.randrange(self.size) if self._random.random() < self.faults.burn else -1
            )
            self._note(f"round {self._epoch}" + (f", rank {self._burnt} fails" if self._burnt >= 0 else ""))
            for process in self.processes:
                if self._random.random() >= self.faults.command_loss:
                    self._later(self._random.randint(0, 2 * MS), self._image_due, process, self._epoch)
        self._later(self._about(self.faults.round_every_ns), self._round)

    def _image_due(self, process: Process, epoch: int) -> None:
        if not process.alive or epoch <= max(process.endpoint.epoch, process.due_epoch):
            return
        process.due_epoch = epoch
        slow = not self._faults_off and self._random.random() < self.faults.slow_image
        self._later(self._random.randint(0, 4 * MS) if slow else 0, self._take_image, process)

    def _take_image(self, process: Process) -> None:
        endpoint = process.endpoint
        epoch, previous = process.due_epoch, endpoint.epoch
        if not process.alive or epoch <= previous:
            return
        if endpoint.frozen:
            self._later(MS, self._take_image, process)
            return
        rank = endpoint.config.rank
        endpoint.freeze()
        image = Image(previous, epoch, endpoint.snapshot(), process.program.copy())
        frozen = not self._faults_off and self._random.random() < self.faults.frozen
        self._later(self._random.randint(0, 5 * MS) if frozen else 0, self._thaw, process)
        endpoint.advance(epoch, self.now_ns)
        self._note(f"rank {rank} image ({previous}, {epoch}] {image.port.vectors()}")
        self._vote(process, image)

    def _thaw(self, process: Process) -> None:
        if process.alive:
            process.endpoint.thaw(self.now_ns)
            self._wake(process, 0)

    def _vote(self, process: Process, image: Image) -> None:
        rank = process.endpoint.config.rank
        if process is not self.processes[rank] or rank == self._burnt or self._restarting:
            return
        if not image.previous < self._epoch <= image.epoch:
            return
        self._votes[rank] = image
        if len(self._votes) < self.size or self._epoch <= self._line_epoch:
            return
        line, self._votes = self._votes, {}
        reason = link_error({rank: image.port.vectors() for rank, image in line.items()})
        if reason:
            self.fail(f"line {self._epoch} is inconsistent: {reason}")
        self.line = line
        self._line_epoch = self._epoch
        self.commits += 1
        self._note(f"committed {self._epoch}")
        self.on_commit(self._epoch, line)

    # ---- death

    def _crash(self) -> None:
        if self._faults_off:
            return
        if not self._restarting:
            self.crashes += 1
            victim = self._random.randrange(self.size)
            self._note(f"rank {victim} dies")
            self.processes[victim].alive = False
            self._restarting = True
            self._later(self._random.randint(0, 10 * MS), self._restart)
        self._later(self._about(self.faults.crash_every_ns), self._crash)

    def _restart(self) -> None:
        for process in self.processes:
            if process.alive and self._random.random() < self.faults.zombies:
                self.zombies.append(process)
                self._later(self._random.randint(0, 50 * MS), self._end, process)
            else:
                process.alive = False
        self._note(f"restart from line {self._line_epoch if self.line else 'none'}")
        self._epoch += 1  # the open round's number is burnt
        self._start()

    def _end(self, process: Process) -> None:
        process.alive = False
        self.zombies.remove(process)


def replace_links(state: PortState) -> PortState:
    """An independent copy of a saved port."""
    links = {peer: replace(link, messages=list(link.messages)) for peer, link in state.links.items()}
    return replace(state, links=links)


def corrupted(parts: tuple[Buffer, ...], random: Random) -> tuple[Buffer, ...]:
    """The frame with a bit flipped, its end cut off, or a part missing or added."""
    which = random.randrange(len(parts))
    part = bytearray(parts[which])
    damage = random.randrange(4)
    if damage == 0 and part:
        del part[random.randrange(len(part)) :]
    elif damage == 1:
        return parts[:which] + parts[which + 1 :]
    elif damage == 2:
        return (*parts, bytes(random.randrange(100)))
    elif part:
        part[random.randrange(len(part))] ^= 1 << random.randrange(8)
    damaged = list(parts)
    damaged[which] = bytes(part)
    return tuple(damaged)
