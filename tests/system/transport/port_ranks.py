"""Ranks in processes of their own, each with one Port, driven by a test through pipes.

    ranks = PortRanks(program, size=2, transport="ipc", directory=tmp_path, plan=FaultPlan(loss=0.3))
    ranks.start()                      every rank is forked, opens its wire, learns its peers' addresses, runs
                                       `program`
    ranks.kill(1); ranks.restart(1)    kill -9; a new process in a later incarnation; the others are told its
                                       address
    ranks.results(timeout_s=20)        what each program returned, or an AssertionError with the failing
                                       rank's traceback

    lines = Lines(tmp_path)            images that programs save, two at least; ranks.restart_all() kills all and
                                       starts them again from the newest line

A program is called as program(world, **options). A rank whose program has returned goes on serving the
protocol until all have, as a real rank does. Commands reach a rank through Port.control_fd, so that path is
exercised by every test.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ckpt.transport.driver.port import Port
from ckpt.transport.protocol.endpoint import EndpointConfig
from ckpt.transport.protocol.events import Event
from ckpt.transport.protocol.state import PortState, link_error
from ckpt.transport.wires.directwire import DirectWire
from ckpt.transport.wires.faultinject import FaultPlan, FaultyWire
from ckpt.transport.wires.wire import Wire
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire

JOB = 0xABCDEF
Program = Callable[..., Any]

# Timers short enough for tests of seconds; the defaults suit ranks that compute for long between calls.
QUICK = {
    "rto_initial_ns": 50_000_000,
    "rto_min_ns": 10_000_000,
    "rto_max_ns": 200_000_000,
    "ack_delay_ns": 2_000_000,
}


@dataclass
class World:
    """What a program sees: its port, and a mailbox per source."""

    rank: int
    size: int
    incarnation: int
    port: Port
    wire: Wire
    events: list[Event] = field(default_factory=list)
    mailbox: dict[int, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    lines: Any = None
    """Where images go: the test's `Lines`."""
    saved: Any = None
    """What the program had `Lines.save` keep, in a process that goes on from a line."""

    def take(self, source: int, messages: list[Any]) -> None:
        """Port.on_messages: credit goes back when the program takes a message, not before."""
        self.mailbox[source].extend(messages)

    def receive(self, source: int) -> Any:
        """The next message of `source`, waiting for it."""
        box = self.mailbox[source]
        with self.port.lock:
            while not box:
                self.port.wait()
            message = box.popleft()
            self.port.endpoint.consumed(source, len(message), 1)
        return message

    def send(self, rank: int, data: Any, payload: Any = None, highest_backlog: int = 8 << 20) -> int:
        """Send; wait while too much is unacked, as a blocking send does."""
        with self.port.lock:
            sequence = self.port.send(rank, data, payload)
            while self.port.endpoint.backlog_bytes(rank) > highest_backlog:
                self.port.wait()
        return sequence

    def counters(self) -> dict[str, int]:
        """Those of the port. Under the lock: when the helper used the wire meanwhile, ZeroMQ's own thread stopped for ever
        now and then."""
        with self.port.lock:
            return self.port.counters()

    def settle(self) -> None:
        """Wait until everything sent is acked."""
        with self.port.lock:
            while not self.port.endpoint.idle():
                self.port.wait()


class Lines:
    """Images of ports and programs in files, and which line processes start from. (Processes die here, not hosts:
    nothing is synced.)"""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._start = directory / "start"

    def save(self, rank: int, epoch: int, port: PortState, program: Any) -> None:
        """A rank's image; it is there or it is not."""
        path = self.directory / f"image.{rank}.{epoch}"
        temporary = path.with_name(f"saving.{rank}")
        temporary.write_bytes(pickle.dumps((port, program)))
        temporary.replace(path)

    def newest(self, size: int) -> int:
        """The latest epoch of which every rank has an image; 0: none."""
        epochs = [self._epochs(rank) for rank in range(size)]
        return max(set.intersection(*epochs), default=0)

    def _epochs(self, rank: int) -> set[int]:
        return {int(path.name.rpartition(".")[2]) for path in self.directory.glob(f"image.{rank}.*")}

    def choose(self, size: int) -> int:
        """Processes start from the newest line from now on, with epochs above all that were used; older images go."""
        line = self.newest(size)
        images = {rank: self._read(rank, line)[0] for rank in range(size)}
        reason = link_error({rank: port.vectors() for rank, port in images.items()})
        assert reason is None, f"line {line}: {reason}"
        highest = max(max(self._epochs(rank)) for rank in range(size))
        self._start.write_bytes(pickle.dumps((line, highest + 1)))
        for rank in range(size):
            for epoch in self._epochs(rank) - {line}:
                (self.directory / f"image.{rank}.{epoch}").unlink()
        return line

    def _read(self, rank: int, epoch: int) -> tuple[PortState, Any]:
        found: tuple[PortState, Any] = pickle.loads((self.directory / f"image.{rank}.{epoch}").read_bytes())
        return found

    def load(self, rank: int) -> tuple[int, PortState | None, Any]:
        """Epoch, port and program that a process starts from."""
        if not self._start.exists():
            return 0, None, None
        line, epoch = pickle.loads(self._start.read_bytes())
        return epoch, *self._read(rank, line)


