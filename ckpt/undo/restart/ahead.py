"""What a restart can record at once, before it changes anything: names of files, and contents.

A change that may be taken back is recorded before it is made. Where no directory of the checkpoint has moved, what is done
to one name of the plan leaves the others as they are: a name below one that was no directory is in no plan. So all are
looked at, and recorded, together, and so are contents; that takes half as long as one by one.

    name of the plan, bound to a file    recorded with its file, and with the name that the file gets in ``undone``
    name of the plan that is free        recorded as free
    contents, under a name that stays    copied
    all others                           told one by one, each before its change (:class:`ckpt.undo.restart.places.Places`)

Not here: how names are changed (:mod:`ckpt.undo.restart.putting_back`), the records
(:meth:`ckpt.undo.recorder.Recorder.ahead`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from ckpt.transport.records import NamedTuple
from ckpt.undo.planning.plan import Plan
from ckpt.undo.recorder import Changes
from ckpt.undo.records import Binding, FileId, Status
from ckpt.undo.restart.places import Places

__all__ = ["Ahead", "Undone", "record_ahead"]

_NAME_BYTES = 240  # of a name in `undone`, without its number
_AT_ONCE: Final = 10_000

_Key = TypeVar("_Key")


class Undone:
    """The directory for what stands in the way; it is made when there is something. ``places``: looks at names in it."""

    def __init__(self, directory: str, places: Places) -> None:
        self._directory, self._places = directory, places
        self._numbers: dict[bytes, int] = {}  # names -> the next number

    def free_name(self, path: str) -> str:
        """A path in the directory for what has this path now. Raises OSError."""
        if not self._numbers:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
        name = os.fsencode(os.path.basename(path))[:_NAME_BYTES]
        number = self._numbers.get(name, 0)
        while (
            self._places.look(target := f"{self._directory}{os.sep}{number}-{os.fsdecode(name)}") is not None
        ):
            number += 1
        self._numbers[name] = number + 1
        return target


class Ahead(NamedTuple):
    """What has been recorded. ``names``: they are to be bound to something else → what they are bound to, and the free name
    that it gets ("": nothing has the name). ``written``: files of the plan whose contents are to be written."""

    names: dict[str, tuple[Binding, str]]
    written: frozenset[FileId] = frozenset()


def record_ahead(
    plan: Plan, places: Places, undone: Undone, is_now: Callable[[Binding, FileId], bool]
) -> Ahead:
    """Record what the plan will change; nothing, where changes are not to be taken back. ``is_now``: is this the file of the
    checkpoint? Raises OSError, NotUndone."""
    if (record := places.record_ahead) is None or plan.directories:
        return Ahead({})
    changing = _changing(plan, places, is_now)
    found = {path: (now, undone.free_name(path) if now else "") for path, now in changing}
    written = {file: (path, now) for file, path, now in _written(plan, places, is_now)}
    for several in _pieces(found):
        names = {path: found[path][0] for path in several}
        names.update((target, None) for path in several if (target := found[path][1]))
        record(Changes(names, _linked(plan, several), {}))
    for files in _pieces(written):
        record(Changes({}, {}, dict(written[file] for file in files)))
    return Ahead(found, frozenset(written))


def _pieces(keys: Iterable[_Key]) -> Iterator[list[_Key]]:
    """So many at once that their lines of the log fit into memory."""
    left = iter(keys)
    while several := list(itertools.islice(left, _AT_ONCE)):
        yield several


def _changing(
    plan: Plan, places: Places, is_now: Callable[[Binding, FileId], bool]
) -> Iterator[tuple[str, Binding]]:
    """Names that are free, or of files, and will be bound to something else."""
    for path, binding in plan.names.items():
        now = places.look(path)
        if now is None:
            if binding is not None and not binding.is_directory:
                yield path, None
        elif now.is_file and (binding is None or not is_now(now, binding.file)):
            yield path, now


def _linked(plan: Plan, paths: Iterable[str]) -> dict[str, Status]:
    """The hard links that have been kept, and are to get these names."""
    bound = (plan.names[path] for path in paths)
    files = (plan.files[each.file] for each in bound if each is not None and each.is_file)
    return {file.link: file.linked for file in files if file.link and file.linked is not None}


def _written(
    plan: Plan, places: Places, is_now: Callable[[Binding, FileId], bool]
) -> Iterator[tuple[FileId, str, Status]]:
    """Files whose contents are to be written, a name of each that stays, and what it is bound to."""
    for file, each in plan.files.items():
        if each.copy and each.path not in plan.names:
            now = places.look(each.path)
            if now is not None and is_now(now, file):
                yield file, each.path, now
