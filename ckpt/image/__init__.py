"""The process image: a running Python program as data, and back.

::

    stack = capture(at="call")                        where the program is; microseconds
    prepared = prepare(stack, extras)                 the moment before the fork
    fork(prepared.noted)
    check(prepared)                                   first of all in the child
    report = dump(prepared, live=…, sink=…)           in the child
    …
    loaded = load(source, live=…)                     in a fresh process
    resume(loaded.stack)                              runs the program to its end

:func:`available` says whether this interpreter's frames can be captured at all.
"""

from __future__ import annotations

from ckpt.image.dumping import ImageReport, Prepared, check, dump, fork, look, prepare, warm
from ckpt.image.errors import ImageError, Refused, RestoreError, Unpicklable, Unsupported
from ckpt.image.files.moved import declare_moved
from ckpt.image.frames.stack import Stack, available, capture, describe_main, run_base
from ckpt.image.libraries.transient import refuse_passing
from ckpt.image.loading import Loaded, Source, load, resume
from ckpt.image.modules.versions import check_compatible
from ckpt.image.pickling.pickler import Sink, register_reducer
from ckpt.image.process.signals import let_through
from ckpt.image.program import prepare_program, run_program

preload = warm

__all__ = [
    "ImageError",
    "ImageReport",
    "Loaded",
    "Prepared",
    "Refused",
    "RestoreError",
    "Sink",
    "Source",
    "Stack",
    "Unpicklable",
    "Unsupported",
    "available",
    "capture",
    "check",
    "check_compatible",
    "declare_moved",
    "describe_main",
    "dump",
    "fork",
    "let_through",
    "load",
    "look",
    "preload",
    "prepare",
    "prepare_program",
    "refuse_passing",
    "register_reducer",
    "resume",
    "run_base",
    "run_program",
    "warm",
]