class _Control:
    """The rank's end of its pipe to the test."""

    def __init__(self, pipe: Connection, world: World) -> None:
        self._pipe = pipe
        self._world = world
        self.peers: set[int] = set()
        self.released = False

    def read(self) -> None:
        """Port.on_control."""
        while self._pipe.poll(0):
            try:
                command, *values = self._pipe.recv()
            except EOFError:
                os._exit(0)
            if command == "peer":
                rank, address, incarnation = values
                self._world.port.set_peer(rank, address, incarnation)
                self.peers.add(rank)
            elif command == "release":
                self.released = True


def _rank_main(
    pipe: Connection, program: Program, rank: int, size: int, incarnation: int, settings: dict[str, Any]
) -> None:
    # Nothing of a test outlives it for long, whatever happens to the test
    signal.alarm(settings["lifetime_s"])
    try:
        lines: Lines | None = settings["lines"]
        epoch, state, saved = (0, None, None) if lines is None else lines.load(rank)
        config = EndpointConfig(
            job=JOB,
            rank=rank,
            size=size,
            incarnation=incarnation,
            epoch=epoch,
            **(QUICK | settings["config"]),
        )
        if "enter" in settings:
            settings["enter"](rank)
        address = settings["address"].format(rank=rank, incarnation=incarnation, host=rank + 1)
        curve = CurveKeys.from_secret(b"test") if settings["curve"] else None
        wire: Wire = ZmqWire(address, curve=curve)
        if settings["plan"] is not None:
            wire = FaultyWire(wire, settings["plan"], rank)
        if settings["direct"]:
            wire = DirectWire(wire, rank)
        port = Port(config, wire, state=state)
        world = World(rank, size, incarnation, port, wire, lines=lines, saved=saved)
        control = _Control(pipe, world)
        port.on_messages = world.take
        port.on_event = world.events.append
        port.on_control = control.read
        port.control_fd = pipe.fileno()
        pipe.send(("address", wire.address))
        with port.lock:
            while len(control.peers) < size - 1:
                port.wait()
        if settings["helper"]:
            port.start_helper()
        result = program(world, **settings["options"])
        pipe.send(("result", result, world.counters()))
        with port.lock:
            while not control.released:
                port.wait()
        os._exit(0)
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
        os._exit(1)


