"""hashlib and hmac: digests of OpenSSL that are in use, with the state of their algorithm.

A program that computes a running checksum holds such an object all the time, and OpenSSL offers no way to save it. The state
is plain data (RFC 1321, RFC 6234, FIPS 202: chaining values, a count, the bytes of an unfinished block). OpenSSL keeps it in
one block of memory to which its context points, in the same way in all releases 3.x. So those bytes are copied.

The layout of that memory is never relied on without a proof: a copy must give the same digest as the original before it
becomes part of an image, and the loaded object must give it again. With another OpenSSL, or one whose memory cannot be
found, nothing is copied, and the object is refused with that reason.

``hmac`` has three such digests behind a context of its own: of the text, of the inner and of the outer key (RFC 2104). The
pointers to them are read by a system call that cannot fault, and all three must have the same algorithm.

Not here: digests that Python computes itself (:mod:`ckpt.image.stdlib.blake`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
from functools import cache
from pickle import PicklingError
from typing import Any

from ckpt.compat.accelerators import HASHLIB, loaded
from ckpt.compat.memory import openssl_context
from ckpt.image.errors import RestoreError

__all__ = ["can_be_saved", "reduce_digest", "reduce_hmac"]

_STATE_BYTES = {
    "md5": 92,
    "sha1": 96,
    **dict.fromkeys(("sha224", "sha256"), 112),
    **dict.fromkeys(("sha384", "sha512", "sha512_224", "sha512_256"), 216),
    # Only the sponge is state: after it come the addresses of functions of this process.
    **dict.fromkeys(("sha3_224", "sha3_256", "sha3_384", "sha3_512", "shake_128", "shake_256"), 393),
}
"""Size of the state at the beginning of the algorithm's memory."""
_CONTEXT_WORDS = 9  # EVP_MD_CTX of OpenSSL 3
_ALGORITHM = 7  # index of the word with the address of the algorithm's memory
_LEGACY = 4  # index of the word that has this address in the style of OpenSSL 1
_XOF_BYTES = 32  # length of the result taken of a digest that has no length of its own
_HMAC_WORDS = 4  # HMAC_CTX of OpenSSL 3: the algorithm, then the three contexts
_WORD = ctypes.sizeof(ctypes.c_void_p)


@cache
def _is_known() -> bool:
    """Does this Python compute digests with an OpenSSL whose layout is known?"""
    module = loaded(HASHLIB)
    if module is None:
        return False
    try:
        number = ctypes.CDLL(getattr(module, "__file__", None)).OpenSSL_version_num
    except (OSError, AttributeError):  # linked into the interpreter, which does not export its functions
        return False
    number.restype, number.argtypes = ctypes.c_ulong, []
    return bool(number() >> 28 == 3)


def can_be_saved(digest: Any) -> bool:
    """Can :func:`reduce_digest` or :func:`reduce_hmac` save an object of OpenSSL's types?"""
    if type(digest).__name__ == "HMAC":
        name = _algorithm(digest)
    elif type(digest).__name__ in ("HASH", "HASHXOF"):
        name = digest.name
    else:
        return False
    return name in _STATE_BYTES and _is_known() and openssl_context(digest) is not None


def reduce_digest(pickler: Any, digest: Any) -> Any:
    """The reducer for OpenSSL's ``HASH`` and ``HASHXOF``. Raises PicklingError."""
    name, result = digest.name, _result(digest)
    state = _state(digest)
    if state is None or _made(name, bytes(state), result) is None:
        raise PicklingError(
            f"a digest of {name} under way cannot be saved with this OpenSSL; let it be no variable when an image is taken, "
            f"or use ckpt.register_type({type(digest).__module__}.{type(digest).__name__}, save, load)"
        )
    return make_digest, (name, bytes(state), result)


