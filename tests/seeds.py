"""The seed that random tests start from: another one for every commit, the same for everybody who tests that commit.

So a run of `make test` repeats exactly, and yet every commit looks at cases that none before it has looked at. Set
CKPT_SEED to repeat the run of another commit; every random test prints the seed it used.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

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
