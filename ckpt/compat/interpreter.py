"""The version of the interpreter, and what depends on nothing else. Pure.

This is the only module that compares versions. A constant says what differs, not in which version, so that the modules that
use it name no version.
"""

from __future__ import annotations

import sys

__all__ = [
    "BATCHED_CAN_BE_STRICT",
    "DICTS_COUNT_CHANGES",
    "FORK_COUNTS_THREADS",
    "FUTURES_HAVE_BITS",
    "HAS_LAST_EXC",
    "HEX",
    "HMAC_IS_KNOWN",
    "LOCALS_ARE_WRITTEN_THROUGH",
    "MINOR",
    "PAIRWISE_KEEPS_A_PAIR",
    "QUEUES_ARE_RINGS",
    "RELEASE",
    "inline_cache_entries",
    "opcodes_with_argument",
]

MINOR: tuple[int, int] = sys.version_info[:2]
"""(3, 11): what tables of versions are keyed by."""

RELEASE: str = ".".join(map(str, sys.version_info[:3]))
"""``"3.11.9"``."""

HEX: int = sys.hexversion
"""``PY_VERSION_HEX`` of the interpreter that runs."""

HAS_LAST_EXC: bool = MINOR >= (3, 12)
"""Does the interpreter set ``sys.last_exc`` for an exception that nobody has caught?"""

FORK_COUNTS_THREADS: bool = MINOR >= (3, 12)
"""Do ``os.fork`` and ``os.forkpty`` warn of a process with several threads, which the kernel counts? They do so right before
the functions of ``os.register_at_fork`` are called in the parent (3.12.1), or right after (3.13.0)."""

LOCALS_ARE_WRITTEN_THROUGH: bool = MINOR >= (3, 13)
"""Does ``frame.f_locals[name] = value`` change the variable of the function that runs (PEP 667)?"""

DICTS_COUNT_CHANGES: bool = MINOR < (3, 13)
"""Does ``ma_version_tag`` of a dictionary change with each change of the dictionary (PEP 509)? If not, a replaced value
cannot be detected. In C: ``ckpt/image/lowlevel/private_api.h``."""

QUEUES_ARE_RINGS: bool = MINOR >= (3, 13)
"""Does ``_queue.SimpleQueue`` keep its items in a ring buffer (``Modules/_queuemodule.c``)? Earlier versions keep them in a
list, which may begin with items that have been taken already."""

PAIRWISE_KEEPS_A_PAIR: bool = MINOR >= (3, 13)
"""Does ``itertools.pairwise`` keep the tuple that it has returned last, to use it again (``Modules/itertoolsmodule.c``)?"""

FUTURES_HAVE_BITS: bool = MINOR >= (3, 13)
"""Are the flags of ``_asyncio.Future`` and ``_asyncio.Task`` bits of one integer, and their attributes and weak references
in front of the object (``Modules/_asynciomodule.c``)?"""

BATCHED_CAN_BE_STRICT: bool = MINOR >= (3, 13)
"""Does the struct of ``itertools.batched`` have a byte ``strict`` after its size (``Modules/itertoolsmodule.c``)?"""

HMAC_IS_KNOWN: bool = MINOR <= (3, 13)
"""Is the struct of ``_hashlib.HMAC`` the one of 3.11 to 3.13 (``Modules/_hashopenssl.c``): header, context, lock?"""


def inline_cache_entries() -> dict[str, int]:
    """``opcode._inline_cache_entries``: name of an instruction → size of the inline caches that follow it, in code units.
    Instructions without caches are left out. A list by opcode until 3.12, a dictionary by name since 3.13.
    """
    import opcode

    entries = getattr(opcode, "_inline_cache_entries", {})
    if isinstance(entries, dict):
        return entries
    return {opcode.opname[op]: count for op, count in enumerate(entries) if count}


def opcodes_with_argument() -> frozenset[int]:
    """``opcode.hasarg`` (since 3.12), or all from ``opcode.HAVE_ARGUMENT`` on."""
    import opcode

    return frozenset(getattr(opcode, "hasarg", range(opcode.HAVE_ARGUMENT, 256)))
