"""A simulated disk with the states that a crash may leave behind and with failing calls. For tests and simulations.

`SimulatedDisk` takes the place of `FileSystem`. It keeps the files as a program sees them, and for every
change it knows whether a sync has covered it:

    write of a file      durable after a successful fsync of that file
    create, rename, unlink, mkdir of an entry   durable after a successful sync of that directory
    fsync of a file says nothing about the entry; sync of a directory says nothing about the content
    entries below a directory whose own entry is lost are lost too

`crash_states` yields every content of the disk that a power failure could leave: all durable changes, and any subset of the
others, in order; an unsynced write may also survive by half. A rename is atomic. After a *failed*
sync, the changes that it should have covered stay doubtful for ever, even if a later sync reports success: that is how
Linux behaves, and why the store never syncs the same file again.

`Faults` lets the nth call fail, once or from then on: with an errno, by a short write, or with MemoryError.
`ignore_sync` is a mutation for tests: the nth sync does nothing and reports success.

Pure: no clock, no files, no randomness. This module is long because each call has its states after a crash.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

from ckpt.store.disk.fsio import Buffer, FileSystem
from ckpt.transport.records import dataclass, field

__all__ = ["NO_MEMORY", "SHORT", "Faults", "SimulatedDisk"]

SHORT: Final = -1
"""Instead of an errno: the write takes only half."""

NO_MEMORY: Final = -2
"""Instead of an errno: MemoryError, before anything was done."""

Files = dict[str, bytes]

_DIRECTORY: Final = 0
"""Instead of an inode number: the entry is a directory."""


@dataclass
class Faults:
    """Which call fails, and how.

    Attributes:
        at: number of the call that fails, from 0; None: none fails.
        error: errno, SHORT (writes only; other calls succeed) or NO_MEMORY.
        forever: all later calls fail too.
        only: names of the calls that are counted and may fail; empty: all.
        calls: number of calls counted so far.
        hit: name of the first call that failed.
    """

    at: int | None = None
    error: int = errno.EIO
    forever: bool = False
    only: frozenset[str] = frozenset()
    calls: int = 0
    hit: str | None = None

    def check(self, call: str, path: str) -> bool:
        """Count a call; raise OSError or MemoryError if it has to fail; return True if the write has to be short."""
        if self.only and call not in self.only:
            return False
        number, self.calls = self.calls, self.calls + 1
        if self.at is None or number < self.at or (number > self.at and not self.forever):
            return False
        self.hit = self.hit or call
        if self.error == SHORT:
            return call == "pwrite"
        if self.error == NO_MEMORY:
            raise MemoryError(f"{call} {path}")
        raise OSError(self.error, os.strerror(self.error), path)


@dataclass
class _Change:
    """One change: of a file's bytes (`target`: inode) or of a directory's entries (`target`: path; inode None: removed)."""

    target: str | int
    offset: int = 0
    data: bytes = b""
    entries: tuple[tuple[str, int | None], ...] = ()
    durable: bool = False
    doubtful: bool = False


@dataclass
class _Inode:
    number: int
    content: bytearray = field(default_factory=bytearray)
    locked_by: int | None = None


class SimulatedDisk(FileSystem):
    """A simulated disk; see the module's header.

    Args:
        directories: absolute paths that exist.
        files: absolute path -> content, all durable.
        faults: the call that fails; None: none does.
        ignore_sync: number of the sync (fsync and directory syncs, from 0) that does nothing and reports
            success.
    """

    def __init__(
        self,
        directories: Iterable[str],
        files: Mapping[str, bytes] | None = None,
        *,
        faults: Faults | None = None,
        ignore_sync: int | None = None,
    ) -> None:
        self.directories = set(directories)
        self.faults = faults or Faults()
        self.syncs = 0
        self._ignore_sync = ignore_sync
        self._inodes: dict[int, _Inode] = {}
        self._entries: dict[str, int] = {}
        self._open: dict[int, tuple[int, str]] = {}
        self._next_fd = 1000
        self._changes: list[_Change] = []
        self._initial: dict[str, int] = {}
        for path, content in (files or {}).items():
            self._entries[path] = self._initial[path] = self._new_inode(bytearray(content))
        self._initial_content = {number: bytes(node.content) for number, node in self._inodes.items()}

    def _new_inode(self, content: bytearray) -> int:
        number = len(self._inodes) + 1
        self._inodes[number] = _Inode(number, content)
        return number

    def _open_fd(self, inode: int, path: str) -> int:
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = (inode, path)
        return fd

    def _missing(self, path: str) -> OSError:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    # ---- calls that change something

    def create(self, path: str, *, direct: bool = False) -> int:
        self.faults.check("create", path)
        if os.path.dirname(path) not in self.directories:
            raise self._missing(path)
        if path in self._entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        inode = self._entries[path] = self._new_inode(bytearray())
        self._changes.append(_Change(os.path.dirname(path), entries=((path, inode),)))
        return self._open_fd(inode, path)

    def set_direct(self, fd: int, direct: bool) -> None:
        self.faults.check("set_direct", self._open[fd][1])

    def try_lock(self, fd: int) -> bool:
        inode, path = self._open[fd]
        self.faults.check("try_lock", path)
        holder = self._inodes[inode].locked_by
        if holder is not None and holder != fd:
            return False
        self._inodes[inode].locked_by = fd
        return True

    def pwrite(self, fd: int, data: Buffer, offset: int) -> int:
        inode, path = self._open[fd]
        taken = bytes(data)
        if self.faults.check("pwrite", path):
            taken = taken[: len(taken) // 2]
        content = self._inodes[inode].content
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(taken)] = taken
        self._changes.append(_Change(inode, offset=offset, data=taken))
        return len(taken)

    def open_lock(self, path: str) -> int:
        self.faults.check("open_lock", path)
        if path in self._entries:
            return self._open_fd(self._entries[path], path)
        inode = self._entries[path] = self._new_inode(bytearray())
        # Durable at once: whether the empty lock file survives a crash makes no difference, but would double the states.
        self._changes.append(_Change(os.path.dirname(path), entries=((path, inode),), durable=True))
        return self._open_fd(inode, path)

    def is_same_file(self, fd: int, path: str) -> bool:
        return self._entries.get(path) == self._open[fd][0]

    def sign(self, fd: int, text: bytes) -> None:
        """Does nothing: no simulated process reads the holder's name."""

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """One after the other, all of them, so that calls have numbers."""
        failures: list[BaseException] = []
        for call in calls:
            try:
                call()
            except BaseException as failure:  # as `FileSystem.at_once`
                failures.append(failure)
        if failures:
            raise failures[0]

    def fsync(self, fd: int) -> None:
        self._sync(self._open[fd][0], "fsync", self._open[fd][1])

    def sync_directory(self, path: str) -> None:
        self._sync(path, "sync_directory", path)

    def _sync(self, target: str | int, call: str, path: str) -> None:
        number, self.syncs = self.syncs, self.syncs + 1
        try:
            self.faults.check(call, path)
        except (OSError, MemoryError):
            for change in self._changes:
                if change.target == target and not change.durable:
                    change.doubtful = True
            raise
        if number == self._ignore_sync:
            return
        for change in self._changes:
            if change.target == target and not change.doubtful:
                change.durable = True

    def close(self, fd: int) -> None:
        inode, path = self._open.pop(fd)
        if self._inodes[inode].locked_by == fd:
            self._inodes[inode].locked_by = None
        self.faults.check("close", path)

    def replace(self, source: str, target: str) -> None:
        self.faults.check("replace", source)
        inode = self._inode_of(source)
        del self._entries[source]
        self._entries[target] = inode
        self._changes.append(_Change(os.path.dirname(target), entries=((source, None), (target, inode))))

    def link(self, source: str, target: str) -> None:
        self.faults.check("link", source)
        if target in self._entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        inode = self._entries[target] = self._inode_of(source)
        self._changes.append(_Change(os.path.dirname(target), entries=((target, inode),)))

    def link_count(self, fd: int) -> int:
        self.faults.check("link_count", self._open[fd][1])
        return list(self._entries.values()).count(self._open[fd][0])

    def make_directory(self, path: str) -> None:
        self.faults.check("make_directory", path)
        if path in self.directories:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if os.path.dirname(path) not in self.directories:
            raise self._missing(path)
        self.directories.add(path)
        self._changes.append(_Change(os.path.dirname(path), entries=((path, _DIRECTORY),)))

    def unlink(self, path: str) -> None:
        self.faults.check("unlink", path)
        if path not in self._entries:
            raise self._missing(path)
        del self._entries[path]
        self._changes.append(_Change(os.path.dirname(path), entries=((path, None),)))

    # ---- calls that change nothing

    def check_private(self, path: str) -> None:
        """Does nothing: the simulated disk has one user only."""

    def open_read(self, path: str) -> int:
        self.faults.check("open_read", path)
        return self._open_fd(self._inode_of(path), path)

    def preadv(self, fd: int, buffers: Sequence[memoryview | bytearray], offset: int) -> int:
        inode, path = self._open[fd]
        self.faults.check("preadv", path)
        total = 0
        with memoryview(self._inodes[inode].content) as content:
            for buffer in buffers:
                view = memoryview(buffer)
                part = content[offset + total : offset + total + len(view)]
                view[: len(part)] = part
                total += len(part)
        return total

    def size(self, fd: int) -> int:
        self.faults.check("size", self._open[fd][1])
        return len(self._inodes[self._open[fd][0]].content)

    def list_directory(self, path: str) -> list[str]:
        self.faults.check("list_directory", path)
        if path not in self.directories:
            raise self._missing(path)
        start = path + "/"
        length = len(start)
        found = (name[length:] for name in (*self._entries, *self.directories) if name.startswith(start))
        return sorted(name for name in found if "/" not in name)

    def file_size(self, path: str) -> int:
        self.faults.check("file_size", path)
        return len(self._content(path))

    def read_file(self, path: str, limit_bytes: int = 1 << 30) -> bytes:
        self.faults.check("read_file", path)
        return self._content(path)

    def _content(self, path: str) -> bytes:
        return bytes(self._inodes[self._inode_of(path)].content)

    def _inode_of(self, path: str) -> int:
        if path not in self._entries:
            raise self._missing(path)
        return self._entries[path]

    # ---- states after a crash

    @property
    def files(self) -> Files:
        """The files as a program sees them now: path -> content."""
        return {path: bytes(self._inodes[inode].content) for path, inode in self._entries.items()}

    @property
    def nodes(self) -> dict[str, _Inode]:
        """The inodes of the files, so that a test can damage their content: path -> inode."""
        return {path: self._inodes[inode] for path, inode in self._entries.items()}

    @property
    def open_files(self) -> int:
        """Number of descriptors that are not closed."""
        return len(self._open)

    @property
    def changes(self) -> int:
        """Number of changes so far."""
        return len(self._changes)

    def crash_states(self, limit: int = 1 << 14) -> Iterator[Files]:
        """Yield every content that the disk may have after a crash now, each once: path -> content.

        A directory made since the start is listed too, as `path/`, if it survives.

        Raises:
            ValueError: there are more than `limit` combinations of unsynced changes.
        """
        # for each unsynced change: (its number, 0: lost, 1: half of it, 2: all of it)
        open_choices: list[list[tuple[int, int]]] = []
        for number, change in enumerate(self._changes):
            if not change.durable:
                whole_or_not = [(number, 0), (number, 2)]
                open_choices.append([*whole_or_not, (number, 1)] if len(change.data) > 1 else whole_or_not)
        count = 1
        for choice in open_choices:
            count *= len(choice)
        if count > limit:
            raise ValueError(f"{count} crash states from {len(open_choices)} unsynced changes")
        seen: set[frozenset[tuple[str, bytes]]] = set()
        for picks in itertools.product(*open_choices):
            state = self._after(dict(picks))
            key = frozenset(state.items())
            if key not in seen:
                seen.add(key)
                yield state

    @property
    def settled(self) -> bool:
        """Are all changes durable?"""
        return all(change.durable for change in self._changes)

    def after_crash(self, random: Random) -> Files:
        """Return one of the `crash_states`, drawn at random."""
        return self._after(
            {
                number: random.choice((0, 1, 2) if len(change.data) > 1 else (0, 2))
                for number, change in enumerate(self._changes)
                if not change.durable
            }
        )

    def _after(self, picks: Mapping[int, int]) -> Files:
        entries = dict(self._initial)
        lost = {path for change in self._changes for path, inode in change.entries if inode == _DIRECTORY}
        contents: dict[int, bytearray] = {n: bytearray(data) for n, data in self._initial_content.items()}
        for number, change in enumerate(self._changes):
            pick = picks.get(number, 2)
            if pick == 0:
                continue
            if isinstance(change.target, int):
                content = contents.setdefault(change.target, bytearray())
                data = change.data if pick == 2 else change.data[: len(change.data) // 2]
                content.extend(bytes(max(0, change.offset - len(content))))
                content[change.offset : change.offset + len(data)] = data
            else:
                for path, inode in change.entries:
                    if inode is None:
                        entries.pop(path, None)
                    elif inode == _DIRECTORY:
                        lost.discard(path)
                    else:
                        entries[path] = inode
        made = {path for change in self._changes for path, inode in change.entries if inode == _DIRECTORY}
        entries |= {path + "/": _DIRECTORY for path in made - lost}
        return {
            path: bytes(contents.get(inode, b"")) if inode else b""
            for path, inode in entries.items()
            if not any(path.startswith(directory + "/") for directory in lost)
        }
