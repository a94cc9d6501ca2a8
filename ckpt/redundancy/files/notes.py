"""What a rank's program changes in files, so that going back can undo it: a log of what was there before. (driver)

When the program goes back to a checkpoint, or to its start, it does again what it has done since. So files have to be what
they were: what it had appended would be there twice, and what it had written over or removed it would read, or miss. The
leader of the rank's replicas writes a line to the log of the rank *before* it changes something, if that changes first since
the last image:

    name         what the path was bound to; a file is kept, by a hard link, or as a copy where no link can be made
    content      the length of a file, and, where bytes within are about to change, a copy of it
    attributes   mode, owner and times
    moved        a directory gets another path, perhaps. What follows is noted anew, as after an image
    image        an image is taken. What follows was changed later

All changes of a rank are made one after the other, and none while an image of it is taken. So the place of the ``image`` is
that of the image, whoever takes it, and whoever leads.

Rules
- Going back to an image undoes what follows its line (:mod:`ckpt.redundancy.files.going_back`), and then cuts the log there.
  All replicas of the rank do that before one of them goes on; the first one finds something to do.
- An image that was taken without replicas has no line. It gets one when the program first goes on from it.
- A leader that dies has written its line or not: without a line nothing has been changed. A line that is not whole is none.
- Of images that are older than the last ``IMAGES`` (where much is kept: the last ``LEAST``) nothing is known any more. The
  beginning of the program is known always.

Not here: changes that are not made through :mod:`ckpt.redundancy.files.changes`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from typing import Any

__all__ = ["Line", "Notes", "Was", "copy_bytes", "look", "number_of"]

IMAGES = 64
LEAST = 4
COPIED_BYTES = 1 << 30
LINKED_BYTES = 1 << 34
"""Files that are kept by hard links are not copied, but stay on the disk."""
NOT_KEPT = -1
_PIECE_BYTES = 1 << 20

Line = list[Any]
Was = list[Any]
"""kind, device, inode, mode, user, group, atime and mtime in ns, length, target of a symbolic link, type and number of a
special file."""


def look(path: str) -> Was | None:
    """What the path is bound to; None: nothing."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    owner = [stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid]
    target = os.readlink(path) if kind == "link" else ""
    special = [stat.S_IFMT(found.st_mode), found.st_rdev]
    times = [found.st_atime_ns, found.st_mtime_ns]
    return [kind, found.st_dev, found.st_ino, *owner, *times, found.st_size, target, *special]


