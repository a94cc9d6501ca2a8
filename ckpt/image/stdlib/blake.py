"""hashlib: ``blake2b`` and ``blake2s`` under way, which Python computes itself.

The object of such a digest *is* its state (RFC 7693: parameters, chaining value, counts, the bytes of an unfinished block),
without any address but a lock at its end. So its memory is copied into that of a new one.

Nothing rests on that layout unseen. Only versions of Python and sizes of the object that are known are touched; a copy must
give the same digest before it goes into an image; and what an image holds goes into an object of another process only if a
digest of the same text has the same memory there and here. Else such an object is named as the reason.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from functools import cache
from pickle import PicklingError
from typing import Any

from ckpt.image.errors import RestoreError

__all__ = ["can_be_saved", "make_digest", "reduce_digest"]

_HEAD_BYTES = object.__basicsize__
_TEXT = bytes(range(256)) + b"ckpt"  # a full block and a begun one
_SIZES = {
    (3, 11): {"blake2b": (448, 438), "blake2s": (240, 230)},
    (3, 12): {"blake2b": (448, 438), "blake2s": (240, 230)},
    (3, 13): {"blake2b": (440, 438), "blake2s": (232, 230)},
}
"""Of the whole object, and of what is before the lock at its end; in bytes."""


def can_be_saved(digest: Any) -> bool:
    """Whether :func:`reduce_digest` can save an object of these types."""
    kind = type(digest)
    known = _SIZES.get(sys.version_info[:2], {}).get(kind.__name__)
    return sys.implementation.name == "cpython" and known is not None and known[0] == kind.__basicsize__


def reduce_digest(pickler: Any, digest: Any) -> Any:
    """Raises PicklingError."""
    name = type(digest).__name__
    if can_be_saved(digest):
        state, result = bytes(_state(digest)), digest.digest()
        saved = (name, _fingerprint(name), state, result)
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
    if not can_be_saved(made) or _fingerprint(name) != fingerprint:
        return None
    space = _state(made)
    if len(space) != len(state):
        return None
    space[:] = state
    return made if made.digest() == result else None


def _state(digest: Any) -> Any:
    """The bytes of its state, in place; good as long as the digest is."""
    _, end = _SIZES[sys.version_info[:2]][type(digest).__name__]
    return (ctypes.c_ubyte * (end - _HEAD_BYTES)).from_address(id(digest) + _HEAD_BYTES)


@cache
def _fingerprint(name: str) -> bytes:
    """What a digest of a certain text looks like here."""
    digest = getattr(hashlib, name)(_TEXT, digest_size=17)
    return bytes(_state(digest))
