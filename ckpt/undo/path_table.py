"""A dictionary by paths of directories: what is known of a directory, and of those below it, goes along when it is renamed.

What is below is found by an index, since a program may make, rename and remove thousands of directories.

Not here: what is known of directories (:mod:`ckpt.undo.recorder`).
"""

from __future__ import annotations

from typing import TypeVar

from ckpt.undo.records import and_above, renamed

__all__ = ["PathTable"]

Value = TypeVar("Value")


class PathTable(dict[str, Value]):
    """To be changed by items, and by its methods, only."""

    def __init__(self) -> None:
        super().__init__()
        self._below: dict[str, dict[str, None]] = {}  # a path -> those in the table that are it, or below it
        # Paths that were changed, and what was known of them
        self._before: list[tuple[str, Value | None]] = []

    def __setitem__(self, path: str, value: Value) -> None:
        if path not in self:
            for each in and_above(path):
                self._below.setdefault(each, {})[path] = None
        super().__setitem__(path, value)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        for each in and_above(path):
            del self._below[each][path]
            if not self._below[each]:
                del self._below[each]

    def begin(self) -> None:
        """What follows is one operation, for :meth:`take_back`."""
        self._before.clear()

    def rename(self, source: str, target: str) -> None:
        """The directory, and those below it, have other paths."""
        going = {path: self[path] for path in self._below.get(source, ())}
        for path in going:
            self.remove(path)
        for path, value in going.items():
            self.put(renamed(path, source, target), value)

    def put(self, path: str, value: Value) -> None:
        """Set an item, as a part of the operation."""
        self._before.append((path, self.get(path)))
        self[path] = value

    def remove(self, path: str) -> None:
        """Delete an item, if there is one, as a part of the operation."""
        if path in self:
            self._before.append((path, self[path]))
            del self[path]

    def remove_all(self, path: str) -> None:
        """Delete the item of the path, and those below it, as a part of the operation."""
        for each in list(self._below.get(path, ())):
            self.remove(each)

    def take_back(self) -> None:
        """The operation has not happened: what was known before it is right."""
        for path, value in reversed(self._before):
            if value is not None:
                self[path] = value
            elif path in self:
                del self[path]
        self._before.clear()
