"""What to do about what would not survive a restart: by type and reason, for `ckpt doctor`. Pure.

Tables of (pattern, remedy); the first pattern that is found in a type's name, in the name of a base type, or in the reason
counts. Remedies name what there is for it: hooks, `register_type`, harmless threads, the explicit loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["CHILD", "DESCRIPTORS", "INTERPRETER", "for_object", "for_refusal", "for_thread"]

_Table = tuple[tuple[str, str], ...]

_REGISTER = "say how it is saved: ckpt.register_type(type, save, load)"
_HOOKS = "drop it in ckpt.on_checkpoint(f) and make it again in ckpt.on_restart(f)"
_REOPEN = "close it in ckpt.on_checkpoint(f) and open it again in ckpt.on_restart(f)"

CHILD = "let it end before a checkpoint, or start it anew in ckpt.on_restart(f)"
INTERPRETER = (
    "use CPython 3.11 to 3.13; or the explicit way, which works everywhere: `for step in ckpt.loop(…)` with "
    "ckpt.register, under `ckpt run --explicit`"
)

DESCRIPTORS = {
    "file": "open it with open(), whose files come back by themselves; or open it again in ckpt.on_restart(f)",
    "device": "open it again in ckpt.on_restart(f)",
    "pipe": "close it before a checkpoint, or make it again in ckpt.on_restart(f)",
    "socket": _REOPEN,
}

_OBJECTS: _Table = (
    (r"^(_?socket\.|ssl\.|_ssl\.)", f"{_REOPEN}; or {_REGISTER}"),
    (
        r"^(_?hashlib\.|_(sha|md5|blake)\w*\.|_?hmac\b)",
        f"keep what has been hashed instead of the hash object, and hash again; or {_REGISTER}",
    ),
    (r"^_?sqlite3\.", f"use a database file; {_REOPEN}; or {_REGISTER}"),
    (
        r"subprocess\.Popen|an open pipe|an open socket",
        "let the other process end before a checkpoint (subprocess.run), or start it anew in ckpt.on_restart(f)",
    ),
    (
        r"^_?asyncio\.|async_generator|coroutine",
        "run the event loop to its end between checkpoints, or use ckpt.loop outside of asyncio.run",
    ),
    (
        r"^(_thread|threading|concurrent|_?queue)\.",
        f"end the thread or pool before a checkpoint; or {_HOOKS}",
    ),
    (
        r"^_?multiprocessing\.",
        "use ranks (`ckpt run -n N`) instead of a pool of processes, or close the pool before a checkpoint",
    ),
    (
        r"^_?ctypes\.|^_?cffi|CDLL|PyCapsule",
        f"load the library and what it gives out again in ckpt.on_restart(f); or {_REGISTER}",
    ),
    (r"^frame$|FrameType", "keep no frame objects (inspect.currentframe, tracebacks) in variables"),
    (r"deleted file", "give the file a name, or keep less in it"),
    (r"an open |^mmap\.|^select\.|^_io\.|DirEntry|ScandirIterator", f"{_REOPEN}; or {_REGISTER}"),
    (r"is not found as", "define the class or function at the top of a module of the program"),
)

_REFUSALS: _Table = (
    (r"\bthread\b", "end the thread, or declare it: ckpt.enable(harmless_threads=[NAME])"),
    (r"traced or profiled", "run without a debugger, profiler or coverage"),
    (r"\bimport", "import at the beginning of the program"),
    (r"class is being created", "keep long work out of class bodies"),
    (r"destructor|weak reference callback|finali[sz]er", "keep destructors and callbacks short"),
    (r"Context\.run|asyncio", "use ckpt.loop outside of asyncio.run"),
    (
        r"is running|from inside of C",
        "write the loop out: `for x in …: total += x` instead of sum(…), sorted(key=…) and the like around long work",
    ),
)


def for_object(type_name: str, reason: str, bases: Iterable[str] = ()) -> str:
    """What to do about an object of this type that cannot be saved for this reason."""
    names = [type_name, *bases]
    for pattern, remedy in _OBJECTS:
        if any(re.search(pattern, name) for name in (*names, reason)):
            return remedy
    return f"{_REGISTER}; or give its class __reduce__; or {_HOOKS}"


def for_refusal(reason: str) -> str:
    """What to do about a place where the program cannot be captured for this reason."""
    for pattern, remedy in _REFUSALS:
        if re.search(pattern, reason):
            return remedy
    return "make it short, or write it as a plain loop in Python"


def for_thread(name: str) -> str:
    """What to do about a thread of the application."""
    return (
        "join it before a checkpoint; or, when the result does not depend on it, declare it with "
        f"ckpt.enable(harmless_threads=[{name!r}]) and start it again in ckpt.on_restart(f)"
    )
