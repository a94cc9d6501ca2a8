"""The seed that random tests start from: another one for every commit, the same for everybody who tests that commit.

So a run of `make test` repeats exactly, and yet every commit looks at cases that none before it has looked at. Set
CKPT_SEED to repeat the run of another commit; every random test prints the seed it used.
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
    """Below 2**31. From CKPT_SEED, else from the commit, else (no repository: a tarball) from the shipped sources."""
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


def share(cases: Sequence[Case], parts: int, kind: str) -> list[Case]:
    """One of so many parts of the cases, at least one case; in their order. Every case is in one part of each seed's cut.

    `kind` names what the cases are of: two kinds are cut by themselves.
    """
    order = list(range(len(cases)))
    random.Random(f"{seed_of_the_commit()} {kind}").shuffle(order)
    return [cases[place] for place in sorted(order[: max(1, -(-len(cases) // parts))])]
