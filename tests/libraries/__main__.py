"""Tries the packages of the catalogue that are installed, and makes docs/libraries.md from what was seen.

python -m tests.libraries                  try all, write the page
python -m tests.libraries NAME [NAME ...]  try these, print what was seen
python -m tests.libraries --write NAME …   try these, and put what was seen into the page
python -m tests.libraries --moments N …    images at N random moments of each; CKPT_SEED=… chooses others
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.libraries.catalogue import LIBRARIES
from tests.libraries.driver import MOMENTS, PAGE, Result, attempt, page


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.libraries")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--moments", type=int, default=MOMENTS)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    chosen = [library for library in LIBRARIES if not given.names or library.name in given.names]
    results: list[Result] = []
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(lambda library: attempt(library, given.moments), chosen):
            results.append(result)
            seen = f"{result.moments} moments" if result.moments else ""
            print(
                f"{result.library.name:32} {result.version:14} {result.verdict:18} {seen} {result.reason}",
                flush=True,
            )
            for words in result.refused_moments:
                print(f"{'':32} at another moment: {words}", flush=True)
    if given.write or not given.names:
        PAGE.write_text(page(results))
    return 0


sys.exit(main(sys.argv[1:]))
