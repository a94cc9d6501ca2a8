"""The digest over the messages of a stream, chained: one that agrees proves all messages before it. Pure.

SHA-1 is the fastest digest of the standard library for messages of all sizes, and finds errors as well as any: nobody
attacks here.

Not here: which messages make a stream (digest.py).
"""

from __future__ import annotations

from hashlib import sha1

__all__ = ["Buffer", "chained", "number_of"]

Buffer = bytes | bytearray | memoryview


def chained(state: bytes, dst: int, data: Buffer, payload: Buffer | None) -> bytes:
    """The state of a stream after one more message for rank `dst`: `data`, which begins with the envelope, and then
    `payload`. A stream begins with the state b""."""
    chain = sha1(state, usedforsecurity=False)
    chain.update(dst.to_bytes(4, "little", signed=True))
    chain.update(data)
    if payload is not None:
        chain.update(payload)
    return chain.digest()


def number_of(state: bytes) -> int:
    """The digest of a stream in this state, as replicas tell it."""
    return int.from_bytes(state[:8], "little")
