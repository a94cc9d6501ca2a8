"""A whole job in virtual time: the production code of ranks, controller and store, under faults from a seed.

    rank          Runtime, Imager, Taker, Endpoint (see `tests.model.process`); program: `scripted`
    controller    Supervisor, Coordinator; service's few lines per action are repeated here
    store         ImageWriter, ImageReader, commit_line, remove_burnt, remove_old_lines, on a simulated disk

    network       loses, duplicates, delays, reorders, corrupts frames; partitions of any shape
    processes     read their port late, take images late, stay frozen for a while, have no memory or disk
    disk          a call of an image or of a commit fails: EIO, ENOSPC, a short write, a failing sync
    deaths        of a rank, of the agent (with all ranks), of the controller (the ranks go on alone until the next one), of
                  the host (all processes at once; of the data that no sync has covered, any subset is left)
    zombies       processes that fencing missed go on for a while

Checked: the properties of `ckpt.transport.protocol.simulation`; the vectors of every committed line, read back from the
disk, are consistent, and a run from the line on a perfect network gives the result of the undisturbed program; no number is
used twice; nothing is announced before it is durable; a committed line exists after every death; the job ends with the
undisturbed result, within bounded virtual time after the last fault.

Every choice comes from one generator, in the order of events: seed and options repeat a run exactly. `trace` is a digest of
all events.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import heapq
import os
import pickle
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Self
from unittest import mock

from ckpt.controller.errors import EXIT_DAMAGED
from ckpt.controller.service.commit import commit_line, remove_burnt, remove_old_lines
from ckpt.controller.supervision import messages, packet_events
from ckpt.controller.supervision.events import (
    Adopt,
    AgentLost,
    Begin,
    CheckpointRequested,
    ControlFailed,
    ControlWritten,
    Died,
    Discard,
    End,
    Fence,
    Fenced,
    Launch,
    Log,
    Send,
    Terminate,
    Tick,
    WriteControl,
)
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.mpi.base.handlers import NoHandlers
from ckpt.store import (
    ImageReader,
    ImageWriter,
    JobDirectory,
    StoreError,
    list_epochs,
    list_lines,
    load_control,
)
from ckpt.store.disk.simulated import SHORT, SimulatedDisk
from ckpt.store.disk.simulated import Faults as DiskFaults
from ckpt.store.job.directory import image_directory
from ckpt.store.job.journal_files import open_journal
from ckpt.store.job.lock import LockRecord
from ckpt.transport import records
from ckpt.transport.errors import FrameError
from ckpt.transport.protocol.frames import open_frame
from ckpt.transport.protocol.simulation import LIMITS, MS, Faults, corrupted
from ckpt.transport.protocol.state import Buffer, link_error
from tests.model.process import JOB, Image, InMemory, Left, Process, rank_spec
from tests.model.world import World, without_stacks
from tests.simulation.scripted import Op, Scripted, scripts, undisturbed

MOST_EVENTS = 400_000
SIZES = (2, 2, 2, 3, 3, 4, 6, 8)


class SimulationError(AssertionError):
    """A rule was broken; the text says where, with the seed, the options and the latest events."""


@dataclass(frozen=True)
class JobFaults:
    """The rates of faults, besides the network's `Faults`. Mean times in virtual nanoseconds, 0: never."""

    network: Faults
    agent_every_ns: int = 0
    controller_every_ns: int = 0
    host_every_ns: int = 0
    disk: float = 0.0
    """Chance that a call on the disk fails, per image and per commit."""
    no_memory: float = 0.0
    """Chance that an image cannot be taken."""
    round_timeout_ns: int = 120_000 * MS
    control_delay_ns: int = MS // 10
    keep: int = 2
    slow_commit: bool = False
    """Others go on while the control file is written (in production it is written at once), up to a fence."""
    asks: bool = True
    """Ranks are asked before a round, as in production."""

    @classmethod
    def drawn(cls, random: Random) -> JobFaults:
        """Random settings for one run; some kinds of faults are off."""

        def every(low_ms: int, high_ms: int, chance: float) -> int:
            return random.randint(low_ms, high_ms) * MS if random.random() < chance else 0

        network = Faults.drawn(random)
        if random.random() < 0.1:
            network = records.replace(network, delay_ns=5 * MS)
        return cls(
            network=network,
            agent_every_ns=every(30, 150, 0.2),
            controller_every_ns=every(15, 100, 0.4),
            host_every_ns=every(20, 150, 0.4),
            disk=random.choice([0.0, 0.0, 0.1, 0.4]),
            no_memory=random.choice([0.0, 0.0, 0.0, 0.2]),
            round_timeout_ns=random.choice([120_000, 120_000, 20]) * MS,
            control_delay_ns=random.choice([MS // 20, MS, 4 * MS]),
            keep=random.choice([2, 2, 3]),
            slow_commit=random.random() < 0.3,
            asks=random.random() < 0.7,
        )


class Program(InMemory, Scripted):
    """The scripted program as the runtime's engine: its mailbox is fed, and it runs when it is asked to."""

    endpoint: Any = None
    predefined: Mapping[str, Any] = {}
    """No communicators (see `Engine`)."""
    handlers = NoHandlers()
    spawns = None
    """No processes are started."""

    def attend(self) -> None:
        """There are no handlers."""

    def attach(self, endpoint: Any) -> None:
        self.endpoint = endpoint

    def on_messages(self, source: int, messages: list[Buffer]) -> None:  # type: ignore[override]
        self.deliver(source, messages)

    def copy(self) -> Self:
        new = super().copy()
        new.rank = self.rank
        return new

    def __getstate__(self) -> tuple[object, ...]:
        box = {source: [bytes(message) for message in box] for source, box in self.mailbox.items()}
        return self.rank, self.at, self.digest, box

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.rank, self.at, self.digest, box = state
        self.mailbox = {source: deque(messages) for source, messages in box.items()}


@dataclass
class Rank:
    """One process, and its channel to the controller."""

    process: Process
    alive: bool = True
    wake_ns: int = -1
    inputs: list[tuple[Buffer, ...]] = dataclasses.field(default_factory=list)
    orders: deque[Mapping[str, Any]] = dataclasses.field(default_factory=deque)
    reports: deque[tuple[Mapping[str, Any], int]] = dataclasses.field(default_factory=deque)
    """On their way, in order, each with the generation of the controller that it is for."""
    capturing: bool = False


class Lock:
    """The controller's lock: always held here. Its generation goes into control files. Each commit takes the job over
    again."""

    record = LockRecord()

    def __init__(self, job: JobDirectory) -> None:
        self.journal = open_journal(job.path, job.key, job.job_id, job.fs, floor=0, contact="")
        assert self.journal is not None
        self.generation = self.journal.position.generation

    def check(self) -> None:
        """Still held."""


@cache
def _job_directory(size: int) -> JobDirectory:
    """A real job directory of this size, made once; runs use it on simulated disks of their own."""
    root = Path(tempfile.mkdtemp(prefix="simulated-job-"))
    with mock.patch("os.urandom", Random(size).randbytes):  # its id and key are the same in every process
        return JobDirectory.create(root / "job", command=["app.py"], size=size)


class JobSimulation:
    """One job; see the module. `messages`: how long the program is."""

    def __init__(self, seed: int, world: World, *, messages: int = 40) -> None:
        self.seed = seed
        self.world = world
        random = self._random = Random(seed)
        self.size = random.choice(SIZES)
        self.faults = JobFaults.drawn(random)
        self.work: list[list[Op]] = scripts(self.size, messages, seed)
        self.expected = undisturbed(self.work)
        self.now_ns = 0
        self.faults_off = False
        self.events = self.deaths = self.commits = self.restored = self.adoptions = 0
        self._is_adoptable = False  # the ranks of the controller that has died
        self.log: deque[str] = deque(maxlen=80)
        self._trace = hashlib.blake2b(digest_size=16)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0
        self._cut: set[int] = set()
        self.ranks: list[Rank] = []
        self.zombies: list[Rank] = []
        self.supervisor: Any = None
        self.end: End | None = None
        self.history: list[dict[str, Any]] = []
        self.incarnation = -1
        self._generation = 0
        self._committing: WriteControl | None = None
        self._ticking = -1
        self._promised: dict[int, bytes] = {}
        """committed epoch -> digest of its control file"""
        names = ["", "control", "journal", "images", *(image_directory(rank) for rank in range(self.size))]
        base = _job_directory(self.size)
        self._root = base.path
        self._directories = [os.path.join(base.path, name).rstrip("/") for name in names]
        self._use(SimulatedDisk(self._directories))
        self._begin()
        for every_ns, act in (
            (self.faults.network.round_every_ns, self._request),
            (self.faults.network.crash_every_ns, self._kill_rank),
            (self.faults.network.partition_every_ns, self._partition),
            (self.faults.agent_every_ns, self._lose_agent),
            (self.faults.controller_every_ns, self._lose_controller),
            (self.faults.host_every_ns, self._lose_host),
        ):
            if every_ns:
                self._later(self._about(every_ns), self._again, every_ns, act)

    # ---- time

    def _later(self, delay_ns: int, act: Callable[..., None], *args: object) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ns + delay_ns, self._count, act, args))

    def _about(self, mean_ns: int) -> int:
        return self._random.randint(mean_ns // 2, mean_ns * 3 // 2)

    def _again(self, every_ns: int, act: Callable[[], None]) -> None:
        if not self.faults_off:
            act()
            self._later(self._about(every_ns), self._again, every_ns, act)

    def _chance(self, probability: float) -> bool:
        return not self.faults_off and bool(probability) and self._random.random() < probability

    def _note(self, text: str) -> None:
        text = text.replace(self._root, "JOB")  # where it really lies is another place in every process
        self.log.append(f"{self.now_ns / MS:10.3f} ms  {text}")
        self._trace.update(f"{self.now_ns} {text}".encode())

    @property
    def trace(self) -> str:
        """Digest of all that happened."""
        return self._trace.hexdigest()

    def fail(self, reason: str) -> None:
        """Raise SimulationError with what is needed to understand and repeat it."""
        log = "\n".join(self.log)
        raise SimulationError(f"{reason}\nseed {self.seed}, {self.faults}\nlatest events:\n{log}")

    def run(self, faults_ns: int = 300 * MS, end_within_ns: int = 40_000 * MS) -> None:
        """Run with faults for a time, then without faults until the end, which has to come."""
        with without_stacks():
            self._run(faults_ns)
            self.faults_off = True
            self._cut.clear()
            self._run(self.now_ns + end_within_ns)
        if self.end is None:
            self.fail(f"stuck\n{self.supervisor and self.supervisor.phase}\n{self._state()}")
        assert self.end is not None
        if self.end.exit_code or self.end.kind != "finished":
            self.fail(f"the job ends with {self.end}")
        found = [rank.process.engine.digest for rank in self.ranks]
        if found != self.expected or not all(rank.process.engine.finished for rank in self.ranks):
            self.fail(f"the results are {found}, expected {self.expected}")

    def _state(self) -> str:
        return "\n".join(
            f"rank {number}: alive {rank.alive}, at {rank.process.engine.at}/{len(self.work[number])}, "
            f"frozen {rank.process.endpoint.frozen}, wants {rank.process.runtime.imager.wanted}, "
            f"{rank.process.endpoint.snapshot().vectors()}"
            for number, rank in enumerate(self.ranks)
        )

    def _run(self, end_ns: int) -> None:
        heap = self._heap
        while heap and self.end is None:
            if heap[0][0] > end_ns:
                self.now_ns = end_ns
                return
            self.now_ns, _, act, args = heapq.heappop(heap)
            self.events += 1
            if self.events > MOST_EVENTS:
                self.fail(f"{MOST_EVENTS} events and no end")
            act(*args)

    # ---- the disk

    def _use(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.job = records.replace(_job_directory(self.size), fs=disk)

    def _strike(self) -> None:
        """Perhaps one of the next calls on the disk fails."""
        self.disk.faults = DiskFaults()
        if self._chance(self.faults.disk):
            error = self._random.choice([errno.EIO, errno.ENOSPC, SHORT])
            forever = error != SHORT and self._random.random() < 0.3
            self.disk.faults = DiskFaults(at=self._random.randrange(16), error=error, forever=forever)

    def _write(self, process: Process, job: Any, image: Image) -> tuple[str, str] | None:
        """The work of the image child: write the image of port and program to the disk."""
        rank = process.spec["rank"]
        self._note(f"rank {rank}.{process.spec['incarnation']} image ({image.previous}, {image.epoch}]")
        if self._chance(self.faults.no_memory):
            return None
        self._strike()
        try:
            writer = ImageWriter(
                self.job,
                rank=rank,
                incarnation=process.spec["incarnation"],
                label=(image.previous, image.epoch),
                resumed_from=process.spec["resume"],
                threads=0,
            )
            data = (image.port, image.engine, image.finished)
            pickle.Pickler(writer, protocol=5, buffer_callback=writer.buffer).dump(data)
            receipt = writer.finish({})
        except StoreError as error:
            self._note(f"the image fails: {error}")
            return None
        finally:
            self.disk.faults = DiskFaults()
        return receipt.manifest_path, receipt.digest

    def _read(self, rank: int, epoch: int) -> Image:
        entry = load_control(self.job, epoch).ranks[rank]
        reader = ImageReader(self.job, epoch=epoch, rank=rank, threads=0)
        port, program, finished = pickle.load(reader.stream(), buffers=reader.buffers())
        program.script = self.work[rank]
        return Image(rank, entry.incarnation, *entry.label, port, program, finished)

    def _compact(self) -> None:
        """Forget the history of a disk on which all is durable."""
        if self.disk.changes > 400 and not self.disk.open_files and self.disk.settled:
            self._use(SimulatedDisk(self._directories, self.disk.files))

    # ---- the controller

    def _begin(self, *, adopts: bool = False) -> None:
        """The next controller; see `Service.__init__` and `Service.run`. `adopts`: it goes on with the ranks."""
        lines = [line.epoch for line in list_lines(self.job) if line.control is not None]
        for epoch, digest in self._promised.items():
            kept = sorted(self._promised)[-2:]
            if epoch in kept and (epoch not in lines or self._digest(epoch) != digest):
                self.fail(f"committed line {epoch} is lost; there are {lines}")
        history = self.world.history.summarise(self.history)
        coordinator = self.world.coordinator(
            self.size,
            highest=max([history.highest_epoch, self.job.highest_epoch(), *lines]),
            committed=lines[-1] if lines else None,
            options=RoundOptions(timeout_ns=self.faults.round_timeout_ns, mode="sync", asks=self.faults.asks),
        )
        self._generation += 1
        self.supervisor = self.world.supervisor(
            coordinator, incarnation=self.incarnation + 1, lines=tuple(lines), max_restarts=1_000_000
        )
        self._note(f"controller {self._generation}, lines {lines}, highest {coordinator.highest}")
        if not adopts:
            self._feed(Begin())
            return
        self._note(f"goes on with the ranks of incarnation {self.incarnation}")
        self.adoptions += 1
        codes = {number: rank.process.runtime.finished_code for number, rank in enumerate(self.ranks)}
        finished = {number: code for number, code in codes.items() if code is not None}
        addresses = dict.fromkeys(range(self.size), "model")
        self._feed(Adopt(self.incarnation, addresses, finished, history.open_round))

    def _digest(self, epoch: int) -> bytes:
        control = load_control(self.job, epoch)
        return hashlib.sha256(repr((control.ranks, control.committed_at)).encode()).digest()

    def _feed(self, event: Any) -> None:
        events = deque([event])
        while events and self.end is None:
            for action in self.supervisor.handle(events.popleft(), now_ns=self.now_ns):
                self._perform(action, events)
        due_ns = None if self.supervisor is None else self.supervisor.deadline_ns()
        if due_ns is not None and due_ns != self._ticking:
            self._ticking = due_ns
            self._later(max(due_ns - self.now_ns, 0), self._tick, self._generation)

    def _tick(self, generation: int) -> None:
        if self.supervisor is not None and generation == self._generation:
            self._ticking = -1
            self._feed(Tick())

    def _perform(self, action: Any, events: deque[Any]) -> None:
        match action:
            case Send(packet=packet, ranks=ranks):
                self._check_packet(packet)
                for number in range(len(self.ranks)) if ranks is None else ranks:
                    self._order(self.ranks[number], packet)
            case Log(event=name, fields=fields):
                if name == "round-started" and any(
                    fields["epoch"] <= line["epoch"] for line in self.history if "epoch" in line
                ):
                    self.fail(f"epoch {fields['epoch']} is used again")
                if "no consistent line" in str(fields.get("reason")):
                    self.fail(f"a line could have committed: {fields['reason']}")
                self.history.append({"event": name, **{k: v for k, v in fields.items() if k == "epoch"}})
                self._note(f"{name} {dict(fields)}")
            case WriteControl():
                if self.faults.slow_commit:
                    self._committing = action
                    self._later(self._random.randint(0, 4 * MS), self._complete, action)
                else:
                    events.append(self._commit(action))
            case Discard(epoch=epoch):
                self._discard(epoch, fenced=False)
            case Fence(incarnation=incarnation):
                if self._committing is not None:
                    control, self._committing = self._committing, None
                    events.append(self._commit(control))
                self._fence()
                self._later(
                    self._random.randint(0, 2 * MS), self._tell, Fenced(incarnation), self._generation
                )
            case Launch(incarnation=incarnation, epoch=epoch):
                self._discard(self.supervisor.coordinator.highest, fenced=True)
                self._launch(incarnation, epoch)
            case Terminate():
                pass
            case End():
                self.end = action

    def _check_packet(self, packet: Mapping[str, Any]) -> None:
        if packet["m"] == "committed" and packet["epoch"] not in list_epochs(self.job):
            self.fail(f"epoch {packet['epoch']} is announced before it is durable")

    def _discard(self, epoch: int, *, fenced: bool) -> None:
        committed = max(list_epochs(self.job), default=0)
        remove_burnt(self.job, committed=committed, upto=epoch, fenced=fenced)

    def _tell(self, event: Any, generation: int) -> None:
        if self.supervisor is not None and generation == self._generation:
            self._feed(event)

    def _complete(self, control: WriteControl) -> None:
        if self._committing is control:
            self._committing = None
            self._feed(self._commit(control))

    def _commit(self, control: WriteControl) -> ControlWritten | ControlFailed:
        lock: Any = Lock(self.job)
        self._strike()
        previous = self.supervisor.coordinator.committed
        written = commit_line(self.job, lock, control, previous=previous)
        self.disk.faults = DiskFaults()
        self._note(f"{type(written).__name__} {control.epoch}")
        if isinstance(written, ControlFailed):
            if not written.reason.startswith("StorageFailed"):
                self.fail(f"what was voted for cannot commit: {written.reason}")
        else:
            self.commits += 1
            self._promised[control.epoch] = self._digest(control.epoch)
            self._check_line(control.epoch)
            left, _ = remove_old_lines(self.job, lock, self.faults.keep)
            self.supervisor.keep_lines(left)
            self._promised = {epoch: self._promised[epoch] for epoch in left if epoch in self._promised}
            self._compact()
        return written

    # ---- ranks

    def _fence(self) -> None:
        for rank in self.ranks:
            if rank.alive and self._chance(self.faults.network.zombies):
                self.zombies.append(rank)
                self._later(self._random.randint(0, 50 * MS), self._record_death, rank)
            else:
                rank.alive = False

    def _record_death(self, rank: Rank) -> None:
        rank.alive = False
        if rank in self.zombies:
            self.zombies.remove(rank)

    def _launch(self, incarnation: int, epoch: int | None) -> None:
        self.incarnation = incarnation
        self.ranks = []
        for number in range(self.size):
            spec = rank_spec(number, self.size, incarnation, epoch)
            try:
                image = None if epoch is None else self._read(number, epoch)
            except StoreError as error:
                self._note(f"rank {number} cannot read {epoch}: {error}")
                self._unreadable(number, incarnation, str(error))
                return
            self.ranks.append(Rank(self._start(spec, image)))
        for rank in self.ranks:
            self._report(rank, {"m": "hello", "address": "model"})
            self._wake(rank, 0)

    def _unreadable(self, number: int, incarnation: int, why: str) -> None:
        dead = Rank(self._start(rank_spec(number, self.size, incarnation, None), None), alive=False)
        self.ranks = [dead] * self.size
        packet = {"m": "error", "exit_code": EXIT_DAMAGED, "traceback": why}
        event = packet_events.rank_event(number, incarnation, messages.parse_rank(packet))
        self._later(0, self._tell, event, self._generation)

    def _start(self, spec: dict[str, Any], image: Image | None) -> Process:
        number = spec["rank"]
        process = Process.start(
            self.world, spec, image, lambda: Program(number, self.work[number]), dict(LIMITS)
        )
        process.write = self._write
        return process

    def _order(self, rank: Rank, packet: Mapping[str, Any]) -> None:
        """A packet to a rank: in order, and not lost while it lives."""
        rank.orders.append(packet)
        self._later(self._random.randint(0, self.faults.control_delay_ns), self._wake_with_orders, rank)

    def _wake_with_orders(self, rank: Rank) -> None:
        if rank.alive and rank.orders:
            packet = rank.orders.popleft()
            self._do(rank, lambda: self._handle_packet(rank.process, packet))
            self._wake(rank, 0)

    def _report(self, rank: Rank, packet: Mapping[str, Any]) -> None:
        delay_ns = self._random.randint(0, self.faults.control_delay_ns)
        if packet["m"] == "voted":  # the image child speaks for itself, when it is done
            self._later(
                delay_ns + self._random.randint(0, 3 * MS), self._hear, rank, packet, self._generation
            )
            return
        rank.reports.append((packet, self._generation))
        self._later(delay_ns, self._hear_next, rank)

    def _hear_next(self, rank: Rank) -> None:
        self._hear(rank, *rank.reports.popleft())

    def _hear(self, rank: Rank, said: Mapping[str, Any], generation: int) -> None:
        if generation != self._generation or said["m"] in ("event", "status"):
            return
        incarnation = rank.process.spec["incarnation"]
        event = packet_events.rank_event(
            rank.process.spec["rank"], incarnation, messages.parse_rank(dict(said))
        )
        if event is not None:
            self._tell(event, generation)

    def _do(self, rank: Rank, act: Callable[[], None]) -> None:
        """Something happens in a process, which may end it; what it says goes to the controller."""
        process = rank.process
        process.port.now_ns = self.now_ns
        try:
            act()
            process.port.tell()
        except Left as left:
            rank.alive = False
            spec = process.spec
            if rank in self.ranks:
                died = Died(spec["rank"], spec["incarnation"], code=left.code)
                self._later(5 * MS, self._tell, died, self._generation)
        sent, process.control.sent = process.control.sent, []
        for packet in sent:
            self._report(rank, packet)

    def _handle_packet(self, process: Process, packet: Mapping[str, Any]) -> None:
        process.obey(packet)
        if process.runtime.released and process.runtime.finished_code is not None:
            raise Left(0)

    def _wake(self, rank: Rank, delay_ns: int) -> None:
        at_ns = self.now_ns + delay_ns
        if rank.wake_ns < 0 or at_ns < rank.wake_ns:
            rank.wake_ns = at_ns
            self._later(delay_ns, self._pump, rank, at_ns)

    def _pump(self, rank: Rank, at_ns: int) -> None:
        if rank.alive and rank.wake_ns == at_ns:
            rank.wake_ns = -1
            self._do(rank, lambda: self._progress(rank))

    def _progress(self, rank: Rank) -> None:
        """One round of a process's progress."""
        process, now_ns = rank.process, self.now_ns
        endpoint, program = process.endpoint, process.engine
        inputs, rank.inputs = rank.inputs, []
        for parts in inputs:
            endpoint.receive(parts, now_ns)
            self._check_zombie(process, parts)
        endpoint.tick(now_ns)
        if self._chance(self.faults.network.undelivered):
            self._wake(rank, MS)
        elif not endpoint.frozen:
            process.port.deliver()
            program.run(endpoint)
            endpoint.hungry(not program.finished, now_ns)
        process.port.tell()
        if process.is_asked() and self._chance(self.faults.network.slow_image):
            self._wake(rank, MS)  # the program is where it cannot be captured
        elif process.is_asked():
            process.look()
        if process.image_is_wanted() and not rank.capturing:
            rank.capturing = True
            slow = self._chance(self.faults.network.slow_image)
            if self._chance(self.faults.network.frozen):
                process.port.freeze()
                slow = True
            self._later(self._random.randint(0, 4 * MS) if slow else 0, self._capture, rank)
        for target, parts in endpoint.transmit(now_ns):
            self._carry(process.spec["rank"], target, parts)
        if program.finished and process.runtime.finished_code is None and not endpoint.frozen:
            process.finish()
        if endpoint.flush_due:
            self._wake(rank, 0)
        deadline_ns = endpoint.deadline_ns()
        if deadline_ns is not None:
            self._wake(rank, max(deadline_ns - now_ns, 0))

    def _check_zombie(self, process: Process, parts: tuple[Buffer, ...]) -> None:
        try:
            header, _ = open_frame(parts)
        except FrameError:
            return
        if header[4] == JOB and header[8] > process.spec["incarnation"] and not process.endpoint.frozen:
            process.port.tell()  # raises Left
            self.fail(f"a zombie of rank {process.spec['rank']} was told so, and goes on")

    def _capture(self, rank: Rank) -> None:
        rank.capturing = False
        process = rank.process
        if not rank.alive:
            return
        taken = len(process.images)
        if process.image_is_wanted():
            self._do(rank, lambda: process.capture(blocked=True))
        if process.endpoint.frozen and taken == len(process.images):
            process.port.now_ns = self.now_ns
            process.port.thaw()  # frozen ahead of time for an image that was not taken
        self._wake(rank, 0)

    # ---- network

    def _carry(self, source: int, target: int, parts: tuple[Buffer, ...]) -> None:
        faults, chance = self.faults.network, self._chance
        if (source in self._cut) != (target in self._cut):
            return
        copies = 1
        if chance(faults.loss):
            copies -= 1
        if chance(faults.duplicate):
            copies += 1
        for _ in range(copies):
            delay_ns = faults.delay_ns
            if chance(faults.reorder):
                delay_ns += self._random.randint(0, faults.late_ns)
            damaged = parts
            if chance(faults.corrupt):
                damaged = corrupted(parts, self._random)
            self._later(delay_ns, self._arrive, target, damaged)

    def _arrive(self, target: int, parts: tuple[Buffer, ...]) -> None:
        late_ns = 0 if self.faults_off else self.faults.network.pump_ns
        ranks = [self.ranks[target]] if target < len(self.ranks) else []
        ranks += [z for z in self.zombies if z.process.spec["rank"] == target]
        for rank in ranks:
            if rank.alive:
                rank.inputs.append(parts)
                self._wake(rank, self._random.randint(0, late_ns) if late_ns else 0)

    def _partition(self) -> None:
        self._cut = {rank for rank in range(self.size) if self._random.random() < 0.5}
        self._note(f"partition {sorted(self._cut)}")
        self._later(self._about(self.faults.network.partition_ns), self._cut.clear)

    # ---- deaths, requests

    def _request(self) -> None:
        if self.supervisor is not None:
            self._feed(CheckpointRequested())

    def _kill_rank(self) -> None:
        victim = self.ranks[self._random.randrange(self.size)]
        if not victim.alive:
            return
        self.deaths += 1
        victim.alive = False
        spec = victim.process.spec
        self._note(f"rank {spec['rank']}.{spec['incarnation']} is killed")
        died = Died(spec["rank"], spec["incarnation"], signal=9)
        self._later(self._random.randint(0, 5 * MS), self._tell, died, self._generation)

    def _lose_agent(self) -> None:
        self.deaths += 1
        self._note("the agent dies, and all ranks with it")
        for rank in self.ranks:
            rank.alive = False
        self._later(self._random.randint(0, 2 * MS), self._tell, AgentLost("killed"), self._generation)

    def _lose_controller(self) -> None:
        if self.supervisor is None:
            return
        self.deaths += 1
        self._note("the controller dies")
        if self._committing is not None and self._random.random() < 0.5:
            self._commit(self._committing)
        self._committing = None
        self._is_adoptable = self.supervisor.phase == "running" and self._random.random() < 0.7
        self.supervisor = None
        self._generation += 1
        for rank in self.ranks:
            self._order(rank, messages.alone())
        self._later(self._random.randint(0, 20 * MS), self._take_over, self._generation)

    def _take_over(self, generation: int) -> None:
        if generation == self._generation and self.supervisor is None:
            if self._is_adoptable and all(rank.alive for rank in self.ranks):
                self._begin(adopts=True)
                return
            self._fence()
            self._begin()

    def _lose_host(self) -> None:
        """All processes die; the disk keeps the synced data, and any part of the rest."""
        self.deaths += 1
        self._note("the host dies")
        self._committing = None
        self._is_adoptable = False
        self.supervisor = None
        self._generation += 1
        for rank in (*self.ranks, *self.zombies):
            rank.alive = False
        self.zombies.clear()
        self._use(SimulatedDisk(self._directories, self.disk.after_crash(self._random)))
        self._later(self._random.randint(0, 20 * MS), self._take_over, self._generation)

    # ---- what must hold

    def _check_line(self, epoch: int) -> None:
        """The line, as it is on the disk, is consistent, and runs to the undisturbed result."""
        try:
            images = [self._read(rank, epoch) for rank in range(self.size)]
        except StoreError as error:
            self.fail(f"line {epoch} cannot be read: {error}")
            return
        reason = link_error({image.rank: image.port.vectors() for image in images})
        if reason:
            self.fail(f"line {epoch} is inconsistent: {reason}")
        self.restored += 1
        found = run_line(self.world, images, self.work, epoch)
        if found != self.expected:
            self.fail(f"line {epoch} runs to {found}, expected {self.expected}")


def run_line(world: World, images: Sequence[Image], work: list[list[Op]], epoch: int) -> list[int]:
    """Restart these images on a perfect network, without a controller; every rank's result."""
    size = len(images)
    incarnation = max(image.incarnation for image in images) + 1
    ranks = []
    for image in images:
        spec = rank_spec(image.rank, size, incarnation, epoch)
        process = Process.start(world, spec, image, lambda: Program(0, ()), dict(LIMITS))
        process.engine.script = work[image.rank]
        ranks.append(process)
    now_ns = 0
    for process in ranks:
        for peer in range(size):
            process.endpoint.set_peer(peer, incarnation, now_ns)
    for _ in range(400):
        now_ns += 50 * MS
        moved = True
        while moved:
            moved = False
            for process in ranks:
                process.port.deliver()
                process.engine.run(process.endpoint)
                process.endpoint.hungry(not process.engine.finished, now_ns)
                for target, parts in process.endpoint.transmit(now_ns):
                    ranks[target].endpoint.receive(parts, now_ns)
                    moved = True
        if all(process.engine.finished for process in ranks):
            break
        for process in ranks:
            process.endpoint.tick(now_ns)
    return [process.engine.digest if process.engine.finished else -1 for process in ranks]


def run_job(seed: int, world: World | None = None) -> JobSimulation:
    """One seed."""
    from tests.model.world import production

    for size in SIZES:
        _job_directory(size)
    # random parts of file names decide in which order they are listed
    with without_stacks(), mock.patch("os.urandom", Random(seed).randbytes):
        simulation = JobSimulation(seed, production() if world is None else world)
        simulation.run()
    return simulation
