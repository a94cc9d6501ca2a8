"""What ranks have changed while the checkpoint was taken: they do not take their images at the same moment. Pure.

Where one has written to a file before its own image, and after another one had made the first copy, a copy counts that was
made later, when the first one had its image. What the other has written meanwhile may be in it, too; after the restart that
rank writes it again. A file to which ranks have only appended is not cut before the end of what belongs to the checkpoint.

    known of                       by
    files that are open at images  the copies that ranks make of them then, and their digests
    files that are opened for      the last changes before its image, which each image names
      each change
    appended files                 the ends that ranks record

Not here: which copy was whole first, and what else a restart puts back (:mod:`ckpt.undo.planning.plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckpt.undo.planning.moves import Log
from ckpt.undo.planning.planned import FilePlan, Plan
from ckpt.undo.records import Content, FileId, LastChange, Name, Uncovered

__all__ = [
    "BeforeImages",
    "changed_before_an_image",
    "keep_what_was_written",
    "written_before_an_image",
]

_HELD_NS = 1_000_000_000  # files that are opened for one change are closed by then
_SEVERAL = "changed by several ranks while the checkpoint was taken; what one of them wrote just"
_LOST = f"{_SEVERAL} before may be missing"
_LATER = f"{_SEVERAL} after it may be there"


class BeforeImages:
    """Paths that one rank has changed before its image, and another one after its own. ``changes``: see
    :func:`ckpt.undo.planning.plan.make_plan`. ``tick_ns``, ``margin_ns``: of the clock of files, of the clocks of ranks."""

    def __init__(self, changes: Iterable[tuple[str, LastChange]], tick_ns: int, margin_ns: int) -> None:
        self._changes, self._tick_ns, self._margin_ns = list(changes), tick_ns, margin_ns
        self._first: dict[str, dict[str, Name | Content]] = {each.path: {} for _, each in self._changes}
        self._copies: dict[FileId, list[tuple[Content, str]]] = {}

    def note(self, log: Log, record: Name | Content) -> None:
        """A rank has begun to change this after its image."""
        if (first := self._first.get(record.path)) is None:
            return
        first.setdefault(log.rank, record)
        if isinstance(record, Content) and record.copy and not record.start:
            self._copies.setdefault(record.status.file, []).append((record, log.kept(record.copy)))

    def late(self) -> Iterator[tuple[LastChange, list[Name | Content]]]:
        """What a rank may have written before its image, and after other ones, after theirs, had begun to change the same;
        with what these have kept first."""
        for rank, each in self._changes:
            others = [record for other, record in self._first[each.path].items() if other != rank]
            if others := [other for other in others if self._may_be_later(each, other)]:
                yield each, others

    def _may_be_later(self, each: LastChange, other: Name | Content) -> bool:
        """Another rank began this before the image, not much later than the rank; and the file was written to since."""
        last_ns = self._margin_ns + min(each.image_ns, each.time_ns + _HELD_NS)
        is_written = each.mtime_ns + self._tick_ns + self._margin_ns >= other.time_ns
        return other.time_ns <= last_ns and (is_written or isinstance(other, Name))

    def has_all(self, each: LastChange, record: Content | None) -> bool:
        """Is all in this copy that the rank has written before its image?"""
        return record is not None and record.time_ns >= each.image_ns + self._margin_ns

    def copy_with_all(self, each: LastChange) -> tuple[Content, str] | None:
        """The first such copy."""
        return next((copy for copy in self._copies.get(each.file, ()) if self.has_all(each, copy[0])), None)


def changed_before_an_image(
    plan: Plan, before: BeforeImages, written: dict[FileId, int]
) -> Iterator[Uncovered]:
    """What a rank has written to a path before its image may not be in what another rank has kept of it after its own. So a
    later copy counts, if there is one; a file to which ranks have only appended is not cut before its end at the image."""
    for each, others in before.late():
        file = plan.files.get(each.file)
        bound = plan.names.get(each.path, None if file is None else file.status)
        if file is None or file.nbytes is None or bound is None or bound.file != each.file:
            yield Uncovered(each.path, _LOST, 0)
        elif not file.copy:
            written[each.file] = max(written.get(each.file, 0), each.nbytes)
        elif before.has_all(each, file.copied):
            # Others that have copied it have not changed it before: their copies were whole later (`_note_content`).
            if not all(isinstance(other, Content) and other.copy for other in others):
                yield Uncovered(each.path, _LATER, 0)
        elif (later := before.copy_with_all(each)) is None:
            yield Uncovered(each.path, _LOST, 0)
        elif not _are_equal(file.copied, later[0]):
            _take(file, *later)
            yield Uncovered(each.path, _LATER, 0)


def _are_equal(copied: Content | None, later: Content) -> bool:
    return copied is not None and bool(later.digest) and copied.digest == later.digest


def _take(file: FilePlan, record: Content, copy: str) -> None:
    """This copy counts, and no other one."""
    file.copied, file.copy = record, copy
    file.status, file.nbytes = record.status, record.status.nbytes


def written_before_an_image(
    plan: Plan, held: Iterable[tuple[Content, str]], tick_ns: int
) -> Iterator[Uncovered]:
    """What a rank has written to an open file after the copy that counts, and before its own image, is not in that copy. It
    is in the copy that this rank has made at its image: ``held``, each with its path, in the order of time."""
    for record, copy in held:
        file = plan.files[record.status.file]
        kept = file.copied
        if kept is None or not 0 < kept.copied_ns < record.time_ns:
            continue
        is_known = bool(kept.digest and record.digest)
        may_differ = record.status.mtime_ns + tick_ns >= kept.copied_ns
        if kept.digest != record.digest if is_known else may_differ:
            _take(file, record, copy)
            yield Uncovered(file.path, _LATER, 0)


def keep_what_was_written(plan: Plan, written: dict[FileId, int]) -> None:
    """Ranks do not take a checkpoint at the same moment. What one has appended before its image may lie behind what another
    has appended after its own: such a file is not cut before the end of what belongs to the checkpoint.
    """
    for identity, end in written.items():
        file = plan.files[identity]
        if not file.copy and file.nbytes is not None and end > file.nbytes:
            nbytes, file.nbytes = end - file.nbytes, end
            reason = (
                f"appended by several ranks while the checkpoint was taken; {nbytes} bytes may be there twice"
            )
            plan.doubled.append(Uncovered(file.path, reason, 0))
