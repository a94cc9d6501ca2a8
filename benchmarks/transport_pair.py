"""Two processes over ipc: the port beside raw pyzmq doing the same work in the same run.

    raw copied       PAIR sockets, blocking send and recv, everything copied: what a program would write first
    raw zero-copy    PAIR sockets, sent from where it lies and received into one buffer that is used again
    port             Port as in a job: over ZmqWire with CURVE, large payloads read from the sender's memory, reliable,
                     with its helper thread; messages delivered, credit given back

Limits (issue: the spine): round trip of 8 bytes at most 1.3 x raw copied; messages a second of 8 and 100
bytes at least 2 x raw copied; bandwidth at 1 and 64 MiB at least 0.9 x raw zero-copy. Exit code 1 when one is
missed.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.common import gate, report, rounds, run_pair, write_json

MIB = 1 << 20
BURST = 32
"""Asynchronous sends of small messages between two looks at the backlog, as in the paper's measurement."""


# -- raw pyzmq


def _raw_socket(directory: str, *, bind: bool, keep_memory: bool) -> Any:
    import zmq

    if keep_memory:
        from ckpt.transport.wires.bufferpool import keep_freed_memory

        keep_freed_memory()
    socket = zmq.Context().socket(zmq.PAIR)
    socket.linger = 0
    (socket.bind if bind else socket.connect)(f"ipc://{directory}/raw")
    return socket


def _settle_on(options: Mapping[str, Any], side: int) -> None:
    """Keep this process on the core that the options name for its side, if they do."""
    if "cores" in options:
        os.sched_setaffinity(0, {options["cores"][side]})


def _raw(work: Callable[[Any, Mapping[str, Any]], Any], *, bind: bool) -> Callable[..., Any]:
    def side(pipe: Connection, directory: str, options: Mapping[str, Any]) -> Any:
        _settle_on(options, 0 if bind else 1)
        if not bind:
            pipe.recv()
        socket = _raw_socket(directory, bind=bind, keep_memory=options.get("keep_memory", False))
        if bind:
            pipe.send("listening")
        result = work(socket, options)
        if bind:
            pipe.recv()
        else:
            pipe.send("done")
        return result

    side.__name__ = work.__name__
    return side


def raw_roundtrip(socket: Any, options: Mapping[str, Any]) -> float:
    """Microseconds a round trip."""
    message, count = b"x" * options["size"], options["count"]
    for _ in range(200):
        socket.send(message)
        socket.recv()
    began = time.perf_counter()
    for _ in range(count):
        socket.send(message)
        socket.recv()
    return (time.perf_counter() - began) / count * 1e6


def raw_echo(socket: Any, options: Mapping[str, Any]) -> None:
    """The other side of raw_roundtrip."""
    for _ in range(options["count"] + 200):
        socket.send(socket.recv())


def raw_stream(socket: Any, options: Mapping[str, Any]) -> float:
    """Messages a second, one way, until the other side has them all."""
    size, count, copy = options["size"], options["count"], not options.get("zero_copy", False)
    message = b"x" * size if copy else bytearray(size)
    for _ in range(options.get("warm", 0)):
        socket.send(message, copy=copy)
    if options.get("warm"):
        socket.recv()
    began = time.perf_counter()
    for _ in range(count):
        socket.send(message, copy=copy)
    socket.recv()
    return count / (time.perf_counter() - began)


def raw_sink(socket: Any, options: Mapping[str, Any]) -> None:
    """The other side of raw_stream."""
    buffer = bytearray(options["size"])
    for count in (options.get("warm", 0), options["count"]):
        if not count:
            continue
        if options.get("zero_copy"):
            for _ in range(count):
                socket.recv_into(buffer)
        else:
            for _ in range(count):
                socket.recv()
        socket.send(b"done")


# -- the port


class Inbox:
    """Takes what a port delivers and gives the credit back at once."""

    def __init__(self, port: Any) -> None:
        self.messages: list[Any] = []
        self.count = 0
        self._consumed = port.endpoint.consumed
        port.on_messages = self.take

    def take(self, source: int, messages: list[Any]) -> None:
        """Port.on_messages."""
        self.count += len(messages)
        self.messages = messages
        self._consumed(source, sum(map(len, messages)), len(messages))


def open_port(pipe: Connection, directory: str, rank: int, options: Mapping[str, Any]) -> tuple[Any, Inbox]:
    """A connected port of a two-rank job, helper running."""
    from ckpt.transport.driver.port import Port
    from ckpt.transport.protocol.endpoint import EndpointConfig
    from ckpt.transport.wires.directwire import DirectWire
    from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire

    curve = CurveKeys.from_secret(b"benchmark") if options.get("curve", True) else None
    address = options.get("address", "ipc://{directory}/{rank}").format(directory=directory, rank=rank)
    wire: Any = ZmqWire(address, curve=curve)
    if options.get("direct", True):
        wire = DirectWire(wire, rank)
    port = Port(EndpointConfig(job=1, rank=rank, size=2), wire)
    inbox = Inbox(port)
    pipe.send(port.wire.address)
    with port.lock:
        port.set_peer(1 - rank, pipe.recv(), 0)
    if options.get("helper", True):
        port.start_helper()
    return port, inbox


