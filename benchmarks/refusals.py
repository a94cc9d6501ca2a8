"""How often a program cannot be captured, and for how long: at random checks of the programs of the sweep.

    python -m benchmarks.refusals [--quick] [--json FILE] [--keep] [--missing] [PROGRAM …]

A capture is tried at every 199th check of each program (of slow ones, every 20 ms); where one is refused, at every check
that follows, until one is not (of slow ones, the longer it lasts the less often: its length is known to half a percent).
Printed per program: tries, the share that was refused, the longest refusal in checks and in milliseconds of its
own computing, and what refused it. Times depend on the machine; the rest only on the program and the version of Python.
`--keep` writes what was measured into benchmarks/refusals.json, which is committed: a table for each version of Python.
It takes long; `--missing` goes on with the programs that the table of this version does not have.

The programs are fetched (tests/sweep); without a package index this benchmark is skipped.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.sweep.catalogue import PROGRAMS
from tests.sweep.driver import Bench
from tests.sweep.fetch import Unavailable, fetched

KEPT = Path(__file__).with_name("refusals.json")
EVERY = 199
INTERVAL_S = 0.02
"""Of slow programs."""
_QUICK = ("go", "hexiom", "json_loads", "lark_grammar", "nqueens", "pyflate", "richards", "stdlib_text")


def measure(name: str, place: Any) -> dict[str, Any]:
    """One program; `refused`: tries that were; `reasons`: reason → how many of them, the most frequent first."""
    program = PROGRAMS[name]
    when: dict[str, Any] = {"interval_s": INTERVAL_S} if program.slow else {"every": EVERY}
    with (
        tempfile.TemporaryDirectory(prefix="refusals-") as folder,
        Bench(program, place, Path(folder)) as bench,
    ):
        result = bench.refusals(**when)
    longest = result["longest"]
    return {
        "program": name,
        **when,
        "checks": result["checks"],
        "tries": result["tries"],
        "refused": result["refused_tries"],
        "longest_checks": longest["checks"],
        "longest_ms": round(longest["ns"] / 1e6, 3),
        "longest_reason": longest["reason"].partition(" (")[0],
        "reasons": dict(sorted(result["reasons"].items(), key=lambda item: -item[1])),
    }


def table() -> dict[str, Any]:
    """Version → what was kept of it."""
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return kept


def keep(version: str, rows: list[dict[str, Any]]) -> None:
    """Put rows into the table of this version of Python; those of other programs and versions stay."""
    kept = table()
    minor = _minor(version)
    known = {row["program"]: row for row in (*kept.get(minor, {}).get("programs", []), *rows)}
    programs = [known[name] for name in sorted(known)]
    kept[minor] = {"python": version, "machine": platform.machine(), "programs": programs}
    KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", metavar="PROGRAM", nargs="*", help="only these")
    parser.add_argument("--quick", action="store_true", help="few programs")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--keep", action="store_true", help=f"write the table to {KEPT.name}")
    parser.add_argument("--missing", action="store_true", help="only programs that are not in that table")
    options = parser.parse_args()
    version = platform.python_version()
    try:
        place = fetched()
    except Unavailable as reason:
        print(f"skipped: {reason}")
        if options.json:
            Path(options.json).write_text(json.dumps([{"name": "refusals", "skipped": str(reason)}]))
        return 0
    names = _QUICK if options.quick else sorted(PROGRAMS, key=lambda name: (PROGRAMS[name].slow, name))
    names = options.programs or names
    if options.missing:
        known = {row["program"] for row in table().get(_minor(version), {}).get("programs", [])}
        names = [name for name in names if name not in known]
    print(f"\nRefusals at the checks of {len(names)} programs (CPython {version})")
    print(f"  {'program':26s} {'checks':>10s} {'tries':>7s} {'refused':>8s} {'longest':>8s} {'ms':>8s}  by")
    rows = []
    for name in names:
        try:
            row = measure(name, place)
        except KeyError:
            print(f"  {name:26s} did not come to its end", flush=True)
            continue
        rows.append(row)
        share = row["refused"] / max(1, row["tries"])
        print(
            f"  {name:26s} {row['checks'] or '':>10} {row['tries']:7d} {share:8.2%} {row['longest_checks']:8d} "
            f"{row['longest_ms']:8.2f}  {row['longest_reason']}",
            flush=True,
        )
        if options.keep:
            keep(version, rows)
    tries, refused = sum(row["tries"] for row in rows), sum(row["refused"] for row in rows)
    totals = Counter[str]()
    for row in rows:
        totals.update(row["reasons"])
    print("  " + "\n  ".join(f"{count:6d}  {reason}" for reason, count in totals.most_common(12)))
    print(f"  all: {refused} of {tries} tries refused ({refused / max(1, tries):.2%})")
    if options.json:
        Path(options.json).write_text(
            json.dumps([{"name": "refusals", "python": version, "rows": rows}], indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