def copy_bytes(source: str, target: str, nbytes: int) -> None:
    """Write the first bytes of one file over those of another, which is made if it is not there. Raises OSError."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            at = 0
            while at < nbytes and (data := os.pread(reading, min(nbytes - at, _PIECE_BYTES), at)):
                at += os.pwrite(writing, data, at)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


class Notes:
    """The notes of one rank: the log `path`, and what is kept in the directory `path`.kept; empty: nothing is noted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.may_exist: set[str] = set()
        """Directories that the program makes again: they could not be removed."""
        self._seen = (0, 0)  # inode and length of the log, as far as it is known here
        self._clear()

    def _clear(self) -> None:
        """Nothing is known of the log."""
        self._forget()
        self._last = self._images = 0  # the highest number of what is kept; images in the log
        self._copied_bytes = self._linked_bytes = 0

    def _forget(self) -> None:
        self._names: dict[str, Was | None] = {}
        self._old: set[tuple[int, int]] = set()  # files that names were bound to
        self._contents: dict[tuple[int, int], int] = {}  # where they may change from; 0: all is kept
        self._attributes: set[tuple[int, int]] = set()

    # ---- before changes ----------------------------------------------------------------------------------

    def name(self, path: str) -> None:
        """The path is about to be bound to something else, or to nothing. Raises OSError: it could not be noted."""
        if not self.path:
            return
        here = _place(path)
        self._read()
        if here in self._names:
            return
        was = look(here)
        kept, is_copy = self._keep(here, was) if was is not None and was[0] == "file" else (0, False)
        self._append(["name", here, was, kept, is_copy])

    def content(self, path: str, at: int) -> None:
        """The file is about to change from the offset `at` on, or to be made. Raises OSError: it could not be noted."""
        if not self.path:
            return
        here = os.path.realpath(path)
        was = look(here)
        if was is None:
            self.name(here)
            return
        if was[0] != "file":
            return
        self._read()
        file = was[1], was[2]
        if here in self._names and file not in self._old:
            return  # it was made since
        known = self._contents.get(file)
        nbytes = was[8] if known is None else known
        if known == 0 or (known is not None and at >= nbytes):
            return
        kept = 0 if at >= nbytes else self._copy(here, nbytes)
        self._append(["content", here, was, nbytes, kept])

    def attributes(self, path: str) -> None:
        """Mode, owner or times are about to change. Raises OSError: it could not be noted."""
        if not self.path:
            return
        here = os.path.realpath(path)
        was = look(here)
        self._read()
        if was is not None and (was[1], was[2]) not in self._attributes:
            self._append(["attributes", here, was])

    def moved(self, path: str, target: str) -> None:
        """A directory is about to get another path. Raises OSError: it could not be noted."""
        if not self.path:
            return
        here, there = _place(path), _place(target)
        if (was := look(here)) is not None:
            self.name(there)
            self._append(["moved", here, there, was])

    def _keep(self, path: str, was: Was) -> tuple[int, bool]:
        """The number of what is kept of the file that the path is bound to; is it a copy?"""
        with contextlib.suppress(OSError):  # then no link can be made
            if self._linked_bytes + was[8] <= LINKED_BYTES:
                number = self._next()
                os.link(path, self.place(number), follow_symlinks=False)
                return number, False
        return self._copy(path, was[8]), True

    def _copy(self, path: str, nbytes: int) -> int:
        if self._copied_bytes + nbytes > COPIED_BYTES:
            return NOT_KEPT
        number = self._next()
        copy_bytes(path, self.place(number), nbytes)
        return number

    def _next(self) -> int:
        number = self._last + 1
        os.makedirs(self.kept, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.place(number))  # of somebody who died before it wrote its line
        return number

    # ---- images ------------------------------------------------------------------------------------------

    def image(self, name: str) -> str:
        """An image is taken, while the program stands still: what follows is changed later. Returns its name here."""
        if not self.path:
            return ""
        self._read()
        is_much = self._copied_bytes > COPIED_BYTES // 2 or self._linked_bytes > LINKED_BYTES // 2
        most = LEAST if is_much else IMAGES
        if self._images > most:
            lines = self.lines()
            self._merge(lines, [at for at, line in enumerate(lines) if line[0] == "image"][-most])
            self._read()
        found = f"{name} {self._seen[1]}"
        self._append(["image", found])
        return found

    def image_without_replicas(self, epoch: int) -> str:
        """The name of the image of this epoch, which was taken without replicas."""
        name = f"without replicas {epoch}"
        if self.path and ["image", name] not in self.lines():
            self._append(["image", name])
        return name

    def _merge(self, lines: list[Line], end: int) -> None:
        """Forget the images before `end`: of what follows them only what was first there is needed."""
        whole = Notes("")
        kept_lines, dropped = list[Line](), list[Line]()
        for line in lines[:end]:
            if line[0] == "image":
                continue
            if whole.knows(line):
                dropped.append(line)
            else:
                whole.learn(line)
                kept_lines.append(line)
        with self.locked():
            self.rewrite([*kept_lines, *lines[end:]])
        for line in dropped:
            with contextlib.suppress(OSError):
                os.unlink(self.place(number_of(line)))

    # ---- the log -----------------------------------------------------------------------------------------

    @property
    def kept(self) -> str:
        return self.path + ".kept"

    def place(self, number: int) -> str:
        """Where what has this number is kept."""
        return os.path.join(self.kept, str(number))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process alone goes back, or writes the log anew."""
        fd = os.open(self.path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def lines(self) -> list[Line]:
        """All whole lines of the log."""
        found = []
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        with os.fdopen(fd, "rb") as file:
            for text in file.read().split(b"\n"):
                with contextlib.suppress(ValueError):
                    found.append(json.loads(text))
        return found

    def rewrite(self, lines: list[Line]) -> None:
        """The log has these lines. Raises OSError."""
        fd = os.open(self.path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            for line in lines:
                file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(fd)
        os.replace(self.path + ".new", self.path)

    def _append(self, line: Line) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # The line before may be in part that of a process that was killed
            os.write(fd, b"\n" + json.dumps(line).encode() + b"\n")
            if (
                line[0] != "image"
            ):  # that one is on the disk with the next line, and until then nothing has changed
                os.fdatasync(fd)
            self.learn(line)
            status = os.fstat(fd)
            self._seen = (status.st_ino, status.st_size)
        finally:
            os.close(fd)

    def _read(self) -> None:
        """Another process may have led, or taken an image, since."""
        try:
            status = os.stat(self.path)
            seen = (status.st_ino, status.st_size)
        except FileNotFoundError:
            seen = (0, 0)
        if seen == self._seen:
            return
        self._clear()
        for line in self.lines():
            self.learn(line)
        self._seen = seen

    def knows(self, line: Line) -> bool:
        """Is there an earlier line, so that this one says nothing more?"""
        match line[0]:
            case "name":
                return line[1] in self._names
            case "content":
                known = self._contents.get((line[2][1], line[2][2]))
                is_new = line[1] in self._names and (line[2][1], line[2][2]) not in self._old
                return is_new or known == 0 or (known is not None and not line[4])
            case "attributes":
                return (line[2][1], line[2][2]) in self._attributes
        return False

    def learn(self, line: Line) -> None:
        """This line is in the log."""
        match line[0]:
            case "image" | "moved":
                self._forget()
                self._images += line[0] == "image"
            case "name":
                self._names[line[1]] = line[2]
                if line[2] is not None and not line[4]:  # else its inode may become that of another file
                    self._old.add((line[2][1], line[2][2]))
            case "content":
                self._contents[line[2][1], line[2][2]] = 0 if line[4] else line[3]
            case "attributes":
                self._attributes.add((line[2][1], line[2][2]))
        if (number := number_of(line)) > 0:
            self._last = max(self._last, number)
            if line[0] == "content":
                self._copied_bytes += line[3]
            elif line[4]:
                self._copied_bytes += line[2][8]
            else:
                self._linked_bytes += line[2][8]


def number_of(line: Line) -> int:
    """The number of what is kept for this line; 0, or less: nothing is."""
    if line[0] == "name":
        return int(line[3])
    return int(line[4]) if line[0] == "content" else 0


def _place(path: str) -> str:
    """The path without symbolic links above its last part."""
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)