def _port(work: Callable[[Any, Inbox, Mapping[str, Any]], Any], rank: int) -> Callable[..., Any]:
    def side(pipe: Connection, directory: str, options: Mapping[str, Any]) -> Any:
        _settle_on(options, rank)
        port, inbox = open_port(pipe, directory, rank, options)
        result = work(port, inbox, options)
        pipe.send("done")
        while not pipe.poll(0):
            with port.lock:
                port.wait(1_000_000)
        if options.get("counters"):
            with port.lock:
                print(rank, {name: value for name, value in port.counters().items() if value})
        return result

    side.__name__ = work.__name__
    return side


def _receive(port: Any, inbox: Inbox, upto: int) -> None:
    with port.lock:
        while inbox.count < upto:
            port.wait()


def port_roundtrip(port: Any, inbox: Inbox, options: Mapping[str, Any]) -> float:
    """Microseconds a round trip."""
    message, count, lock = b"x" * options["size"], options["count"], port.lock
    began = 0.0
    for index in range(count + 200):
        if index == 200:
            began = time.perf_counter()
        with lock:
            port.send(1, message)
        with lock:
            while inbox.count <= index:
                port.wait()
    return (time.perf_counter() - began) / count * 1e6


def port_echo(port: Any, inbox: Inbox, options: Mapping[str, Any]) -> None:
    """The other side of port_roundtrip."""
    lock = port.lock
    for index in range(options["count"] + 200):
        with lock:
            while inbox.count <= index:
                port.wait()
        with lock:
            port.send(0, inbox.messages[-1])


def port_stream(port: Any, inbox: Inbox, options: Mapping[str, Any]) -> float:
    """Messages a second, one way, until the other side has them all."""
    size = options["size"]
    large = size >= MIB
    message = bytearray(size) if large else b"x" * size
    lock, send, backlog, highest = port.lock, port.send, port.endpoint.backlog_bytes, max(8 * MIB, 2 * size)
    burst = 1 if large else BURST
    began = 0.0
    for answers, count in enumerate((options.get("warm", 1), options["count"])):
        began = time.perf_counter()
        for _ in range(count // burst):
            with lock:
                if large:
                    send(1, b"", message)
                else:
                    for _ in range(burst):
                        send(1, message)
                while backlog(1) > highest:
                    port.wait()
        _receive(port, inbox, answers + 1)
    return options["count"] / (time.perf_counter() - began)


def port_sink(port: Any, inbox: Inbox, options: Mapping[str, Any]) -> None:
    """The other side of port_stream."""
    received = 0
    for count in (options.get("warm", 1), options["count"]):
        received += count
        with port.lock:
            while inbox.count < received:
                port.wait()
                if options["size"] >= MIB:
                    inbox.messages = []
            port.send(0, b"done")


# -- the tables


def roundtrip(**options: Any) -> dict[str, Callable[[], float]]:
    """Contestants of the round trip."""
    return {
        "raw copied": functools.partial(
            run_pair, _raw(raw_roundtrip, bind=True), _raw(raw_echo, bind=False), **options
        ),
        "port": functools.partial(run_pair, _port(port_roundtrip, 0), _port(port_echo, 1), **options),
    }


def stream(**options: Any) -> dict[str, Callable[[], float]]:
    """Contestants of a stream of messages one way."""
    raw = functools.partial(run_pair, _raw(raw_stream, bind=True), _raw(raw_sink, bind=False))
    contestants = {"raw copied": functools.partial(raw, **options)}
    if options["size"] >= MIB:
        contestants["raw zero-copy"] = functools.partial(raw, zero_copy=True, **options)
        contestants["raw zero-copy, memory kept"] = functools.partial(
            raw, zero_copy=True, keep_memory=True, **options
        )
    contestants["port"] = functools.partial(run_pair, _port(port_stream, 0), _port(port_sink, 1), **options)
    return contestants


def main() -> int:
    """Run everything, print tables, say whether the limits are kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds of every contestant (default 7)")
    parser.add_argument("--only", choices=("roundtrip", "rate", "bandwidth"), help="one table only")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--counters", action="store_true", help="print the ports' counters")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    kept = True
    shared = {"counters": True} if arguments.counters else {}
    if arguments.only in (None, "roundtrip"):
        table = report(
            "round trip, 8 bytes",
            "us",
            rounds(roundtrip(size=8, count=3000, **shared), arguments.rounds),
            "raw copied",
        )
        kept &= gate(table, "port", 1.3, at_least=False)
        rows += table
        cores = sorted(os.sched_getaffinity(0))
        for name, pair in (("a core each", cores[:2]), ("one core for both", [cores[0], cores[0]])):
            if len(pair) == 2:
                figures = rounds(roundtrip(size=8, count=3000, cores=pair), arguments.rounds)
                rows += report(f"round trip, 8 bytes, {name}", "us", figures, "raw copied")
    for size in (8, 100) if arguments.only in (None, "rate") else ():
        contestants = stream(size=size, count=400_000, warm=9_600, **shared)
        table = report(
            f"messages of {size} bytes", "messages/s", rounds(contestants, arguments.rounds), "raw copied"
        )
        kept &= gate(table, "port", 2.0, at_least=True)
        rows += table
    for size, count in ((MIB, 1000), (64 * MIB, 16)) if arguments.only in (None, "bandwidth") else ():
        figures = rounds(stream(size=size, count=count, warm=4, **shared), arguments.rounds)
        gigabytes = {name: [value * size / 1e9 for value in values] for name, values in figures.items()}
        table = report(f"bandwidth, {size // MIB} MiB", "GB/s", gigabytes, "raw zero-copy")
        kept &= gate(table, "port", 0.9, at_least=True)
        rows += table
    write_json(arguments.json, rows)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
