"""What a restart puts back for one interval, as data. Pure.

Not here: how it is found out (:mod:`ckpt.undo.planning.plan`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from ckpt.transport.records import dataclass, field
from ckpt.undo.records import Binding, Content, FileId, Status, Uncovered

__all__ = ["FilePlan", "Plan"]


@dataclass(slots=True)
class FilePlan:
    """A file of the checkpoint. ``status``: at the checkpoint. ``path``: a name that it had; ``names``: all that are known.
    ``link``: a hard link to it, ``copy``: a copy of its contents; "": none. ``linked``, ``copied``: what their records say,
    by which they are known again. ``nbytes``: its length; None: its contents have not changed. ``tail``: digest of the file
    up to ``nbytes`` or, where ranks have appended to it between their checkpoints, up to ``tail_nbytes``; "": not known.
    ``has_attributes``: they are put back, too. ``is_unsure``: no record says for sure that the file was there at the
    checkpoint. ``has_no_name``: other ranks say that its names were bound to something else at theirs: it was removed, or
    replaced, while the checkpoint was taken.
    """

    status: Status
    path: str
    link: str = ""
    copy: str = ""
    linked: Status | None = None
    copied: Content | None = None
    nbytes: int | None = None
    tail: str = ""
    tail_nbytes: int = 0
    has_attributes: bool = False
    is_unsure: bool = True
    has_no_name: bool = False
    names: list[str] = field(default_factory=list)

    @property
    def copy_start(self) -> int:
        """The offset from which on the copy has the contents."""
        return 0 if self.copied is None else self.copied.start


@dataclass(slots=True)
class Plan:
    """What a restart puts back for one interval. ``names``: what each path was bound to, directories before what is in them.
    ``directories``: path → the paths at which the directory may be now, the likeliest first; none: it has been removed.
    ``uncovered``: changes that cannot be undone. ``doubled``: files that are put back, but for bytes that will be there
    twice, or may be missing. ``doubtful``: names below directories of other ranks, which may be wrong; they are in
    ``uncovered``, too."""

    names: dict[str, Binding] = field(default_factory=dict)
    directories: dict[str, list[str]] = field(default_factory=dict)
    files: dict[FileId, FilePlan] = field(default_factory=dict)
    uncovered: list[Uncovered] = field(default_factory=list)
    doubled: list[Uncovered] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)

    def touched(self, undone: str) -> Iterator[str]:
        """At which paths something may be put back, or from which it may be moved to the directory ``undone``."""
        yield posixpath.join(undone, "new")
        yield from self.names
        for path, places in self.directories.items():
            yield from (path, *places)
        for file in self.files.values():
            yield from (file.path, *file.names)
