"""hashlib: ``blake2b`` and ``blake2s`` objects that are in use. Python itself computes these digests.

The memory of such an object is the state of its digest (RFC 7693: parameters, chaining value, counts, the bytes of an
unfinished block). The only address in it is that of a lock, at its end. So this memory is copied into a new object.

The layout of that memory is never relied on without a proof. Only the part that :func:`ckpt.compat.memory.blake_state` knows
is touched. A copy must give the same digest as the original before it becomes part of an image. At load, a digest of a known
text must have the same memory in both processes. Otherwise the object is refused, with that reason.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pickle import PicklingError
from typing import Any

from ckpt.compat.memory import blake_state
from ckpt.image.errors import RestoreError

__all__ = ["can_be_saved", "make_digest", "reduce_digest"]

_TEXT = bytes(range(256)) + b"ckpt"  # full blocks and an unfinished one


def can_be_saved(digest: Any) -> bool:
    """Whether :func:`reduce_digest` can save an object of these types."""
    return blake_state(digest) is not None


def reduce_digest(pickler: Any, digest: Any) -> Any:
    """The reducer for ``blake2b`` and ``blake2s`` objects. Raises PicklingError."""
    name = type(digest).__name__
    state = blake_state(digest)
    if state is not None:
        saved = (name, _fingerprint(name), bytes(state), digest.digest())
        if _made(*saved) is not None:
            return make_digest, saved
    raise PicklingError(
        f"a digest of {name} under way cannot be saved with this Python; let it be no variable when an image is taken, "
        f"or use ckpt.register_type(hashlib.{name}, save, load)"
    )


def make_digest(name: str, fingerprint: bytes, state: bytes, result: bytes) -> Any:
    """A digest in that state. Raises RestoreError: this Python keeps the state in another form."""
    made = _made(name, fingerprint, state, result)
    if made is None:
        raise RestoreError(
            f"the digest of {name} cannot be continued with the Python of this machine; restart where the image was taken"
        )
    return made


def _made(name: str, fingerprint: bytes, state: bytes, result: bytes) -> Any:
    made = getattr(hashlib, name)()
    memory = blake_state(made)
    if memory is None or _fingerprint(name) != fingerprint or len(memory) != len(state):
        return None
    memory[:] = state
    return made if made.digest() == result else None


@cache
def _fingerprint(name: str) -> bytes:
    """The state of a digest of a fixed text in this process: two processes with the same fingerprint have the same
    layout."""
    digest = getattr(hashlib, name)(_TEXT, digest_size=17)
    return bytes(blake_state(digest))
