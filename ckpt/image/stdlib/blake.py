"""hashlib: ``blake2b`` and ``blake2s`` under way, which Python computes itself.

The object of such a digest *is* its state (RFC 7693: parameters, chaining value, counts, the bytes of an unfinished block),
without any address but a lock at its end. So its memory is copied into that of a new one.

Nothing rests on that layout unseen. Only what :func:`ckpt.compat.memory.blake_state` knows is touched; a copy must
give the same digest before it goes into an image; and what an image holds goes into an object of another process only
if a digest of the same text has the same memory there and here. Else such an object is named as the reason.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pickle import PicklingError
from typing import Any

from ckpt.compat.memory import blake_state
from ckpt.image.errors import RestoreError

__all__ = ["can_be_saved", "make_digest", "reduce_digest"]

_TEXT = bytes(range(256)) + b"ckpt"  # a full block and a begun one


def can_be_saved(digest: Any) -> bool:
    """Whether :func:`reduce_digest` can save an object of these types."""
    return blake_state(digest) is not None


def reduce_digest(pickler: Any, digest: Any) -> Any:
    """Raises PicklingError."""
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
    """A digest in that state. Raises RestoreError when this Python keeps it otherwise."""
    made = _made(name, fingerprint, state, result)
    if made is None:
        raise RestoreError(
            f"the digest of {name} cannot be continued with the Python of this machine; restart where the image was taken"
        )
    return made


def _made(name: str, fingerprint: bytes, state: bytes, result: bytes) -> Any:
    made = getattr(hashlib, name)()
    space = blake_state(made)
    if space is None or _fingerprint(name) != fingerprint or len(space) != len(state):
        return None
    space[:] = state
    return made if made.digest() == result else None


@cache
def _fingerprint(name: str) -> bytes:
    """What a digest of a certain text looks like here."""
    digest = getattr(hashlib, name)(_TEXT, digest_size=17)
    return bytes(blake_state(digest))
