"""Likeness: a keyed universal hash of 128 bits that recognises an unchanged block at the speed of memory.

Most memory of a large program does not change between two images. To compute a block's digest takes several times as long
as to read the memory. So the manifest holds, beside a block's digest, its *likeness*. A new block with the
likeness of a block of the base line is taken to be that block: its digest is copied from the manifest, not computed.

    likeness(block) = first 128 bits of BLAKE3(sums of its pieces (`_likeness.c`), its length)

Why that is safe. The sums are a universal hash function (NH of UMAC, see `_likeness.c`): different blocks have equal sums
with a probability of at most 2⁻¹²⁸, *whatever* they contain, unless they were chosen by someone who knows the key (this is
proved, not assumed). BLAKE3, cut to 128 bits, adds about the same probability again. For a job that compares a billion
blocks, each with a billion others, the probability of an error is below 2⁻⁶⁷; undetected memory errors are far more
frequent. The key is derived from the job's key and as secret: whoever knows the job's key can sign images anyway
(docs/security.md).

The verification at a restart is not weakened: a reader verifies the full digests, which the manifest holds for every block,
and never uses a likeness. Only the writer of the next image uses it. Likenesses are covered by the manifest's MAC, and
`verify` computes them again. For a block without a likeness the writer computes the digest.

Pure.
"""

from __future__ import annotations

from typing import Final

from blake3 import blake3

from ckpt.store.disk.fsio import Buffer
from ckpt.store.images._likeness import KEY_BYTES, sums

__all__ = ["LIKENESS_FROM", "Likeness"]

LIKENESS_FROM: Final = 64 << 10
"""Blocks below this size, in bytes, have no likeness: the time that it saves is not worth its place in the manifest."""

_DIGEST_BYTES: Final = 16
_LENGTH_BYTES: Final = 8


class Likeness:
    """Computes likenesses with a key derived from one job's key. Threads may share it."""

    def __init__(self, job_key: bytes) -> None:
        self._key = blake3(job_key, derive_key_context="checkpoint toolkit, likeness of blocks").digest(
            KEY_BYTES
        )

    def of(self, block: Buffer) -> str:
        """Return the likeness of `block` as 32 hex digits; "" for a block below `LIKENESS_FROM` bytes."""
        length = len(block)
        if length < LIKENESS_FROM:
            return ""
        data = sums(block, self._key) + length.to_bytes(_LENGTH_BYTES, "little")
        return blake3(data).hexdigest(_DIGEST_BYTES)
