"""What the benchmarks share: pairs of processes, rounds, medians, tables of ratios.

A benchmark compares contestants that do the same work in the same run: every round runs every contestant
once, in turn, and what is printed is the median over the rounds, and the ratio to a named contestant. Times
of different runs on shared machines are not comparable; ratios within one are.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any

Side = Callable[[Connection, str, Mapping[str, Any]], Any]
"""One process of a pair: (a pipe to the other one, a directory for sockets, parameters) -> result."""


def _run_side(
    side: Side, pipe: Connection, result: Connection, directory: str, options: Mapping[str, Any]
) -> None:
    try:
        result.send(("ok", side(pipe, directory, options)))
    except BaseException:
        result.send(("failed", traceback.format_exc()))
    finally:
        result.close()
        # No finalizers: sockets and threads of a benchmark need no orderly end.
        os._exit(0)


def run_pair(first: Side, second: Side, timeout_s: float = 60.0, **options: Any) -> Any:
    """Run both sides in fresh processes and return what the first one returned.

    Raises RuntimeError when one fails.
    """
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        results, processes = [], []
        for side, pipe in ((first, here), (second, there)):
            mine, theirs = fork.Pipe(duplex=False)
            process = fork.Process(
                target=_run_side, args=(side, pipe, theirs, directory, options), daemon=True
            )
            process.start()
            theirs.close()
            results.append(mine)
            processes.append(process)
        answers = []
        try:
            for mine in results:
                if not mine.poll(timeout_s):
                    raise RuntimeError(f"{first.__name__}/{second.__name__}: no result within {timeout_s} s")
                answers.append(mine.recv())
        finally:
            for process in processes:
                process.join(1.0)
                if process.is_alive():
                    process.kill()
                    process.join()
    for state, value in answers:
        if state != "ok":
            raise RuntimeError(value)
    return answers[0][1]


def rounds(contestants: Mapping[str, Callable[[], float]], count: int) -> dict[str, list[float]]:
    """Run every contestant once a round, in turn."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(count):
        for name, run in contestants.items():
            figures[name].append(run())
    return figures


def report(title: str, unit: str, figures: Mapping[str, list[float]], against: str) -> list[dict[str, Any]]:
    """Print one table; return its rows."""
    print(
        f"\n{title} ({unit}; median of {len(figures[against])} rounds, [lowest, highest], ratio to {against})"
    )
    rows = []
    for name, values in figures.items():
        row = {
            "benchmark": title,
            "contestant": name,
            "unit": unit,
            "median": statistics.median(values),
            "lowest": min(values),
            "highest": max(values),
            "ratio": statistics.median(values) / statistics.median(figures[against]),
            "against": against,
        }
        rows.append(row)
        spread = f"[{row['lowest']:.4g}, {row['highest']:.4g}]"
        print(f"  {name:34s} {row['median']:10.4g}  {spread:22s} {row['ratio']:6.2f}x")
    sys.stdout.flush()
    return rows


def gate(rows: Iterable[Mapping[str, Any]], contestant: str, limit: float, *, at_least: bool) -> bool:
    """Print whether the contestant's ratio keeps its limit; return that."""
    row = next(row for row in rows if row["contestant"] == contestant)
    kept = row["ratio"] >= limit if at_least else row["ratio"] <= limit
    sign = "at least" if at_least else "at most"
    print(f"  {'reached' if kept else 'MISSED '}: {contestant}: {row['ratio']:.2f}x, to be {sign} {limit}x")
    return kept


def write_json(path: str | None, rows: list[dict[str, Any]]) -> None:
    """Keep the figures in a file when asked to."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
