"""Parts of a process that are in no variable of the program: threads, child processes, descriptors. Read from /proc.

There are three sorts of descriptors. The descriptors that were open before the program began belong to the library. A
descriptor of a file or socket object is found with its object by the pickler. All others are *raw*. After a restart a raw
descriptor of a file or a directory is there again; any other one is not, and no image fails because of it: only the doctor
reports it.
"""

from __future__ import annotations

import fcntl
import gc
import io
import os
import socket
import stat
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ckpt.compat.stdlib import target_of
from ckpt.compat.threads import is_foreign
from ckpt.image.files.descriptors import is_opened_again
from ckpt.image.files.file_notes import kind_of

if TYPE_CHECKING:
    from ckpt.rank.runtime import Runtime

__all__ = ["children", "descriptors", "is_below", "raw_descriptors", "threads"]

_STD_FDS = frozenset({0, 1, 2})
_COMMAND_CHARS = 120


def threads(runtime: Runtime, *, undeclared: tuple[str, ...]) -> list[dict[str, Any]]:
    """Threads of the application that no image can have: ``{"name", "daemon", "target", "harmless"}``. Others are in it.

    ``undeclared``: patterns that the doctor has declared for itself. A thread that only they match counts as not harmless.
    """
    declared = runtime.threads.patterns
    own_patterns = [pattern for pattern in undeclared if pattern in declared]
    for pattern in own_patterns:
        declared.remove(pattern)
    try:
        others = {id(thread) for thread in runtime.threads.others()}
    finally:
        declared.extend(own_patterns)
    found = []
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.name in ("port-helper", *undeclared):
            continue
        if id(thread) in others and not is_foreign(thread):
            continue
        target = target_of(thread)
        found.append({
            "name": thread.name,
            "daemon": thread.daemon,
            "target": getattr(target, "__qualname__", None) or type(thread).__qualname__,
            "harmless": id(thread) not in others,
        })  # fmt: skip
    return found


def children(pid: int, *, without: Collection[int]) -> list[dict[str, Any]]:
    """Living child processes of ``pid``: ``{"pid", "command"}``. ``without``: process ids to leave out.

    The command of a child with the same command line is given as "a forked copy of the program".
    """
    found = []
    own = _command(pid)
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for task in tasks:
        for child in _read(f"/proc/{pid}/task/{task}/children").split():
            if _read(f"/proc/{child}/comm").strip() == "ckpt-keeper":
                continue  # this library's own (ckpt/reduction/keeping): an image does not need it
            command = _command(child)
            if int(child) not in without and command:
                text = "a forked copy of the program" if command == own else command[:_COMMAND_CHARS]
                found.append({"pid": int(child), "command": text})
    return found


def _command(pid: int | str) -> str:
    return " ".join(_read(f"/proc/{pid}/cmdline").replace("\0", " ").split())


def descriptors() -> dict[int, str]:
    """Open descriptors of this process except 0, 1 and 2: number to target, as the links in /proc/self/fd name it."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor that listdir has used, closed by now
        if int(name) not in _STD_FDS:
            found[int(name)] = target
    return found


def is_below(path: str, directory: str) -> bool:
    """Is it the name of something in this directory? Both names are without symbolic links. What is in the job's directory
    is never the program's: the undo log, for one, which may have been opened just now."""
    return path.startswith(directory + os.sep)


def raw_descriptors(own: dict[int, str], *, with_sockets: bool) -> list[dict[str, Any]]:
    """Descriptors that no file or socket object holds, and that do not come back: ``{"fd", "target", "kind"}``.

    The function looks at all objects of the process, which takes long: call it in a child. ``own``: descriptors of this
    library. ``with_sockets``: look for internet sockets too, for example those of a C library; false when this library may
    open sockets at any time (several ranks). Event descriptors (``anon_inode:``) are left out: they are the library's, or
    belong to an object that the pickler finds.
    """
    connections = _connections() if with_sockets else frozenset()
    owned: set[int] = set()
    for obj in gc.get_objects():
        cls = next((each for each in (io.FileIO, socket.socket) if issubclass(type(obj), each)), None)
        if cls is not None:  # asked so that no code of the program runs
            try:
                owned.add(cls.fileno(obj))
            except (OSError, ValueError):
                continue  # closed
    found = []
    targets = descriptors()
    for fd, target in sorted(targets.items()):
        descriptor_type = _descriptor_type(target)
        if fd in owned or own.get(fd) == target or descriptor_type in ("memory", "event"):
            continue
        if descriptor_type == "pipe" and list(targets.values()).count(target) > 1:
            continue  # both ends are in this process: it comes back
        if descriptor_type == "socket" and target not in connections:
            continue
        if descriptor_type in ("file", "device"):
            try:
                status, flags = os.fstat(fd), fcntl.fcntl(fd, fcntl.F_GETFL)
            except OSError:
                continue  # closed meanwhile
            if is_opened_again(kind_of(target, status.st_mode, status.st_nlink), target, flags):
                continue
            if stat.S_ISFIFO(status.st_mode):
                descriptor_type = "pipe"
        found.append({"fd": fd, "target": target, "kind": descriptor_type})
    return found


def _connections() -> frozenset[str]:
    """Internet sockets of this network namespace, as /proc/self/fd names them."""
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in _read(f"/proc/self/net/{table}").splitlines()[1:]:
            found.add(f"socket:[{line.split()[9]}]")
    return frozenset(found)


def _descriptor_type(target: str) -> str:
    if target.startswith("socket:"):
        return "socket"
    if target.startswith("pipe:"):
        return "pipe"
    if target.startswith("anon_inode:"):
        return "event"
    if target.startswith(("/memfd:", "/dev/zero")):
        return "memory"
    return "device" if target.startswith("/dev/") else "file"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # the process has ended meanwhile
