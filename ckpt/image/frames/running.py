"""The base frame of a program, and a captured stack that runs again.

A program runs under `run_base`. `resume` rebuilds the frames in a new process and runs the program to its end. Exceptions
that are being handled and running generators are part of the records. The hook that rebuilds the frames is removed when the
innermost frame goes on: from then on the program runs on genuine frames with its original code objects, and can be captured
again. The recursion depth that counts against the limit comes back as it was, with the levels that C code or the interpreter
has taken between two frames (`FrameRecord.until`).

Not here: how a stack is captured (`stack`), how frames are made in C (`_frames`).
"""

from __future__ import annotations

import functools
import gc
import heapq
import itertools
import math
import re
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.compat import accelerators
from ckpt.image.errors import RestoreError, Unsupported
from ckpt.image.frames import _frames, selftest
from ckpt.image.frames.opcodes import TABLE, TABLES, code_map
from ckpt.image.frames.suspended import entered
from ckpt.image.lowlevel import c_stack

if TYPE_CHECKING:
    from ckpt.image.frames.stack import FrameRecord, Stack

__all__ = ["BASES", "available", "follow_functions", "records_of", "resume", "run_base", "run_records"]

_FOLDS = (sum, min, max, functools.reduce, sorted, list.sort, functools.cmp_to_key(min), functools.partial)
"""What calls functions in Python and keeps what it has so far where a capture finds it: see `_frames.follow_folds`."""
_UNPACKED = (
    *(types.GeneratorType, map, filter, zip, enumerate, itertools.chain, itertools.islice, itertools.starmap),
    *(itertools.takewhile, itertools.dropwhile, itertools.filterfalse, itertools.accumulate),
)
"""Iterators that may run Python code: what has been unpacked of them is known (`_frames.follow_unpacking`)."""
_HEAPS = (heapq.heappush, heapq.heappop, heapq.heapreplace, heapq.heappushpop, heapq.heapify)
_ASKING = (itertools.takewhile, itertools.dropwhile, itertools.filterfalse, itertools.groupby)
_FOLLOWED: tuple[tuple[Callable[..., object], tuple[Any, ...]], ...] = ()
"""What functions in C do is followed by these functions, from the beginning of the program on: (function, arguments)."""
if _frames.SUPPORTED:
    _FOLLOWED = (
        (_frames.follow_folds, _FOLDS),
        (_frames.follow_iterators, (itertools.starmap, itertools.accumulate)),
        (_frames.follow_asking, _ASKING),
        (_frames.follow_longest, (itertools.zip_longest,)),
        (_frames.follow_unpacking, (_UNPACKED,)),
        (_frames.follow_taking, ((math.prod, dict.fromkeys, None, math.fsum),)),
        (_frames.follow_heaps, (_HEAPS,)),
        (_frames.follow_substitutions, (re.Pattern,)),
        (_frames.follow_parser, (accelerators.json_parts.make_scanner, types.SimpleNamespace)),
    )


def follow_functions() -> None:
    """Follow what functions in C do, from now on; again: no effect. **The hash of such a function changes with it**, so
    modules with tables that have ``sum`` or ``min`` as keys must be imported behind it."""
    for follow, functions in _FOLLOWED:
        follow(*functions)


def available() -> tuple[bool, str]:
    """Whether this interpreter's frames can be captured, and if not, why (one clause, without a full stop)."""
    # Not by `platform`, which compiles patterns at its first use: the program may have replaced parts of `re` by then.
    version = sys.version.split()[0]
    versions = ", ".join(f"{major}.{minor}" for major, minor in TABLES)
    if sys.implementation.name != "cpython":
        return False, f"frames can be captured in CPython only, this is {sys.implementation.name}"
    if "t" in getattr(sys, "abiflags", ""):
        return False, "frames cannot be captured in a free-threaded interpreter"
    if TABLE is None:
        return False, f"frames can be captured in CPython {versions}; this is {version}"
    if _frames.JIT:
        return False, "frames cannot be captured in an interpreter that was built with a JIT compiler"
    if selftest.misfit is not None:
        return False, (
            f"the frames extension {selftest.versions()}: it does not find {selftest.misfit}; "
            "build ckpt again with this interpreter"
        )
    if not _frames.SUPPORTED or _frames.BUILT_FOR.split(".")[:2] != version.split(".")[:2]:
        return False, f"the frames extension was built for CPython {_frames.BUILT_FOR}"
    return True, ""


def run_base(fn: Callable[..., Any], *args: Any) -> Any:
    """Call fn(*args) as the outermost captured frame; for a script: run_base(exec, code, namespace)."""
    # In no function of its own: an image could be taken inside of it, without the program
    for follow, functions in _FOLLOWED:
        follow(*functions)
    return fn(*args)


def resume(
    stack: Stack,
    start_signals: Callable[[], tuple[int, ...] | None],
    release: Callable[[], object] | None = None,
) -> Any:
    """Rebuild the frames and run them to the end; returns (or raises) what the outermost frame does.

    ``start_signals`` is called last before the frames are made; it returns the signals that are to be blocked from the
    moment at which the innermost frame runs. ``None``: the mask is not changed. ``release`` is called when the frames are
    there, just before the innermost one goes on: the other threads go on, too.

    Must be called in the main thread. Empties `stack`, so that lifetimes are the program's own. Raises
    RestoreError when the records do not fit this process.
    """
    ok, reason = available()
    if not ok:
        raise Unsupported(reason)
    if not stack.frames:
        raise RestoreError("the image has no frames")
    if stack.recursion_limit != sys.getrecursionlimit():
        sys.setrecursionlimit(stack.recursion_limit)
    c_stack.ensure(len(stack.frames))
    depth, begin = stack.recursion_depth, release
    if stack.tracing is not None:
        from ckpt.image.frames import tracing

        begin = functools.partial(tracing.begin, stack.tracing, BASES, release)
    records = records_of(stack)
    _collect_without_callbacks()
    return run_records(records, depth, start_signals(), begin)


def records_of(stack: Stack) -> list[Any]:
    """What `_frames.run` takes. Empties the stack."""
    records = [stack.exc, *map(_as_tuple, stack.frames)]
    stack.frames.clear()
    stack.exc = stack.tracing = None
    stack.threads = []
    return records


def _collect_without_callbacks() -> None:
    """Collect the garbage of the load, without calling the program's ``gc.callbacks``: the program may count its own."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    gc.collect()
    gc.callbacks.extend(callbacks)


def run_records(
    records: list[Any], depth: int, blocked: tuple[int, ...] | None, begin: Callable[[], object] | None
) -> Any:
    """The base frame of a resumed program; keeps nothing of the image."""
    for follow, functions in _FOLLOWED:
        follow(*functions)
    return _frames.run(records, depth, blocked, begin)


def _as_tuple(record: FrameRecord) -> tuple[Any, ...]:
    waits = record.mode == "V" or record.mode == "I"
    at = code_map(record.code).index_ending_at(record.lasti + 1) if waits else 0
    func = record.func and entered(record.func, record.code, record.locals)
    return (
        func,
        record.code,
        record.globals_,
        record.locals_ns,
        record.locals,
        record.stack,
        record.lasti,
        ord(record.mode),
        record.value,
        record.gen,
        record.exc,
        record.until,
        record.kept,
        at,
    )


BASES = (run_base.__code__, run_records.__code__)