class PortRanks:
    """The test's end. Use as a context manager: no process outlives it."""

    def __init__(
        self,
        program: Program,
        *,
        size: int,
        directory: Path,
        transport: str = "ipc",
        plan: FaultPlan | None = None,
        config: dict[str, Any] | None = None,
        curve: bool = False,
        direct: bool = False,
        helper: bool = True,
        lifetime_s: int = 115,
        lines: Lines | None = None,
        **options: Any,
    ) -> None:
        self.size = size
        self._program = program
        address = f"ipc://{directory}/{{rank}}.{{incarnation}}" if transport == "ipc" else "tcp://127.0.0.1:*"
        self._settings = {
            "address": address,
            "plan": plan,
            "config": config or {},
            "curve": curve,
            "direct": direct,
            "helper": helper,
            "lifetime_s": lifetime_s,
            "lines": lines,
            "options": options,
        }
        self._pipes: dict[int, Connection] = {}
        self._processes: dict[int, BaseProcess] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self.counters: dict[int, dict[str, int]] = {}

    def __enter__(self) -> PortRanks:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            if process.is_alive():
                process.kill()
            process.join()

    def start(self, incarnation: int = 0) -> None:
        """Start all ranks and tell them about each other."""
        for rank in range(self.size):
            self._spawn(rank, incarnation)
        for rank in range(self.size):
            self._learn_address(rank, incarnation)
        for rank, pipe in self._pipes.items():
            for peer, (address, incarnation) in self._addresses.items():
                if peer != rank:
                    pipe.send(("peer", peer, address, incarnation))

    def pid(self, rank: int) -> int:
        """The rank's process."""
        pid = self._processes[rank].pid
        assert pid is not None
        return pid

    def kill(self, rank: int) -> None:
        """kill -9, and wait for the end."""
        os.kill(self.pid(rank), signal.SIGKILL)
        self._processes[rank].join()

    def restart(self, rank: int) -> None:
        """A new process in the next incarnation; everybody learns where it is."""
        incarnation = self._addresses[rank][1] + 1
        self._spawn(rank, incarnation)
        self._learn_address(rank, incarnation)
        for peer in range(self.size):
            if peer != rank:
                address, number = self._addresses[peer]
                self._pipes[rank].send(("peer", peer, address, number))
                self._pipes[peer].send(("peer", rank, self._addresses[rank][0], incarnation))

    def restart_all(self, order: Sequence[int], pause_s: float) -> int:
        """kill -9 of all, in this order and with pauses in between; all go on from the newest line, which is returned."""
        for rank in order:
            self.kill(rank)
            time.sleep(pause_s)
        line: int = self._settings["lines"].choose(self.size)
        for pipe in self._pipes.values():
            pipe.close()
        self.start(self._addresses[0][1] + 1)
        return line

    def wait_until(self, holds: Callable[[], bool], what: str, timeout_s: float = 300) -> None:
        """Wait; AssertionError when it does not come to be, or a rank fails meanwhile."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            for pipe in wait(list(self._pipes.values()), 0.02):
                assert isinstance(pipe, Connection)
                kind, *values = pipe.recv()
                raise AssertionError(f"{kind} before {what}:\n{values[0]}")
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"

    def results(self, timeout_s: float) -> list[Any]:
        """Every program's result, in order of ranks; then the ranks are released and end."""
        deadline = time.monotonic() + timeout_s
        results: dict[int, Any] = {}
        while len(results) < self.size:
            waiting = {self._pipes[rank]: rank for rank in range(self.size) if rank not in results}
            ready = wait(list(waiting), deadline - time.monotonic())
            missing = sorted(waiting.values())
            assert ready, f"ranks {missing} have not finished within {timeout_s} s"
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = waiting[pipe]
                kind, *values = pipe.recv()
                assert kind == "result", f"rank {rank}:\n{values[0]}"
                results[rank], self.counters[rank] = values
        for pipe in self._pipes.values():
            pipe.send(("release",))
        for process in self._processes.values():
            process.join(5)
        return [results[rank] for rank in range(self.size)]

    def _spawn(self, rank: int, incarnation: int) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        arguments = (there, self._program, rank, self.size, incarnation, self._settings)
        process = context.Process(target=_rank_main, args=arguments, daemon=True)
        process.start()
        there.close()
        self._pipes[rank], self._processes[rank] = here, process

    def _learn_address(self, rank: int, incarnation: int) -> None:
        assert self._pipes[rank].poll(100), f"rank {rank} does not start"
        kind, value = self._pipes[rank].recv()
        assert kind == "address", f"rank {rank}:\n{value}"
        self._addresses[rank] = (value, incarnation)


def stream(source: int, target: int, count: int, *, long_messages: bool = True) -> list[bytes]:
    """The messages that `source` sends to `target` in these tests.

    Both sides know them, sizes and contents vary.
    """
    generator = random.Random(f"{source}->{target}")
    sizes = [generator.choice((0, 1, 8, 100, 1000)) for _ in range(count)]
    if long_messages:
        for index, size in zip(generator.sample(range(count), 3), (70_000, 600_000, 1_500_000), strict=True):
            sizes[index] = size
    return [generator.randbytes(size) for size in sizes]


def exchange(world: World, *, count: int = 200, long_messages: bool = True, is_last: bool = True) -> int:
    """Every rank sends its stream to every other rank and checks what it receives.

    All, once, in order, unchanged. ``is_last``: nothing is sent afterwards; else a peer that is ahead has perhaps sent more.
    """
    peers = [rank for rank in range(world.size) if rank != world.rank]
    outgoing = {peer: stream(world.rank, peer, count, long_messages=long_messages) for peer in peers}
    expected = {peer: stream(peer, world.rank, count, long_messages=long_messages) for peer in peers}
    for index in range(count):
        for peer in peers:
            message = outgoing[peer][index]
            if len(message) > 65_536:
                world.send(peer, message[:32], memoryview(message)[32:])
            else:
                world.send(peer, message)
        for peer in peers:
            received = world.receive(peer)
            assert bytes(received) == expected[peer][index], (
                f"rank {world.rank}: message {index} of rank {peer} differs ({len(received)} bytes)"
            )
    world.settle()
    for peer in peers if is_last else ():
        assert not world.mailbox[peer], f"rank {world.rank}: {len(world.mailbox[peer])} messages too many"
    return count * len(peers)
