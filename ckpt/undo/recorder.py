"""Decides which before-images an operation on files needs: the state machine of one rank's undo log.

An event is an operation that is about to begin, with what its paths are bound to at this moment; the answer is what must be
kept before the operation may go on. The recorder knows, for the interval since the last checkpoint:

names       recorded already: the first record counts; again, if another rank has put another directory above it
files       whose contents, or attributes, are recorded already
moves       directories of the checkpoint that have another name now; a path below one is recorded with its old name
made        directories that this rank has made since, and when. Nothing below such a directory is recorded: a restart
            removes it as a whole. An older directory at such a path, which this rank has not moved there, belongs to another
            rank: all changes below it are recorded. The same holds for paths from which it has renamed a directory: what
            another rank makes there is new, and names in it are not those of the directory that was there
changes     of each path, when this rank last began to write to it, or to bind it to another file; the newest last
unconfirmed the last renaming or removal of a directory. It is seen before it begins, and may fail; so the next event brings
            what the path is bound to now, and a record says whether it has happened. An event of another thread may come
            between the operation's own event and its beginning: then it is not yet known

A file that is about to be appended to needs its length only, any other change a copy of its contents; an appended file that
is then changed otherwise gets its copy, too. A file that is open for writing when the interval begins may change unseen from
then on, so its content is recorded at once.

Pure. Not here: how something is kept (:mod:`ckpt.undo.keeping`), which paths are canonical, which are left alone.

This module is long because it is one state machine: what one operation has told decides what another one needs.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from ckpt.transport.records import NamedTuple
from ckpt.undo.path_table import PathTable
from ckpt.undo.records import (
    CLOCK_NS,
    Attributes,
    Binding,
    Content,
    FileId,
    Moved,
    Name,
    Outcome,
    Record,
    Status,
    and_above,
    dirname,
)

__all__ = ["Changes", "Keep", "Kind", "OpenFile", "Operation", "Recorder", "Tables"]

NEVER_NS: Final = (1 << 63) - 1


Kind = Literal["append", "rewrite", "cut", "directory", "link", "remove", "rename", "attributes"]

_CHANGES: Final = ("append", "rewrite", "cut", "rename")


class Operation(NamedTuple):
    """What is about to happen to ``path``.

    ``append``, ``rewrite``: opened for writing, or truncated; made if it does not exist. ``cut``: truncated, and all that
    changes in this interval is behind the offset ``start``. ``directory``: one is made.
    ``link``: a hard link to ``target`` is made, or (no target) a symbolic link or special file. ``remove``: of any type.
    ``rename``: to ``target``. ``attributes``: mode, owner or times change.
    """

    kind: Kind
    path: str
    target: str = ""
    start: int = 0


class Changes(NamedTuple):
    """Many operations on files that are about to happen. ``names``: they are free, or bound to a file, and will be bound to
    something else. ``linked``: names of files that get other names besides. ``written``: names of files whose contents
    change.
    """

    names: dict[str, Binding]
    linked: dict[str, Status]
    written: dict[str, Status]


class OpenFile(NamedTuple):
    """A file that the program has open for writing when an interval begins. ``path``: a name of the file. ``appends``: what
    is written goes to its end. ``written``: see :class:`~ckpt.undo.records.Content`. ``fd``: a descriptor that can read the
    file, or -1. ``is_locked``: the process has a POSIX lock on the file, and would lose it by closing another descriptor.
    ``inode``: device and number, as :func:`os.stat` has them, of a file that is at its end, and that the program may also
    write elsewhere: that is told.
    """

    path: str
    status: Status
    appends: bool
    written: int = 0
    fd: int = -1
    is_locked: bool = False
    inode: tuple[int, int] | None = None


class Keep(NamedTuple):
    """A record to be written. Before, a hard link to what ``path`` is bound to, or a copy, is made, if the record has a
    number for it (``kept``, ``copy``). ``open``: the file is open already, as this says.
    """

    record: Record
    path: str = ""
    open: OpenFile | None = None


class Tables(NamedTuple):
    """What the recorder knows of names and files in this interval; ``names``, ``mixed`` and ``changes`` may be added to. See
    :class:`Recorder`."""

    new_after_ns: int
    names: dict[str, Binding]
    contents: dict[FileId, bool]
    old: set[FileId]
    linked: set[FileId]
    written_as: set[tuple[FileId, str]]
    mixed: set[str]
    changes: dict[str, int]


class Recorder:
    """The undo log of one rank; begins with an interval that nothing is recorded in."""

    def __init__(self, margin_ns: int = 0) -> None:
        """``margin_ns``: by so much may the clock that files are stamped with differ from this host's."""
        self._margin_ns = margin_ns
        self._last = 0  # the number of the last thing kept
        self._is_new = True
        self._forget()

    def begin(
        self, now_ns: int, open_files: Sequence[OpenFile] = (), *, is_line_whole: bool = True
    ) -> list[Keep]:
        """A checkpoint has been taken: an interval begins. What to keep at once. ``is_line_whole``: no other rank will do
        anything more before the line of this checkpoint; if not, :meth:`settle` says when that is so."""
        if not self._is_new:
            self._forget()
        self._is_new = False
        self._new_after_ns = now_ns + self._margin_ns if is_line_whole else NEVER_NS
        if not open_files:
            return []
        appended = {file.status.file for file in open_files} - {
            file.status.file for file in open_files if not file.appends
        }
        return [keep for file in open_files for keep in self._at_the_beginning(file, appended, now_ns)]

    def _forget(self) -> None:
        """Nothing is known. A recorder that is new needs none of this when its interval begins, while the program stands
        still."""
        self._is_new = True
        self._new_after_ns = NEVER_NS  # a file that is made later is in no line that a restart may use
        self._names: dict[str, Binding] = {}
        # First names of directories -> what they were when they were seen last.
        self._directories: dict[str, FileId] = {}
        self._changes: dict[str, int] = {}
        self._contents: dict[FileId, bool] = {}  # True: complete; False: the length only
        self._attributes: set[FileId] = set()
        self._linked: set[FileId] = set()
        self._written_as: set[tuple[FileId, str]] = set()
        self._old: set[FileId] = set()  # files with recorded names
        self._linked_from: dict[FileId, str] = {}  # files with a new name -> the name that they had
        self._moves: PathTable[str] = PathTable()  # name now -> name at the beginning of the interval
        # New directories, by their names now -> when they were made; left ones.
        self._made: PathTable[int] = PathTable()
        # New directories in which not all has been made: something was renamed to there, or linked. Once there is one, no
        # new directory is settled without a look, since it may have been renamed with what is in it.
        self._mixed: set[str] = set()
        self._unconfirmed: Moved | None = None
        self._thread = 0  # the one that has told of it

    def _at_the_beginning(self, file: OpenFile, appended: set[FileId], now_ns: int) -> Iterator[Keep]:
        status, identity = file.status, file.status.file
        self._old.add(identity)
        self._written_as.add((identity, file.path))
        copies = identity not in appended and status.nbytes > 0
        if identity in self._contents and (copies or not file.written):
            return  # the record of another descriptor says it
        copies = copies and not (file.is_locked and file.fd < 0)
        self._contents[identity] = copies or status.nbytes == 0
        copy = self._number() if copies else 0
        record = Content(file.path, status, copy, "", file.written, 0, now_ns, is_open=1)
        yield Keep(record, file.path, file)

    def settle(self, now_ns: int) -> int:
        """The line is committed, so all ranks have taken their checkpoints of it; or it was given up, and the line before
        was committed at this time. Until then another rank may make a file which this rank changes after its own checkpoint
        of the line, and which belongs to the line. Returns the new :attr:`Tables.new_after_ns`."""
        self._new_after_ns = now_ns + self._margin_ns
        return self._new_after_ns

    def end(self, seen: Mapping[str, Binding], now_ns: int) -> list[Keep]:
        """The interval ends: the last records of its log."""
        return list(self._confirmed(seen, now_ns))

    def paths(self, operation: Operation | None = None) -> tuple[str, ...]:
        """The paths whose bindings :meth:`before` wants, or (no operation) :meth:`end`."""
        named = () if operation is None else (operation.path, operation.target)[: 1 + bool(operation.target)]
        above = (*map(dirname, named),)
        new_above = (each for path in above for each in self._new_above(path)) if self._made else ()
        if (moved := self._unconfirmed) is None:
            return (*named, *above, *new_above)
        # What is new at either of its names is known when it is known whether it has happened
        moving = {moved.source, moved.target}
        perhaps_new = (
            each for path in above for each in and_above(path) if not moving.isdisjoint(and_above(each))
        )
        return (*named, *above, *new_above, *perhaps_new, _shown_by(moved))

    def before(
        self, operation: Operation, seen: Mapping[str, Binding], now_ns: int, thread: int = 0
    ) -> list[Keep]:
        """What to keep before the operation, in this order. ``seen``: the bindings of :meth:`paths`, symbolic links not
        followed. ``thread``: the one that is about to begin the operation."""
        self._is_new = False
        kept: list[Keep] = []
        if self._unconfirmed is not None:
            may_wait = operation.kind not in ("rename", "remove") and thread != self._thread
            kept += self._confirmed(seen, now_ns, may_wait=may_wait)
        self._thread = self._thread if self._unconfirmed is not None else thread
        path, binding = operation.path, seen[operation.path]
        named = (path, operation.target) if operation.target else (path,)
        directories = [dirname(each) for each in named]
        for directory in directories:
            above = seen[directory]
            if above is None or not above.is_directory:
                return kept  # it fails; and the path may be the old name of something that has moved
        for each, directory in zip(named, directories, strict=True):
            if self._made:
                self._tell_apart(each, seen)
            self._recognize(directory, seen)
        if operation.kind in _CHANGES and binding is not None:
            name = self._original_name(operation.target or path)
            self._changes.pop(name, None)
            self._changes[name] = now_ns
        match operation.kind:
            case "append" | "rewrite" | "cut":
                kept += self._before_writing(operation, binding, now_ns)
            case "directory" | "link":
                kept += self._name(path, binding, now_ns)
                if binding is None and operation.kind == "directory":
                    self._made[path] = now_ns
                if operation.kind == "link":
                    self._mix(path, operation.target)
                if operation.target and (linked := seen[operation.target]) is not None and linked.is_file:
                    # Another rank that then writes to the file by its new name does not know the old one
                    kept += self._before_attributes(operation.target, linked, now_ns)
                    self._before_linking(operation.target, linked)
            case "remove":
                kept += self._before_removing(path, binding, now_ns)
            case "rename":
                self._mix(operation.target, path)
                kept += self._before_renaming(path, operation.target, seen, now_ns)
            case "attributes":
                kept += self._before_attributes(path, binding, now_ns)
        return kept

    def ahead(self, changes: Changes, seen: Mapping[str, Binding], now_ns: int) -> list[Keep]:
        """What to keep before all these changes, the only ones that anybody makes meanwhile. ``seen``: the bindings of
        :meth:`paths`."""
        self._is_new = False
        kept = list(self._confirmed(seen, now_ns))
        for path, binding in changes.names.items():
            kept += self._name(path, binding, now_ns)
        for path, status in changes.linked.items():
            self._before_linking(path, status)
        for path, status in changes.written.items():
            kept += self._before_writing(Operation("rewrite", path), status, now_ns)
        return kept

    def _mix(self, name: str, source: str) -> None:
        """Something that has the name ``source`` gets this name. A symbolic link has no source, and leads anywhere."""
        if not self._made:
            return
        directory = dirname(name)
        if self._is_in_new(directory) and (self._mixed or not self._is_in_new(dirname(source))):
            self._mixed.add(directory)

    def unlinkable(self, keep: Keep, status: Status) -> list[Keep]:
        """No hard link could be made for a name: what to keep instead. ``status``: of what ``keep.path`` is bound to."""
        record = keep.record
        assert isinstance(record, Name)
        self._linked.discard(status.file)
        unlinked = Keep(record._replace(kept=0), keep.path)
        if self._contents.get(status.file):
            return [unlinked]
        self._contents[status.file] = True
        self._written_as.add((status.file, record.path))
        return [
            Keep(Content(record.path, status, self._number(), "", 0, 0, record.time_ns), keep.path),
            unlinked,
        ]

    def rebound(self, keep: Keep, binding: Binding, now_ns: int) -> Keep:
        """Since the operation's paths were looked at, another process has bound the name to something else, as when two
        ranks replace one file at once. What was there before belongs to the record of that one, if it is a rank; this one's
        says what this operation will find, and says so after the other's. Returns what to keep instead."""
        record = keep.record
        assert isinstance(record, Name) and record.binding is not None
        self._linked.discard(record.binding.file)
        self._names[record.path] = binding
        link = 0
        if binding is not None:
            self._old.add(binding.file)
            link = self._link(binding) if binding.is_file else 0
        return keep._replace(record=record._replace(binding=binding, kept=link, time_ns=now_ns))

    def tables(self) -> Tables:
        """For who answers common operations without this object (fast_path.c); until the next interval begins."""
        self._is_new = False
        return Tables(
            self._new_after_ns,
            self._names,
            self._contents,
            self._old,
            self._linked,
            self._written_as,
            self._mixed,
            self._changes,
        )

    def changed_paths(self) -> set[str]:
        """The names that this rank has changed, or whose files, as they were when the interval began."""
        return self._names.keys() | {name for _, name in self._written_as}

    @property
    def changes(self) -> dict[str, int]:
        """When this rank began its last change of a path, in ns, the newest last. Paths are those at the beginning of the
        interval."""
        return self._changes

    def standing(self, directory: str) -> Literal["plain", "new", "moved"]:
        """Of a directory: it has the name that it had when the interval began; it has been made since; neither."""
        if self._is_in_new(directory):
            return "new"
        return "plain" if self._original(directory) == directory else "moved"

    def is_new(self, path: str, status: Status) -> bool:
        """Has this rank, or another one, made the file or directory since the interval began? Then a restart removes it."""
        if status.is_directory:
            return self._is_in_new(path)
        was_free = self._names.get(self._original_name(path), status) is None
        age = self._age(path, status)
        return age == "new" or (age == "unsure" and was_free)

    # ------------------------------------------------------------------ operations

    def _before_writing(self, operation: Operation, binding: Binding, now_ns: int) -> Iterator[Keep]:
        path, appends, start = operation.path, operation.kind == "append", operation.start
        if binding is None:
            yield from self._name(path, None, now_ns)
        elif binding.is_file and (age := self._age(path, binding)) != "new":
            is_complete = self._contents.get(binding.file)
            if is_complete or (is_complete is False and operation.kind != "rewrite"):
                yield from self._other_name(path, binding, now_ns)
                return
            copies = not appends and binding.nbytes > 0
            self._contents[binding.file] = (copies and not start) or binding.nbytes == 0
            copy = self._number() if copies else 0
            name = self._linked_from.get(binding.file) or self._original_name(path)
            self._written_as.add((binding.file, name))
            record = Content(name, binding, copy, "", 0, int(age == "unsure"), now_ns, start=start)
            yield Keep(record, path)

    def _before_linking(self, path: str, linked: Status) -> None:
        if self._age(path, linked) == "old":
            self._old.add(linked.file)
            self._linked_from.setdefault(linked.file, self._original_name(path))

    def _other_name(self, path: str, binding: Status, now_ns: int) -> Iterator[Keep]:
        """A file is changed again: where no hard link to it could be kept, a restart has to know all its names."""
        name = self._original_name(path)
        if binding.file not in self._linked and (binding.file, name) not in self._written_as:
            self._written_as.add((binding.file, name))
            yield Keep(Attributes(name, binding, 1, now_ns), path)

    def _before_removing(self, path: str, binding: Binding, now_ns: int) -> Iterator[Keep]:
        if binding is None:
            return
        yield from self._name(path, binding, now_ns)
        if binding.is_directory:
            yield from self._move(path, "", binding, now_ns)

    def _before_renaming(
        self, source: str, target: str, seen: Mapping[str, Binding], now_ns: int
    ) -> Iterator[Keep]:
        moving, replaced = seen[source], seen[target]
        if moving is None:  # it fails, or another rank makes the name just now, and says what it was
            yield from self._name(target, replaced, now_ns)
            return
        if replaced is not None and moving.file == replaced.file:
            return  # two names of one file: nothing happens (rename(2))
        yield from self._name(source, moving, now_ns)
        yield from self._name(target, replaced, now_ns)
        if moving.is_directory:
            if replaced is not None and replaced.is_directory:
                yield from self._move(target, "", replaced, now_ns)
            yield from self._move(source, target, moving, now_ns)

    def _before_attributes(self, path: str, binding: Binding, now_ns: int) -> Iterator[Keep]:
        if binding is None or not (binding.is_file or binding.is_directory):
            return
        age = (
            ("new" if self._is_in_new(path) else "old") if binding.is_directory else self._age(path, binding)
        )
        if age == "new":
            return
        if binding.file in self._attributes or binding.file in self._contents:
            if binding.is_file:
                yield from self._other_name(path, binding, now_ns)
            return
        self._attributes.add(binding.file)
        name = self._original_name(path) if binding.is_file else self._original(path)
        name = self._linked_from.get(binding.file) or name
        self._written_as.add((binding.file, name))
        yield Keep(Attributes(name, binding, int(age == "unsure"), now_ns), path)

    def _name(self, path: str, binding: Binding, now_ns: int) -> Iterator[Keep]:
        """The record of a name, if this is its first change."""
        name = self._original_name(path)
        if name in self._names or (self._made and self._is_in_new(dirname(path))):
            return
        self._names[name] = binding
        if binding is not None:
            self._old.add(binding.file)
        link = self._link(binding) if binding is not None and binding.is_file else 0
        yield Keep(Name(name, binding, link, now_ns), path)

    def _move(self, source: str, target: str, moving: Status, now_ns: int) -> Iterator[Keep]:
        """A directory leaves its name."""
        is_new = self._is_in_new(source)
        moved = Moved(self._original(source), moving.file, source, target, int(is_new), now_ns)
        yield Keep(moved)
        if self._unconfirmed is None:  # else it replaces a directory, as a part of the same operation
            self._moves.begin()
            self._made.begin()
        self._unconfirmed = moved
        if not target:
            self._moves.remove(source)
            self._made.remove(source)
            return
        self._made.remove_all(target)  # what was known of directories that were there before
        self._moves.rename(source, target)
        self._made.rename(source, target)
        if not is_new and moved.path != target:
            self._moves.put(target, moved.path)

    def _confirmed(
        self, seen: Mapping[str, Binding], now_ns: int, *, may_wait: bool = False
    ) -> Iterator[Keep]:
        """Whether the last operation on a directory has happened. If not, what was known before it is right. ``may_wait``:
        another thread may be about to begin it."""
        moved = self._unconfirmed
        if moved is None:
            return
        happened = _has_happened(moved, seen[_shown_by(moved)])
        if may_wait and not happened:
            return
        self._unconfirmed = None
        yield Keep(Outcome(moved.path, int(happened), now_ns))
        if not happened:
            self._moves.take_back()
            self._made.take_back()
        elif moved.target and not moved.is_new:
            self._made[moved.source] = moved.time_ns

    # ------------------------------------------------------------------ what is known

    def _recognize(self, directory: str, seen: Mapping[str, Binding]) -> None:
        """Another rank may have put another directory there: names in it are others than those recorded."""
        binding = seen[directory]
        if binding is None or self._is_in_new(directory):
            return
        name = self._original(directory)
        if self._directories.setdefault(name, binding.file) != binding.file:
            self._directories[name] = binding.file
            for each in [each for each in self._names if each.startswith(name + posixpath.sep)]:
                del self._names[each]

    def _age(self, path: str, status: Status) -> Literal["old", "new", "unsure"]:
        """Was the file there at the line? Another rank may have put an old one under a new name."""
        file = status.file
        in_new = self._is_in_new(dirname(path))
        named = self._names.get(self._original_name(path), status)
        is_named = not in_new and named is not None and named.file == file
        if is_named or file in self._old:
            return "old"
        return "new" if file.born_ns > self._new_after_ns else "unsure"

    def _is_in_new(self, directory: str) -> bool:
        """Is this a directory that this rank has made, or below one?"""
        return bool(self._made and self._new_above(directory))

    def _new_above(self, directory: str) -> list[str]:
        """The directory, if it is new or below a new one, and those above it, up to one that this rank has made."""
        found: list[str] = []
        while directory not in self._moves and directory != dirname(directory):
            found.append(directory)
            if directory in self._made:
                return found
            directory = dirname(directory)
        return []

    def _tell_apart(self, path: str, seen: Mapping[str, Binding]) -> None:
        """A directory that is older than the new one that it should be, or be in, has been put there by another rank."""
        for directory in reversed(found := self._new_above(path)):
            binding = seen[directory]
            born_ns = binding.file.born_ns if binding is not None and binding.is_directory else 0
            if born_ns and born_ns <= self._made[found[-1]] - max(CLOCK_NS, self._margin_ns):
                self._moves[directory] = directory  # what name it had is not known
                break

    def _link(self, status: Status) -> int:
        """The number of a hard link to be made to a file that leaves its name; 0: there is one."""
        if status.file in self._linked:
            return 0
        self._linked.add(status.file)
        return self._number()

    def _original(self, directory: str) -> str:
        """The name that the directory had when the interval began."""
        if not self._moves:
            return directory
        tail, at = "", directory
        while at not in self._moves:
            above, slash, name = at.rpartition(posixpath.sep)
            if not above:
                return directory
            at, tail = above, slash + name + tail
        return self._moves[at] + tail

    def _original_name(self, path: str) -> str:
        if not self._moves:
            return path
        directory, slash, name = path.rpartition(posixpath.sep)
        return self._original(directory) + slash + name

    def _number(self) -> int:
        self._last += 1
        return self._last


def _shown_by(moved: Moved) -> str:  # the path that shows whether it has happened
    return moved.target or moved.source


def _has_happened(moved: Moved, binding: Binding) -> bool:
    return (binding is not None and binding.file == moved.file) == bool(moved.target)
