"""What CURVE costs: the port over ipc and over loopback TCP, in the clear and encrypted, in the same run."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.common import report, rounds, run_pair, write_json
from benchmarks.transport_pair import MIB, _port, port_echo, port_roundtrip, port_sink, port_stream

WAYS: dict[str, dict[str, Any]] = {
    "ipc": {"curve": False, "direct": False},
    "ipc, CURVE": {"curve": True, "direct": False},
    "ipc, direct": {"curve": False},
    "ipc, direct, CURVE": {"curve": True},
    "tcp": {"curve": False, "address": "tcp://127.0.0.1:*"},
    "tcp, CURVE": {"address": "tcp://127.0.0.1:*", "curve": True},
}


def contestants(
    first: Callable[..., Any], second: Callable[..., Any], **options: Any
) -> dict[str, Callable[[], float]]:
    """The same work every way."""
    pair = functools.partial(run_pair, _port(first, 0), _port(second, 1), **options)
    return {name: functools.partial(pair, **way) for name, way in WAYS.items()}


def main() -> int:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    figures = rounds(contestants(port_roundtrip, port_echo, size=8, count=2000), arguments.rounds)
    rows = report("CURVE: round trip, 8 bytes", "us", figures, "ipc")
    figures = rounds(
        contestants(port_stream, port_sink, size=100, count=200_000, warm=9_600), arguments.rounds
    )
    rows += report("CURVE: messages of 100 bytes", "messages/s", figures, "ipc")
    figures = rounds(contestants(port_stream, port_sink, size=MIB, count=200, warm=4), arguments.rounds)
    gigabytes = {name: [value * MIB / 1e9 for value in values] for name, values in figures.items()}
    rows += report("CURVE: bandwidth, 1 MiB", "GB/s", gigabytes, "ipc")
    write_json(arguments.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
