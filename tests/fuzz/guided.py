"""Coverage-guided fuzzing of frames, for as long as one likes: python -m tests.fuzz.guided [-runs=N …]

Needs atheris (`pip install atheris`). Input: a list of frames (length u16, flags u8: forge the checksum,
second part); what is looked at is in `tests.fuzz.frames`.
"""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["transport"]):
    from tests.fuzz.frames import JOB, Victim, decode, genuine, sealed


def one(data: bytes) -> None:
    """One input."""
    provider = atheris.FuzzedDataProvider(data)
    victim, seeds = Victim(), genuine(JOB)
    while provider.remaining_bytes() > 2:
        flags = provider.ConsumeInt(1)
        head = provider.ConsumeBytes(provider.ConsumeIntInRange(0, 200))
        if flags & 1:
            base = bytes(seeds[flags >> 3 & 15][0])
            patched = bytes(a ^ b for a, b in zip(base[4:], head.ljust(len(base), b"\0"), strict=False))
            head = sealed(patched)
        parts = (head, provider.ConsumeBytes(130)) if flags & 2 else (head,)
        decode(parts)
        victim.take(parts)
    victim.check()


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
