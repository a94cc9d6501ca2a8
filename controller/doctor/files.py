"""What the ranks of a trial have done to files: which files are compared, which a restart does not put back, and where in
the program that is done.

Ranks write down what they change (:mod:`ckpt.doctor.changes`); what compiled libraries change is in the undo log.

Not here: how files are compared (:mod:`ckpt.controller.doctor.compare`).
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.controller.doctor.compare import canonical
from ckpt.transport.records import NamedTuple
from ckpt.undo.selection.covering import covering
from ckpt.undo.selection.patterns import OFF, Patterns

if TYPE_CHECKING:
    from ckpt.store import JobDirectory

__all__ = ["FilesOfTrial"]

_MEMORY = "/dev/shm/"
_IN_MEMORY = "nothing below /dev is put back"
_KEPT = "stays as it is at a restart (ckpt.keep_file)"
_LEFT_OUT = "is left out by --files, and is not put back"
_LOOKED_UP = "{where} looks {name} up (ctypes): what it changes by that is not undone by a restart"


class _Noted(NamedTuple):
    """A path that a rank has changed, and where. Or the function that it has looked up by its name."""

    path: str
    where: str
    function: str = ""


class FilesOfTrial:
    """``choice``: the option ``--files``, as a list of words; ``events``: those of a name in the job's event log."""

    def __init__(
        self,
        job: JobDirectory | None,
        choice: Sequence[str],
        events: Callable[[str], list[Mapping[str, Any]]],
    ) -> None:
        self._job, self._events = job, events
        self.is_on = list(choice) != [OFF]
        """Do restarts put files back?"""
        texts = [str(text) for event in events("files-kept") for text in event.get("patterns", ())]
        self._kept = Patterns(dict.fromkeys(texts))
        self._covers: Callable[[str], bool] | None = None
        if self.is_on:
            self._covers = covering(list(choice), os.getcwd())
        self._noted = list(_noted(job))

    def changed(self) -> set[str]:
        """The canonical names of all files that ranks have changed so far, and that a restart puts back."""
        from ckpt.undo.errors import UndoError
        from ckpt.undo.restart.restoring import describe

        names = {each.path for each in self._noted if each.path}
        if self._job is not None:
            with contextlib.suppress(UndoError):  # a damaged log: what it has is not compared
                names.update(
                    row["path"] for each in describe(self._job.path, self._job.key, 0) for row in each["kept"]
                )
        return {name for name in map(canonical, names) if not self._why_left(name)}

    def not_undone(self) -> list[dict[str, Any]]:
        """Files whose changes a restart would not undo: ``path``, ``reason``, ``rank`` (None: no rank has done it),
        ``where``."""
        events = [*self._events("files-not-covered"), *self._events("files-not-undone")]
        unseen = [each.where for each in self._noted if each.function and not self._events("process-started")]
        found = []
        for event in events:
            path, rank = str(event.get("path") or ""), event.get("rank")
            where = self._where(path) or ("" if rank is not None else next(iter(unseen), ""))
            found.append({"path": path, "reason": event.get("reason", ""), "rank": rank, "where": where})
        in_memory = {each.path: None for each in self._noted if self.is_on and each.path.startswith(_MEMORY)}
        found += [
            {"path": path, "reason": _IN_MEMORY, "rank": 0, "where": self._where(path)} for path in in_memory
        ]
        return found

    def _where(self, path: str) -> str:
        """The places at which ranks have changed it."""
        places = [each.where for each in self._noted if each.path and canonical(each.path) == path]
        return ", ".join(dict.fromkeys(filter(None, places)))

    def notes(self) -> list[str]:
        """What the user has wanted not to be put back, and functions by which files may be changed unseen."""
        if not self.is_on:
            return []
        paths = dict.fromkeys(canonical(each.path) for each in self._noted if each.path)
        left = {
            f"{path} {why}" + (f": {where}" if (where := self._where(path)) else ""): None
            for path in paths
            if (why := self._why_left(path))
        }
        looked_up = {
            _LOOKED_UP.format(where=each.where, name=each.function): None
            for each in self._noted
            if each.function
        }
        return [*left, *looked_up]

    def _why_left(self, path: str) -> str:
        if self._kept.match(path):
            return _KEPT
        return _LEFT_OUT if self._covers is not None and not self._covers(path) else ""


def _noted(job: JobDirectory | None) -> Iterator[_Noted]:
    from ckpt.doctor.changes import PREFIX

    if job is None:
        return
    for path in sorted(glob.glob(os.path.join(glob.escape(os.path.join(job.path, "doctor")), f"{PREFIX}*"))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield _Noted(*json.loads(line))
