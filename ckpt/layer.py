"""Layers under the engine, for packages that stand on ckpt: `Layer`, `Below`, `Choices`, `Disk` and what they handle.

The protocols and their rules: :mod:`ckpt.mpi.base.layer`. `unpack` reads what is in front of each message:
kind, source, tag, context number and token; the kinds are `EAGER` and `SYNC` (data of the program) and others (the engine's
own); `pack` makes one. `LinkState`: one link of the `PortState` of an image. `Matcher` and `Receive` are for implementations
of `Choices`.
`use_paths_in(shutil)` has that module work with paths, where a package gives the program functions of its own for files,
which know no descriptors. `set_local(frame, name, value)` gives a local variable of a running function another value;
`replace_method(cls, name, method)` gives a class of C another method; `unbound(function, name)` stands for a function in
C, and is no method where a class has it; `replace_uuid_of_time(function)` and `replace_shm_open(function)` put a function in
the place of one that the standard library calls, and return that one; `name_temporary_files(names)`: `tempfile` takes new
names from that iterator. `SQLITE_IN_C`: the module from which sqlite3 takes its functions.
`wait_for_files()` returns when files may be opened and changed: while an image is loaded that is when all ranks have loaded
what needs no file; else at once. `when_files_are_back(function)` calls a function then, and returns False where
that is now.
"""

from __future__ import annotations

from ckpt.compat.accelerators import SQLITE_IN_C, replace_shm_open, replace_uuid_of_time
from ckpt.compat.memory import set_local
from ckpt.compat.stdlib import name_temporary_files, use_paths_in
from ckpt.compat.typeobjects import replace_method, unbound
from ckpt.image import wait_for_files, when_files_are_back
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG
from ckpt.mpi.base.envelope import (
    ACTIVE,
    EAGER,
    FILE_WRITE,
    MATCHED,
    PLANE_COLLECTIVE,
    PLANES,
    SIZE,
    SYNC,
    WINDOW,
    WINDOW_CALLS,
    pack,
    unpack,
)
from ckpt.mpi.base.layer import Below, Choices, Disk, Layer
from ckpt.mpi.base.progress import Buffer, Lock, Progress
from ckpt.mpi.engine.engine import Engine
from ckpt.mpi.engine.matching import Channel, Context, Matcher
from ckpt.mpi.engine.operations import Receive
from ckpt.transport.protocol.state import LinkState

__all__ = [
    "ACTIVE",
    "ANY_SOURCE",
    "ANY_TAG",
    "EAGER",
    "FILE_WRITE",
    "MATCHED",
    "PLANES",
    "PLANE_COLLECTIVE",
    "SIZE",
    "SYNC",
    "WINDOW",
    "WINDOW_CALLS",
    "Below",
    "Buffer",
    "Channel",
    "Choices",
    "Disk",
    "Context",
    "Engine",
    "Layer",
    "LinkState",
    "Lock",
    "Matcher",
    "Progress",
    "Receive",
    "name_temporary_files",
    "when_files_are_back",
    "pack",
    "replace_method",
    "SQLITE_IN_C",
    "replace_shm_open",
    "replace_uuid_of_time",
    "set_local",
    "unbound",
    "unpack",
    "use_paths_in",
    "wait_for_files",
]
