"""The communicator over the port, without a job around it: messages between two ranks, collectives of four.

    python benchmarks/mpi_comm.py [--rounds 5] [--only messages|collectives]

Messages: objects (lower case) and buffers (upper case) beside the bare port and raw pyzmq in the same run.
Collectives: beside what their number of rounds costs on the bare port, rounds * round trip / 2.

Limits: objects of 8 bytes above 0.5 M messages/s one way; small collectives at most 1.5 x the bare port's.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.common import gate, report, rounds, run_pair, write_json
from benchmarks.transport_pair import MIB, _port, port_echo, port_roundtrip, stream
from ckpt.mpi import make_world
from ckpt.rank.network import open_fast_paths, open_port
from ckpt.transport.driver.port import Port

RANKS = 4


class PortProgress:
    """A `Progress` on a port and nothing else: no images, no control channel."""

    def __init__(self, port: Port, rank: int, size: int) -> None:
        self.port, self.rank, self.size, self.lock = port, rank, size, port.lock
        self.send = port.send
        self.acked = port.endpoint.base
        self.backlog_bytes = port.endpoint.backlog_bytes
        self.consumed = port.endpoint.consumed
        self.poll = port.progress

    def block(self, hungry: bool, awaited: object = None) -> None:
        """Wait."""
        if hungry:
            self.port.endpoint.hungry(True, time.monotonic_ns())
            self.port.wait()
            self.port.endpoint.hungry(False, time.monotonic_ns())
        else:
            self.port.wait()


def world(directory: str, rank: int, size: int, exchange: Callable[[str], list[str]]) -> tuple[Any, Port]:
    """The communicator of one of `size` processes, over the wires and with the fast paths that a rank of a job has.
    exchange: tells all ranks' addresses to each other.
    """
    spec = {
        "job_id": "1",
        "rank": rank,
        "size": size,
        "local_size": size,
        "incarnation": 0,
        "epoch": 0,
        "runtime_dir": directory,
    }
    port = open_port(spec, b"benchmark", threading.Lock())
    engine, comm = make_world(PortProgress(port, rank, size))
    port.on_messages = engine.on_messages
    runtime = types.SimpleNamespace(
        lock=port.lock, in_hook=False, imager=types.SimpleNamespace(is_looking=False)
    )
    open_fast_paths(runtime, port, engine)
    for peer, address in enumerate(exchange(port.wire.address)):
        if peer != rank:
            with port.lock:
                port.set_peer(peer, address, 0)
    port.start_helper()
    return comm, port


# -- two ranks


def _pair(work: Callable[[Any, Mapping[str, Any]], Any], rank: int) -> Callable[..., Any]:
    def side(pipe: Any, directory: str, options: Mapping[str, Any]) -> Any:
        def exchange(address: str) -> list[str]:
            pipe.send(address)
            other = pipe.recv()
            return [address, other] if rank == 0 else [other, address]

        comm, _ = world(directory, rank, 2, exchange)
        result = work(comm, options)
        comm.barrier()
        time.sleep(0.05)
        return result

    side.__name__ = work.__name__
    return side


def roundtrip(comm: Any, options: Mapping[str, Any]) -> float:
    """Microseconds a round trip."""
    other, count, buffers = 1 - comm.rank, options["count"], options["buffers"]
    data, into = bytes(options["size"]), bytearray(options["size"])
    began = 0.0
    for index in range(count + 200):
        if index == 200:
            began = time.perf_counter()
        if comm.rank == 0:
            comm.Send(data, other) if buffers else comm.send(data, other)
        comm.Recv(into, other) if buffers else comm.recv(source=other)
        if comm.rank == 1:
            comm.Send(data, other) if buffers else comm.send(data, other)
    return (time.perf_counter() - began) / count * 1e6


def one_way(comm: Any, options: Mapping[str, Any]) -> float:
    """Messages a second, one way, until the other side has them all."""
    count, buffers = options["count"], options["buffers"]
    data, into = np.zeros(options["size"], "u1"), np.zeros(options["size"], "u1")
    obj = data.tobytes()
    began = 0.0
    for part in (options.get("warm", 1), count):
        comm.barrier()
        began = time.perf_counter()
        for _ in range(part):
            if comm.rank == 0:
                comm.Send(data, 1, 1) if buffers else comm.send(obj, 1, 1)
            else:
                comm.Recv(into, 0, 1) if buffers else comm.recv(source=0, tag=1)
        comm.barrier()
    return count / (time.perf_counter() - began)


def _contestants(work: Callable[..., Any], **options: Any) -> dict[str, Callable[[], float]]:
    return {
        name: functools.partial(
            run_pair, _pair(work, 0), _pair(work, 1), buffers=name == "buffers", **options
        )
        for name in ("objects", "buffers")
    }


def messages(count: int) -> tuple[list[dict[str, Any]], bool]:
    """All tables of two ranks."""
    options = {"size": 8, "count": 3000}
    port = functools.partial(run_pair, _port(port_roundtrip, 0), _port(port_echo, 1), **options)
    rows = report(
        "round trip, 8 bytes",
        "us",
        rounds({"port": port} | _contestants(roundtrip, **options), count),
        "port",
    )
    kept = True
    for size, number in ((8, 200_000), (100, 200_000), (MIB, 500), (64 * MIB, 12)):
        options = {"size": size, "count": number, "warm": 3 if size >= MIB else 9600}
        contestants = stream(**options) | _contestants(one_way, **options)
        table = report(f"messages of {size} bytes", "messages/s", rounds(contestants, count), "port")
        rows += table
        if size == 8:
            rate = next(row["median"] for row in table if row["contestant"] == "objects")
            kept &= rate > 500_000
            print(f"  {'reached' if rate > 500_000 else 'MISSED '}: objects above 0.5 M messages/s")
    return rows, kept


# -- four ranks


def _collective(rank: int, directory: str, pipes: list[Any], result: Any) -> None:
    def exchange(address: str) -> list[str]:
        pipes[rank].send(address)
        addresses: list[str] = pipes[rank].recv()
        return addresses

    comm, _ = world(directory, rank, RANKS, exchange)
    small, middle, large = np.zeros(1), np.zeros(8 << 10), np.zeros(1 << 20)
    into = np.zeros_like(large)
    plays: dict[str, tuple[int, Callable[[], Any]]] = {
        "ring of 4 sends": (300, lambda: _ring(comm)),
        "barrier": (300, comm.Barrier),
        "allreduce object": (300, lambda: comm.allreduce(1)),
        "bcast object": (300, lambda: comm.bcast(1)),
        "allgather object": (300, lambda: comm.allgather(1)),
        "allreduce 8 B": (300, lambda: comm.Allreduce(small, into[:1])),
        "allreduce 64 KiB": (100, lambda: comm.Allreduce(middle, into[: 8 << 10])),
        "allreduce 8 MiB": (8, lambda: comm.Allreduce(large, into)),
        "bcast 8 MiB": (8, lambda: comm.Bcast(large)),
        "alltoall 8 MiB": (8, lambda: comm.Alltoall(large, into)),
    }
    figures = {}
    for name, (count, play) in plays.items():
        for _ in range(3):
            play()
        comm.Barrier()
        began = time.perf_counter()
        for _ in range(count):
            play()
        comm.Barrier()
        figures[name] = (time.perf_counter() - began) / count * 1e6
    comm.Barrier()
    if rank == 0:
        result.send(figures)
    time.sleep(0.1)


def _ring(comm: Any) -> None:
    """Four messages one after the other: a token once round."""
    if comm.rank == 0:
        comm.send(None, 1)
        comm.recv(source=RANKS - 1)
    else:
        comm.recv(source=comm.rank - 1)
        comm.send(None, (comm.rank + 1) % RANKS)


def collectives(count: int) -> tuple[list[dict[str, Any]], bool]:
    """Microseconds per call with four ranks."""
    fork = multiprocessing.get_context("fork")
    figures: dict[str, list[float]] = {}
    for _ in range(count):
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            pairs = [fork.Pipe() for _ in range(RANKS)]
            mine, theirs = fork.Pipe(duplex=False)
            ends = [pair[1] for pair in pairs]
            processes = [
                fork.Process(target=_collective, args=(rank, directory, ends, theirs), daemon=True)
                for rank in range(RANKS)
            ]
            for process in processes:
                process.start()
            addresses = [pair[0].recv() for pair in pairs]
            for pair in pairs:
                pair[0].send(addresses)
            if not mine.poll(60):
                raise RuntimeError("the ranks did not finish")
            for name, value in mine.recv().items():
                figures.setdefault(name, []).append(value)
            for process in processes:
                process.join(5)
                process.kill()
    rows = report(f"{RANKS} ranks", "us", figures, "ring of 4 sends")
    kept = gate(rows, "barrier", 1.5 * 2 / 4, at_least=False)
    kept &= gate(rows, "allreduce 8 B", 1.5 * 2 / 4, at_least=False)
    print(f"  median of one message: {statistics.median(figures['ring of 4 sends']) / RANKS:.1f} us")
    return rows, kept


def main() -> int:
    """Run everything, print tables, say whether the limits are kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every contestant (default 5)")
    parser.add_argument("--only", choices=("messages", "collectives"), help="one part only")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    kept = True
    for name, part in (("messages", messages), ("collectives", collectives)):
        if arguments.only in (None, name):
            more, good = part(arguments.rounds)
            rows += more
            kept &= good
    write_json(arguments.json, rows)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
