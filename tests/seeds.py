"""The seed of random tests: another one for every commit, and the same for everybody who tests that commit.

So a run of `make test` repeats exactly, and every commit tests cases that no earlier commit has tested. Set CKPT_SEED to
repeat the run of another commit; every random test prints the seed that it used.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Case = TypeVar("Case")
_ROOT = Path(__file__).resolve().parent.parent


def seed_of_the_commit() -> int:
    """The seed, below 2**31: CKPT_SEED, or made from the commit, or without a repository (a tarball) from the sources."""
    given = os.environ.get("CKPT_SEED")
    if given:
        return int(given)
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=True, timeout=20
        )
        text = found.stdout.strip().encode()
    except (OSError, subprocess.SubprocessError):
        text = b"".join(
            path.read_bytes()
            for name in ("transport", "ckpt", "controller")
            for path in sorted((_ROOT / name).rglob("*.py"))
        )
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "little") >> 1


def share(cases: Sequence[Case], parts: int, name: str) -> list[Case]:
    """A part of the cases, 1 / `parts` of them but at least one, chosen by the seed; they keep their order.

    `name`: a name of the cases, for example of their test; the choices for two names are independent.
    """
    order = list(range(len(cases)))
    random.Random(f"{seed_of_the_commit()} {name}").shuffle(order)
    return [cases[place] for place in sorted(order[: max(1, -(-len(cases) // parts))])]
