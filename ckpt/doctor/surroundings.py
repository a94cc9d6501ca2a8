"""What belongs to a process and is in no variable: threads, child processes, descriptors. Read from /proc.

Descriptors are judged by who holds them: those the library had before the program began are its own; those of file and
socket objects are found as objects; the others are *raw*. A raw descriptor is not part of an image, and nothing fails
when it is missing: only the doctor sees it.
"""

from __future__ import annotations

import gc
import io
import os
import socket
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.rank.runtime import Runtime

__all__ = ["children", "descriptors", "raw_descriptors", "threads"]

_STD_FDS = frozenset({0, 1, 2})
_COMMAND_CHARS = 120


def threads(runtime: Runtime, *, undeclared: tuple[str, ...]) -> list[dict[str, Any]]:
    """Threads of the application: ``{"name", "daemon", "target", "harmless"}``.

    ``undeclared``: patterns that are the doctor's, so that what they allow is not harmless yet.
    """
    declared = runtime.threads.patterns
    mine = [pattern for pattern in undeclared if pattern in declared]
    for pattern in mine:
        declared.remove(pattern)
    try:
        others = {id(thread) for thread in runtime.threads.others()}
    finally:
        declared.extend(mine)
    found = []
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.name in ("port-helper", *undeclared):
            continue
        target = getattr(thread, "_target", None)
        found.append({
            "name": thread.name,
            "daemon": thread.daemon,
            "target": getattr(target, "__qualname__", None) or type(thread).__qualname__,
            "harmless": id(thread) not in others,
        })  # fmt: skip
    return found


def children(pid: int, *, without: Collection[int]) -> list[dict[str, Any]]:
    """Living child processes: ``{"pid", "command"}``; those that were forked and run the same are called so."""
    found = []
    own = _command(pid)
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for task in tasks:
        for child in _read(f"/proc/{pid}/task/{task}/children").split():
            command = _command(child)
            if int(child) not in without and command:
                text = "a forked copy of the program" if command == own else command[:_COMMAND_CHARS]
                found.append({"pid": int(child), "command": text})
    return found


def _command(pid: int | str) -> str:
    return " ".join(_read(f"/proc/{pid}/cmdline").replace("\0", " ").split())


def descriptors() -> dict[int, str]:
    """Open descriptors of this process beyond the standard ones, and what they refer to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one this listing was made through
        if int(name) not in _STD_FDS:
            found[int(name)] = target
    return found


def raw_descriptors(own: dict[int, str], *, with_sockets: bool) -> list[dict[str, Any]]:
    """Descriptors that no file or socket object holds: ``{"fd", "target", "kind"}``. Walks all objects: in a child.

    ``own``: those of the library. ``with_sockets``: look for connections too, of a C library say; false when this
    library may open some at any time (several ranks). Event descriptors are the library's, or belong to an object that
    is found by itself.
    """
    connections = _connections() if with_sockets else frozenset()
    held: set[int] = set()
    for obj in gc.get_objects():
        if isinstance(obj, (io.FileIO, socket.socket)):
            try:
                held.add(obj.fileno())
            except (OSError, ValueError):
                continue  # closed
    found = []
    for fd, target in sorted(descriptors().items()):
        kind = _kind(target)
        if fd in held or own.get(fd) == target or kind in ("memory", "event"):
            continue
        if kind == "socket" and target not in connections:
            continue
        found.append({"fd": fd, "target": target, "kind": kind})
    return found


def _connections() -> frozenset[str]:
    """Internet sockets of this network namespace, as /proc/self/fd names them."""
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in _read(f"/proc/self/net/{table}").splitlines()[1:]:
            found.add(f"socket:[{line.split()[9]}]")
    return frozenset(found)


def _kind(target: str) -> str:
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
        return ""  # it has ended meanwhile
