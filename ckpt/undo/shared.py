"""Which file systems all hosts of a job share, and by which number all of them know one. (driver)

Ranks on several hosts: only a file that all hosts reach by the same path can be put back by the controller. A file system
has another device number on each host, and perhaps another one after each mount. So for all that the undo log says of files,
the device is replaced by a number (:data:`Numbers`) that is made of what every host sees: where the file system is mounted,
and inode and time of creation of what is mounted there. That it is one file system the controller has proven before
(:mod:`ckpt.controller.sharing`); a host that comes later finds the same number, or does not share it.

Not here: how that is proven; what a restart does where hosts have changed the same file
(:mod:`ckpt.undo.planning.across_hosts`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from blake3 import blake3

from ckpt.transport.records import NamedTuple
from ckpt.undo import _status

__all__ = ["LOCAL", "Mount", "Mounts", "Numbers", "Shared", "number_of"]

Numbers = Mapping[str, int]
"""Where each shared file system is mounted, on all hosts -> its number."""

LOCAL = "local to host"
"""So a reason begins why a file on a file system of one host alone is not covered."""

_ESCAPED = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}
_REMEMBERED = 4096


class Mount(NamedTuple):
    """Where a path lies: the path at which its file system is mounted, and the number of that (0: not known)."""

    path: str
    number: int


class Mounts:
    """The mounts of this process, as they are when this object is made. Raises OSError."""

    def __init__(self) -> None:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            self.paths = {_unescaped(line.split(" ")[4]) for line in file}

    def above(self, path: str) -> str:
        """Where the file system of this canonical path is mounted."""
        while path not in self.paths and path != os.path.dirname(path):
            path = os.path.dirname(path)
        return path

    def of(self, path: str) -> Mount:
        """The mount of a path that exists; symbolic links are followed."""
        at = self.above(os.path.realpath(path))
        return Mount(at, number_of(at))


class Shared:
    """The file systems of this host that all hosts share. ``numbers``: as the controller knows them; those that are other
    ones here are none. ``host``: this one's name. Raises OSError."""

    def __init__(self, numbers: Numbers, host: str) -> None:
        self.host = host
        self._mounts = Mounts()
        self._devices: dict[str, int] = {}
        found: dict[int, int] = {}
        for path, number in sorted(numbers.items()):
            if path in self._mounts.paths and number_of(path) == number:
                self._devices[path] = os.stat(path).st_dev
                found.setdefault(self._devices[path], number)
        self._numbers = found
        self._known: dict[str, str] = {}

    def use(self) -> None:
        """From now on this process knows these file systems by their numbers (:func:`ckpt.undo.keeping.look`)."""
        _status.share(self._numbers)

    @property
    def mounts(self) -> list[str]:
        """Where they are mounted."""
        return sorted(self._devices)

    def local_to(self, path: str) -> str:
        """Where the file system of this canonical path is mounted, if it is not shared; "": it is."""
        directory = os.path.dirname(path)
        found = self._known.get(directory)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[directory] = self._find(directory)
        return found

    def _find(self, directory: str) -> str:
        at = self._mounts.above(directory)
        if at not in self._devices:
            return at
        while True:  # the directory may not be there
            try:
                is_it = os.stat(directory).st_dev == self._devices[at]
            except OSError:
                if directory == at:
                    return at
                directory = os.path.dirname(directory)
            else:
                return "" if is_it else directory  # something is mounted there since


def number_of(path: str) -> int:
    """What hosts know a file system by that is mounted here; 0: it cannot be known."""
    try:
        found: Any = _status.look(path)
    except OSError:
        return 0
    if found is None:
        return 0
    text = f"{path}\0{found[1]}\0{found[2]}".encode("utf-8", "surrogateescape")
    # Greater than any device number
    return int.from_bytes(blake3(text).digest(length=8), "big") >> 1 | 1 << 62


def _unescaped(text: str) -> str:
    if "\\" in text:
        for code, character in _ESCAPED.items():
            text = text.replace(code, character)
    return text
