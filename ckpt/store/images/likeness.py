"""Likeness: 128 bits by which a block of the line before is recognised at the speed of memory, without its digest.

Most of a large program does not change between two images. To see that by the digest takes several times as long as
to read the memory. So a block's *likeness* stands beside its digest in the manifest, and where a block has the
likeness of one of the base line, it is that one: its digest is taken from the manifest, and not computed.

    likeness(block) = first 128 bits of BLAKE3(sums of its pieces (`_likeness.c`), its length)

Why that is safe. The sums are a universal hash function: two blocks that differ agree in them with a probability
of at most 2⁻¹²⁸, *whatever* they contain, as long as nobody has chosen them knowing the key (a proof, no assumption).
What BLAKE3, cut to 128 bits, adds to that is as much again. A job that compares a billion blocks, each with a billion,
is wrong with a probability below 2⁻⁶⁷; undetected errors of memory are far more frequent. The key is derived from the
job's and as secret: whoever knows it may sign images anyway ([security](../../docs/security.md)).

Not weakened: what is read is verified by digests alone, and a manifest names full ones. A likeness is never looked at
by who restores, only by who writes the next image; it is under the manifest's MAC like the rest, and `verify` computes
it again. A block without one is digested.

Pure.
"""

from __future__ import annotations

from typing import Final

from blake3 import blake3

from ckpt.store.disk.fsio import Buffer
from ckpt.store.images._likeness import KEY_BYTES, sums

__all__ = ["LIKENESS_FROM", "Likeness"]

LIKENESS_FROM: Final = 64 << 10
"""Smaller blocks have none: it would take as much room as it saves time."""

_DIGEST_BYTES: Final = 16
_LENGTH_BYTES: Final = 8


class Likeness:
    """Computes likenesses with one job's key; any number of threads may use it at a time."""

    def __init__(self, job_key: bytes) -> None:
        self._key = blake3(job_key, derive_key_context="checkpoint toolkit, likeness of blocks").digest(
            KEY_BYTES
        )

    def of(self, block: Buffer) -> str:
        """32 hex digits; "" for a block below `LIKENESS_FROM` bytes."""
        length = len(block)
        if length < LIKENESS_FROM:
            return ""
        data = sums(block, self._key) + length.to_bytes(_LENGTH_BYTES, "little")
        return blake3(data).hexdigest(_DIGEST_BYTES)
