"""Frames that no image can have, whatever the frames around them: each is refused by name.

    a frame that is not whole          a call is being set up or torn down, a class is being created, a generator runs
                                       outside of its own context
    a frame of the import system       a lock of the import system, and a module of which a part is there, cannot be saved
    a frame with the table of all      both hold objects of ckpt that belong to this process
    threads, or with what ckpt calls
    before functions of `signal`
    a frame that holds a lock of       a new process has a lock of its own there, which nobody holds: the frame would
    the tables of `threading`          release it
    a frame with numbers in it that    a table of objects by their addresses, or a hash that may come from an address: the
    are others after a restart         objects have other addresses in a new process. The inode of a file

Not here: whether the C code between two frames is known (`c_calls`), whether frames fit on the C stack (`lowlevel.c_stack`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any

from ckpt.compat.stdlib import COMPARE_INODES, IMPORT_SYSTEM_FILES, PICKLER_SAVE
from ckpt.compat.threads import is_captured_in_threads, is_in_own_lock
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.image.frames.opcodes import CO_OPTIMIZED, GENERATOR_FLAGS
from ckpt.image.frames.suspended import location

__all__ = [
    "CODE_REPLACED",
    "ENTRY",
    "EXTRA_LEVEL",
    "STOPPED",
    "UNUSABLE",
    "WAITING",
    "check_frame",
    "check_hash",
    "check_library",
    "check_locks",
    "is_of_library",
]

# Flags of a frame listed by _frames.walk.
ENTRY = 1  # entered from C
WAITING = 2  # rebuilt, waits in our hook for the frame it called
_IN_FLIGHT = 4  # rebuilt, the frame it called has returned, its value is in C hands
CODE_REPLACED = 8
_INCOMPLETE = 16
_FOREIGN_EXC = 32
EXTRA_LEVEL = 64  # one more level of recursion lies between it and the frame it waits for
STOPPED = 128  # stopped for the capture, before the instruction
UNUSABLE = _IN_FLIGHT | _INCOMPLETE | _FOREIGN_EXC

_IMPORT_SYSTEM = frozenset(IMPORT_SYSTEM_FILES)
_OF_THIS_PROCESS = (
    (("copy", "deepcopy"), "objects are being told apart by their addresses"),
    (PICKLER_SAVE, "objects are being told apart by their addresses"),
    *((place, "files are being told apart by their inode numbers") for place in COMPARE_INODES),
    (("threading", "Thread.__init__"), "a thread is being made"),
    *((("signal", name), "a signal handler is being set or looked up") for name in ("signal", "getsignal")),
)
"""Functions, module and qualified name, that hold what is another one after a restart: a table of objects by their
addresses; the inode of a file, of which a restart may make a new one; the table of all threads; what ckpt calls before the
functions of `signal` in C."""
_CODE_NAMES = frozenset(place[1].rpartition(".")[2] for place, _ in _OF_THIS_PROCESS)
_LARGEST_COUNT = 1 << 20
"""Larger numbers may be hashes, or made from addresses."""


def check_frame(frame: _frames.Frame) -> None:
    """Raise Refused for a frame that is not whole."""
    code, lasti, flags, gen = frame[1], frame[3], frame[4], frame[5]
    reason = ""
    if flags & _FOREIGN_EXC:
        reason = "a generator runs outside of its own context"
    elif flags & UNUSABLE or (gen is None and code.co_flags & GENERATOR_FLAGS):
        reason = "a call is being set up or torn down"
    elif not code.co_flags & CO_OPTIMIZED and code.co_name != "<module>":
        reason = "a class is being created"
    if reason:
        raise Refused(reason, location(code, lasti))


def is_of_library(code: CodeType) -> bool:
    """Whether a frame that runs `code` may be one for `check_library`."""
    return code.co_filename in _IMPORT_SYSTEM or code.co_name in _CODE_NAMES


_LIKE_A_PROGRAM = ("ckpt.mpi.", "ckpt.reduction")
"""Frames of ckpt that images have in any thread. Calls of MPI: what they change, they change under the lock of the rank,
which the main thread has while it takes an image; they wait for that lock, or in a function that is captured in threads.
The package's own functions (ckpt/__init__.py) only call others.
ckpt.reduction: a package on ckpt's public names, whose thread is one of the program's."""


def check_library(code: CodeType, func: Any, lasti: int, *, is_other_thread: bool = False) -> None:
    """Raise Refused for a frame of the import system, or of a function of `_OF_THIS_PROCESS`; in another thread than the
    main one also for a frame of ckpt."""
    name = getattr(func, "__globals__", {}).get("__name__") or "" if is_other_thread else ""
    if name.startswith("ckpt.") and not name.startswith(_LIKE_A_PROGRAM) and not is_captured_in_threads(func):
        raise Refused("it is inside of a call of ckpt", location(code, lasti))
    if is_other_thread and not is_of_library(code):
        return
    if code.co_filename in _IMPORT_SYSTEM:
        raise Refused("an import is in progress", location(code, lasti))
    for (module, name), reason in _OF_THIS_PROCESS:
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is func:
            raise Refused(reason, location(code, lasti))


def check_locks(code: CodeType, lasti: int, stack: list[Any]) -> None:
    """Raise Refused for a frame that holds a lock of the tables of `threading`."""
    if is_in_own_lock(stack):
        raise Refused("a table of threads is being used", location(code, max(0, lasti)))


def check_hash(code: CodeType, lasti: int, contents: Iterable[list[Any]]) -> None:
    """Raise Refused while `__hash__` runs and a frame holds a number that may be part of its result.

    Such a number often comes from the address of an object, which will have another address after a restart. `code`,
    `lasti`: those of `__hash__`. `contents`: variables and stacks of its frame, and of the frames that it has called.
    """
    for values in contents:
        if any(type(value) is int and abs(value) > _LARGEST_COUNT for value in values):
            raise Refused("a hash is being computed", location(code, max(0, lasti)))
