"""Which files and directories a rank's program has made, or appended to, so that going back can undo that. (driver)

When the program goes back to a checkpoint, or to its start, it does again what it has done since. Opened with "w" a file is
emptied, and becomes the same. What is appended would be there twice, and what is made anew would be there already. So before
the first such change of a path a line is written to a file of the job: the path, and the length of the file then (-1: it
was not there; -2: a directory is made; -3: a link or pipe is made). An image has the paths that were noted until then, with
the lengths at that moment.

    going back      a path in the image     cut to its length in the image
                    another noted one       cut to the length that was noted, or removed, as links and pipes are;
                                            a directory may be made again

An image that was taken without replicas has no paths. So when the program first goes on from it, what was noted before says
nothing, and files stay as they are; their lengths at that moment are written down for this image.

All replicas of the rank do that, to the same effect, before one of them goes on.

Not here: other changes (files that were written over, removed or renamed since stay as they are).
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

__all__ = ["DIRECTORY", "NAME", "Notes"]

ABSENT, DIRECTORY, NAME = -1, -2, -3


class Notes:
    """The notes of one rank, in the file `path`; empty: nothing is noted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.known: dict[str, int] = {}
        self.may_exist: set[str] = set()
        """Directories that the program makes again."""

    def note(self, target: str, made: int = 0) -> None:
        """The leader is about to change `target`, or to make it (`made`: DIRECTORY or NAME). Raises OSError: it could not be
        noted, so it is not changed."""
        if not self.path or target in self.known:
            return
        self.known |= self.read()
        if target in self.known:
            return
        length = made or (os.stat(target).st_size if os.path.exists(target) else ABSENT)
        self.known[target] = length
        self._write([target, length])

    def read(self) -> dict[str, int]:
        """What has been noted, by this process or another one. A line that its writer did not finish was followed by no
        change."""
        found: dict[str, int] = {}
        for target, length in self._lines():
            if isinstance(target, str):
                found.setdefault(target, length)
        return found

    def _lines(self) -> list[Any]:
        found = []
        if os.path.exists(self.path):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                for line in file.read().split(b"\n"):
                    with contextlib.suppress(ValueError):
                        found.append(json.loads(line))
        return found

    def _write(self, line: list[Any]) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(line).encode() + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)

    def lengths(self) -> dict[str, int]:
        """For an image: what has been noted, with the present lengths."""
        found = {}
        for target, length in (self.read() if self.path else {}).items():
            is_file = length not in (DIRECTORY, NAME) and os.path.exists(target)
            found[target] = os.stat(target).st_size if is_file else length
        return found

    def lengths_without_replicas(self, epoch: int) -> dict[str, int]:
        """The lengths for the image of this epoch, which was taken without replicas: those of the first time that the
        program goes on from it."""
        if not self.path:
            return {}
        for first, lengths in self._lines():
            if first == epoch:
                return dict(lengths)
        now = {}
        for target, length in self.lengths().items():
            if os.path.lexists(target):
                now[target] = length
            elif length >= 0:
                now[target] = ABSENT
        self._write([epoch, now])
        return now

    def go_back(self, image: dict[str, int]) -> None:
        """The program goes on from an image with these `lengths`; {}: from its start."""
        self.known = self.read() if self.path else {}
        for target, length in self.known.items():
            length = image.get(target, length)
            if length == DIRECTORY:
                if target not in image:
                    self.may_exist.add(target)
            elif length == ABSENT or (length == NAME and target not in image):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(target)
            elif length >= 0 and os.path.exists(target) and os.stat(target).st_size > length:
                os.truncate(target, length)
