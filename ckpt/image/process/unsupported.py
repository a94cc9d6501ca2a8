"""State that no image can hold, and that would be lost without an error: the image is refused, and the error names the
state.

:func:`check` is called in the child before anything is saved. Each library refuses its own state
(:meth:`ckpt.image.interface.library.Library.refuse`). State of no certain library: objects that stand in
``sys.modules`` in the place of modules of the standard library. A tool that puts such objects there also puts them
into other modules, default arguments and the import system. A library's class may remove them before
(:meth:`ckpt.image.interface.library.Library.before_saving`).

:func:`forked_child`: child processes that the program has forked itself, by ``os.fork``, and has not waited for. After a
restart ``os.waitpid`` would find no such child, and what it was to do would be left undone. Not refused: processes that
write images; those of ``multiprocessing``, which are part of an image or refused by what holds them
(:mod:`ckpt.image.stdlib.processes`); and those that have executed another program, since one that is started and left
alone does no harm, and the object of one that is not (``subprocess.Popen``) is refused. The kernel tells which
children have executed no program. Where it lists no children (``CONFIG_PROC_CHILDREN``) nothing is refused. They are looked
for in the program's process before it forks for an image: later it may have forked others, or waited for these.
"""

from __future__ import annotations

import os
import sys
import types

from ckpt.compat.children import pids_started
from ckpt.image.errors import Unpicklable
from ckpt.image.frames import _frames
from ckpt.image.interface.library import Library
from ckpt.image.interface.registry import libraries
from ckpt.image.ipc.library import are_reset

__all__ = ["check", "forked_child"]

_MODULES = ("os", "io", "pathlib", "shutil")
_PF_FORKNOEXEC = 0x40
_KEEPER = "(ckpt-keeper)"  # of ckpt/reduction/keeping: it shares the rank's memory
_FLAGS = 6
"""The place of the flags of a process in its ``stat``, counted from behind its name (proc_pid_stat(5))."""


def check() -> None:
    """Raise Unpicklable, with a name, if the program has such state."""
    for name in _MODULES:
        found = sys.modules.get(name)
        if found is not None and not isinstance(found, types.ModuleType):
            type_name = f"{type(found).__module__}.{type(found).__qualname__}"
            raise Unpicklable(
                f"sys.modules[{name!r}]",
                f"a {type_name} stands in the place of the module: no image can be taken meanwhile",
            )
    for refuse in libraries.implementations(Library.refuse):
        refuse()


def forked_child() -> Unpicklable | None:
    """The refusal of a child that this process has forked itself, and has not waited for; None: there is no such one, or the
    user wants connections to come back as reset, and so does without those at their other ends."""
    if not _has_children() or are_reset():
        return None
    known = {*_frames.own_children(), *pids_started()}
    for pid in _children():
        if pid not in known and _is_forked(pid):
            return Unpicklable(
                f"child process {pid}",
                "the program has forked it (os.fork), and has not waited for it: after a restart it is not there; "
                "checkpoints wait until os.waitpid() has returned its end",
            )
    return None


def _has_children() -> bool:
    """One call of the system, for the pause of a program without children."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # it has ended meanwhile


def _children() -> list[int]:
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return []
    return [int(child) for task in tasks for child in _read(f"/proc/self/task/{task}/children").split()]


def _is_forked(pid: int) -> bool:
    head, _, rest = _read(f"/proc/{pid}/stat").rpartition(")")
    fields = rest.split()
    if len(fields) <= _FLAGS or f"{head})".endswith(_KEEPER):
        return False
    return bool(int(fields[_FLAGS]) & _PF_FORKNOEXEC)