def make_digest(name: str, state: bytes, result: bytes) -> Any:
    """A digest in that state. Raises RestoreError when it does not give ``result``."""
    made = _made(name, state, result)
    if made is None:
        raise RestoreError(
            f"the digest of {name} cannot be continued with the OpenSSL of this machine; restart where the image was taken"
        )
    return made


def _made(name: str, state: bytes, result: bytes) -> Any:
    made = hashlib.new(name, usedforsecurity=False)
    memory = _state(made)
    if memory is None or len(memory) != len(state):
        return None
    memory[:] = state
    try:
        return made if _result(made) == result else None
    except ValueError:  # OpenSSL does not take it for a state
        return None


def _result(digest: Any) -> bytes:
    found: bytes = digest.digest() if digest.digest_size else digest.digest(_XOF_BYTES)
    return found


def _state(digest: Any) -> Any:
    """The bytes of the algorithm's state, in place; None: the memory is not laid out as expected."""
    context = openssl_context(digest) if can_be_saved(digest) else None
    if context is None:
        return None
    words = (ctypes.c_uint64 * _CONTEXT_WORDS).from_address(context)
    if not words[_ALGORITHM] or words[_LEGACY]:
        return None
    return (ctypes.c_ubyte * _STATE_BYTES[digest.name]).from_address(words[_ALGORITHM])


# ---------------------------------------------------------------------- hmac


def reduce_hmac(pickler: Any, digest: Any) -> Any:
    """The reducer for OpenSSL's ``HMAC``. Raises PicklingError."""
    name, result, states = _algorithm(digest), digest.digest(), _states(digest)
    saved = None if states is None else (name, tuple(map(bytes, states)), result)
    if saved is None or _made_hmac(*saved) is None:
        raise PicklingError(
            f"an HMAC of {name} under way cannot be saved with this OpenSSL; let it be no variable when an image is taken, "
            "or use ckpt.register_type(_hashlib.HMAC, save, load)"
        )
    return make_hmac, saved


def make_hmac(name: str, states: tuple[bytes, ...], result: bytes) -> Any:
    """An HMAC in that state. Raises RestoreError when it does not give ``result``."""
    made = _made_hmac(name, states, result)
    if made is None:
        raise RestoreError(
            f"the HMAC of {name} cannot be continued with the OpenSSL of this machine; restart where the image was taken"
        )
    return made


def _made_hmac(name: str, states: tuple[bytes, ...], result: bytes) -> Any:
    module: Any = loaded(HASHLIB)
    made = module.hmac_new(b"key", b"", name)
    memories = _states(made)
    if memories is None or [len(memory) for memory in memories] != [len(state) for state in states]:
        return None
    for memory, state in zip(memories, states, strict=True):
        memory[:] = state
    try:
        return made if made.digest() == result else None
    except ValueError:  # OpenSSL does not take it for a state
        return None


def _algorithm(digest: Any) -> str:
    return str(digest.name).removeprefix("hmac-")


def _states(digest: Any) -> list[Any] | None:
    """The bytes of the three states, in place; None: the memory is not laid out as expected."""
    own = openssl_context(digest) if can_be_saved(digest) else None
    contexts = None if own is None else _words(own, _HMAC_WORDS)
    found, algorithms = [], set()
    for context in contexts[1:] if contexts else ():
        words = _words(context, _CONTEXT_WORDS)
        nbytes = _STATE_BYTES[_algorithm(digest)]
        if not words or words[_LEGACY] or not _words(words[_ALGORITHM], nbytes // _WORD + 1):
            return None
        algorithms.add(words[1])
        found.append((ctypes.c_ubyte * nbytes).from_address(words[_ALGORITHM]))
    return found if found and len(algorithms) == 1 else None


def _words(address: int, count: int) -> tuple[int, ...] | None:
    """``count`` machine words of memory from an address on; None: not all of that memory exists."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        try:
            return struct.unpack(f"{count}Q", os.pread(memory.fileno(), count * _WORD, address))
        except (OSError, OverflowError, struct.error):
            return None
