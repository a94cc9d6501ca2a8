"""Freeze, save and thaw of a port in the middle of traffic, beside the paper's figures.

Every sample follows a burst of 32 asynchronous sends, so that messages are pending and unacked when the port
is saved. The paper (section 1 of the design's references) measured 16.0 us to freeze, 54 us to save the
port's state and 8.6 us to thaw, with bursts of 32, on its cluster: printed as a reference, since its hardware
is not ours. `Port.thaw` is thaw and flush together: the flush puts the messages that waited on the wire.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.common import run_pair, write_json
from benchmarks.transport_pair import BURST, open_port

PAPER_US = {"freeze": 16.0, "save": 54.0, "thaw": 8.6}


def saving(pipe: Connection, directory: str, options: Mapping[str, Any]) -> dict[str, list[float]]:
    """Rank 0: burst, freeze, save, advance, thaw, again and again. Microseconds by step."""
    port, _ = open_port(pipe, directory, 0, options)
    message = b"x" * options["size"]
    times: dict[str, list[float]] = {name: [] for name in (*PAPER_US, "advance", "flush")}
    clock = time.perf_counter_ns
    for epoch in range(1, options["samples"] + 1):
        with port.lock:
            for _ in range(BURST):
                port.send(1, message)
            began = clock()
            port.freeze()
            frozen = clock()
            state = port.snapshot()
            saved = clock()
            port.advance(epoch)
            advanced = clock()
            port.endpoint.thaw(port.clock())
            thawed = clock()
            port.progress()
            flushed = clock()
            assert sum(len(link.messages) for link in state.links.values()) > 0
            while not port.endpoint.idle():
                port.wait()
        steps = {
            "freeze": frozen - began,
            "save": saved - frozen,
            "advance": advanced - saved,
            "thaw": thawed - advanced,
            "flush": flushed - thawed,
        }
        for name, value_ns in steps.items():
            times[name].append(value_ns / 1e3)
    pipe.send("done")
    return times


def following(pipe: Connection, directory: str, options: Mapping[str, Any]) -> None:
    """Rank 1: takes messages, and advances whenever it is told to take an image."""
    from ckpt.transport.protocol.events import ImageDue

    port, _ = open_port(pipe, directory, 1, options)
    due = []
    port.on_event = lambda event: due.append(event.epoch) if isinstance(event, ImageDue) else None
    with port.lock:
        while not pipe.poll(0):
            port.wait(5_000_000)
            if due:
                port.advance(due.pop())


def main() -> int:
    """Print the medians beside the paper's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    rows = []
    for size in (8, 1024):
        times = run_pair(saving, following, size=size, samples=arguments.samples)
        print(f"\nport with {BURST} messages of {size} bytes just sent (us; median of {arguments.samples})")
        for name, values in times.items():
            paper = PAPER_US.get(name)
            row = {
                "benchmark": f"port {name}, {size} bytes",
                "unit": "us",
                "median": statistics.median(values),
            }
            row |= {"p95": sorted(values)[len(values) * 95 // 100], "paper": paper}
            rows.append(row)
            beside = f"paper {paper}" if paper else ""
            print(f"  {name:10s} {row['median']:8.1f}  p95 {row['p95']:8.1f}   {beside}")
    write_json(arguments.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
