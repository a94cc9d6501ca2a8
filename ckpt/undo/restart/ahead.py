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
from typing import Final

from ckpt.transport.records import NamedTuple
from ckpt.undo.planning.plan import Plan
from ckpt.undo.recorder import Changes
from ckpt.undo.records import Binding, FileId, Status
from ckpt.undo.restart.places import Places, named

__all__ = ["Found", "Undone", "record_ahead"]

_NAME_BYTES = 240  # of a name in `undone`, without its number
_AT_ONCE: Final = 10_000


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


class Found(NamedTuple):
    """A name that is to be bound to something else. ``now``: what it is bound to. ``free``: the name that this gets in
    ``undone``; "": nothing has the name."""

    now: Binding
    free: str


def record_ahead(
    plan: Plan, places: Places, undone: Undone, is_now: Callable[[Binding, FileId], bool]
) -> dict[str, Found]:
    """Record what the plan will change; nothing, where changes are not to be taken back. ``is_now``: is this the file of the
    checkpoint? Returns names of the plan that have been looked at for that. Raises NotUndone."""
    if not places.is_recorded or plan.directories:
        return {}
    found = dict(_changing(plan, places, undone, is_now))
    written = dict(_written(plan, places, is_now))
    for several in _pieces(found):
        names = {path: found[path].now for path in several}
        names.update((free, None) for path in several if (free := found[path].free))
        places.record_ahead(Changes(names, _linked(plan, several), {}))
    for several in _pieces(written):
        places.record_ahead(Changes({}, {}, {path: written[path] for path in several}))
    return found


def _pieces(names: Iterable[str]) -> Iterator[list[str]]:
    """So many at once that their lines of the log fit into memory."""
    left = iter(names)
    while several := list(itertools.islice(left, _AT_ONCE)):
        yield several


def _changing(
    plan: Plan, places: Places, undone: Undone, is_now: Callable[[Binding, FileId], bool]
) -> Iterator[tuple[str, Found]]:
    """Names that are free, or of files, and will be bound to something else."""
    for path, binding in plan.names.items():
        with named(path):
            now = places.look(path)
            if now is None:
                if binding is not None and not binding.is_directory:
                    yield path, Found(None, "")
            elif now.is_file and (binding is None or not is_now(now, binding.file)):
                yield path, Found(now, undone.free_name(path))


def _linked(plan: Plan, paths: Iterable[str]) -> dict[str, Status]:
    """The hard links that have been kept, and are to get these names."""
    bound = (plan.names[path] for path in paths)
    files = (plan.files[each.file] for each in bound if each is not None and each.is_file)
    return {file.link: file.linked for file in files if file.link and file.linked is not None}


def _written(
    plan: Plan, places: Places, is_now: Callable[[Binding, FileId], bool]
) -> Iterator[tuple[str, Status]]:
    """A name that stays of each file of the plan whose contents are to be written, and what it is bound to."""
    for file, each in plan.files.items():
        if each.copy and each.path not in plan.names:
            with named(each.path):
                now = places.look(each.path)
                if now is not None and is_now(now, file):
                    yield each.path, now
