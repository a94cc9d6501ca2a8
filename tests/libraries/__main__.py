"""Tries the packages of the catalogue that are installed, and makes docs/libraries.md from what was seen.

python -m tests.libraries                  try all, write the page
python -m tests.libraries NAME [NAME ...]  try these, print what was seen
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.libraries.catalogue import LIBRARIES
from tests.libraries.driver import PAGE, Result, attempt, page


def main(names: list[str]) -> int:
    chosen = [library for library in LIBRARIES if not names or library.name in names]
    with ThreadPoolExecutor(2) as pool:
        results: list[Result] = list(pool.map(attempt, chosen))
    for result in results:
        print(f"{result.library.name:32} {result.version:12} {result.verdict:10} {result.reason}")
    if not names:
        PAGE.write_text(page(results))
    return 0


sys.exit(main(sys.argv[1:]))
