"""The process image: saves a running Python program as data, and makes a running program of that data again.

::

    stack = capture(at="call")                        the call stack of the program; takes microseconds
    prepared = prepare(stack, extras)                 just before the fork: records what the child could not read later
    fork(prepared.noted)
    check(prepared)                                   the child's first action
    report = dump(prepared, live=…, sink=…)           in the child: writes the image
    …
    loaded = load(source, live=…)                     in a fresh process
    resume(loaded.stack)                              runs the program to its end

:func:`available` tells whether this interpreter's frames can be captured at all.

    pairs                            the content of an image, in its order. Start reading here
    dumping, loading                 writes an image, loads one; trial: for `ckpt doctor`; program: runs what is imaged
    lowlevel/, frames/, threads/     objects as they are in memory; the call stack; other threads
    pickling/, reducers/, modules/   the pickler; how types are taken apart; which modules are saved by value
    files/, ipc/, process/           open files; pipes and sockets; signals, limits, directory
    stdlib/, handles/, loops/,       the standard library: objects made in C, handles, event loops, pools of processes
    pools/
    interface/                       the one class a library; libraries/, compiled/, tools/, frameworks/, pytorch/,
    joblib/: the classes
    errors                           the exceptions

Not here: when an image is taken (:mod:`ckpt.capture`), and where it is stored (:mod:`ckpt.store`).
"""

from __future__ import annotations

from ckpt.image.dumping import (
    check,
    dump,
    fork,
    note_standard_again,
    preload,
    prepare,
    refresh_modules,
)
from ckpt.image.errors import ImageError, Refused, RestoreError, Unpicklable, Unsupported, without_frames
from ckpt.image.files.reopen import declare_put_back, wait_for_files, waits_for_files, when_files_are_back
from ckpt.image.frames.running import available, run_base
from ckpt.image.frames.stack import Stack, capture
from ckpt.image.interface.moved import declare_moved
from ckpt.image.interface.transient import (
    forget,
    learn,
    look_at_libraries,
    refuse_running,
    refuse_transient,
)
from ckpt.image.ipc.library import declare_connections
from ckpt.image.loading import Loaded, Source, load, resume, resume_others
from ckpt.image.modules.package_baseline import under_way as imports_under_way
from ckpt.image.modules.package_changes import LOST
from ckpt.image.modules.package_changes import keep as keep_package
from ckpt.image.modules.versions import check_compatible
from ckpt.image.pairs import ImageReport, Prepared
from ckpt.image.pickling.pickler import Sink, register_reducer
from ckpt.image.process.clocks import go_on as go_on_clocks
from ckpt.image.process.clocks import monotonic_offset_ns
from ckpt.image.process.signals import declare_deferred, program_mask
from ckpt.image.program import prepare_program, run_program
from ckpt.image.threads.captured import LeftOut, StoppedThreads, is_waiting
from ckpt.image.threads.waking import wake

__all__ = [
    "LOST",
    "LeftOut",
    "ImageError",
    "ImageReport",
    "Loaded",
    "Prepared",
    "Refused",
    "RestoreError",
    "Sink",
    "Source",
    "Stack",
    "StoppedThreads",
    "Unpicklable",
    "Unsupported",
    "available",
    "capture",
    "check",
    "check_compatible",
    "declare_connections",
    "declare_deferred",
    "declare_moved",
    "declare_put_back",
    "dump",
    "forget",
    "fork",
    "go_on_clocks",
    "imports_under_way",
    "keep_package",
    "monotonic_offset_ns",
    "program_mask",
    "is_waiting",
    "note_standard_again",
    "learn",
    "load",
    "refresh_modules",
    "preload",
    "prepare",
    "prepare_program",
    "refuse_running",
    "look_at_libraries",
    "refuse_transient",
    "register_reducer",
    "resume",
    "resume_others",
    "run_base",
    "run_program",
    "when_files_are_back",
    "wait_for_files",
    "wake",
    "waits_for_files",
    "without_frames",
]
