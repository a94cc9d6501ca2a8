"""What a restart changes before every rank has loaded its image can be taken back, until all of them have.

Ranks import the code of the program while they load, and open its files. So two things are put back before it is known that
every rank can go on:

code    before ranks load: code alone, as it was at the checkpoint (:func:`give_code`). It is taken back when they have
        loaded what needs no file
files   when all ranks have loaded that much: all that is to be put back (:func:`recorded`). It stays when all have loaded
        the rest, too (:func:`keep`)

If a rank cannot go on, or the controller is killed meanwhile, it is taken back to what the program had left, before anything
else happens. What is changed is recorded as the changes of a rank are, and undone by the same means:

    JOB/undo/loading/rank-00000/    the log of these changes, and what they need of links and copies
    JOB/undo/loading/away/          code that was moved out of the way meanwhile
    JOB/undo/loading/new/           what was moved out of the way when it was taken back
    JOB/undo/kept                   all ranks have loaded, so this stays: what is still to be done for that

While the directory is there, files are, or may be, those of a checkpoint; once ``kept`` is there, they stay so. All of it
can be done again.

Not here: when ranks load (:mod:`ckpt.controller.service.files`), what is put back (:mod:`ckpt.undo.restart.restoring`).
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import itertools
import os
from collections.abc import Container, Iterable, Iterator, Sequence

from ckpt.transport.records import replace
from ckpt.undo.chain import Interval, undo_path
from ckpt.undo.errors import NotKept, NotUndone
from ckpt.undo.keeping import Keeper, look
from ckpt.undo.logs import read_log
from ckpt.undo.planning.plan import Log, Plan, make_plan
from ckpt.undo.recorder import Changes, Operation, Recorder
from ckpt.undo.records import Binding, FileId, Uncovered, and_above, below_another
from ckpt.undo.restart.ending import forget_end, leave_out, note_again
from ckpt.undo.restart.kept_files import check_kept
from ckpt.undo.restart.places import Places, Recording
from ckpt.undo.restart.putting_back import put_back
from ckpt.undo.restart.state import (
    Moved,
    State,
    follow,
    free_name,
    from_plain,
    load,
    named,
    read_record,
    remove_record,
    retire,
    save,
    sync_file_systems,
    to_plain,
    write_record,
)

__all__ = ["code_of", "give_code", "is_given", "keep", "leave", "recorded", "take_back"]

_LOADING, _KEPT = "loading", "kept"
_LOG, _AWAY, _NEW = "rank-00000", "away", "new"
_CODE = tuple(importlib.machinery.all_suffixes())
_ASIDE = ".ckpt-back-"  # of what is taken back: other names than when it was given
_MOST_SEEN = 10_000
_NO_LIMIT_BYTES = 1 << 60


def code_of(plans: Sequence[Plan]) -> list[Plan]:
    """What of the plans is code, and what that needs: directories and symbolic links; nothing, if there is no code. Of
    several plans all names are needed: where code was at the older lines depends on them."""
    found = [_code_paths(plan) for plan in plans]
    if not any(found):
        return []
    if len(plans) > 1:
        return [_part(plan, set(plan.names)) for plan in plans]
    return [_part(plan, {*code, *_above(code)}) for plan, code in zip(plans, found, strict=True)]


def _code_paths(plan: Plan) -> set[str]:
    """Names of code, and of what leads to it."""
    code = {
        path for path, binding in plan.names.items() if _is_code(path) or _leads_to_code(path, binding, plan)
    }
    for file in plan.files.values():
        if file.status.is_directory:
            code.update([file.path] if file.has_attributes and _holds_code(file.path) else [])
        elif any(map(_is_code, paths := (file.path, *file.names))):
            code.update(paths)
    return code


def _above(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        yield from and_above(path)


def _part(plan: Plan, paths: Container[str]) -> Plan:
    """The plan for these names, with contents of code alone."""
    names = {path: binding for path, binding in plan.names.items() if path in paths}
    bound = {binding.file for binding in names.values() if binding is not None}
    files = {}
    for file, each in plan.files.items():
        if each.status.is_directory or any(map(_is_code, (each.path, *each.names))):
            files[file] = each
        elif file in bound:
            files[file] = replace(each, nbytes=None, has_attributes=False)
    return replace(plan, names=names, directories=dict(plan.directories), files=files, doubled=[])


def _is_code(path: str) -> bool:
    return path.endswith(_CODE)


def _leads_to_code(path: str, binding: Binding, plan: Plan) -> bool:
    """Is this a directory of the checkpoint that has moved, with code in it, or a symbolic link to one?"""
    if binding is None:
        return False
    if binding.is_directory:
        return any(map(_holds_code, plan.directories.get(path, ())))
    return binding.is_symlink and _holds_code(os.path.join(os.path.dirname(path), binding.target))


def _holds_code(directory: str) -> bool:
    """Perhaps, if there is very much in it."""
    seen = itertools.chain.from_iterable(names for _, _, names in os.walk(directory))
    return any(number >= _MOST_SEEN or _is_code(name) for number, name in enumerate(seen))


def is_given(job: str) -> bool:
    """Are files those of a checkpoint, perhaps, though not all ranks have loaded their images?"""
    return os.path.isdir(undo_path(job, _LOADING))


def give_code(
    job: str, key: bytes, plans: Iterable[Plan], foreign: list[tuple[str, FileId]], state: State
) -> bool:
    """Give code the state of a checkpoint. ``plans``: of the intervals since, newest first; ``foreign``: what somebody else
    has changed, which is left alone. Returns whether anything was to be done. Raises NotUndone, and then nothing is
    changed (if that could be taken back)."""
    parts = code_of([plan for plan in plans if plan.names or plan.files])
    if not parts:
        return False
    renumbered = dict(state.renumbered)
    with recorded(job, key, parts, renumbered) as recording:
        for part in parts:
            leave_out(part, foreign, renumbered)
            put_back(part, undo_path(job, os.path.join(_LOADING, _AWAY)), renumbered, recording=recording)
    return True


@contextlib.contextmanager
def recorded(
    job: str,
    key: bytes,
    plans: Sequence[Plan],
    renumbered: dict[FileId, FileId],
    limit_bytes: int = _NO_LIMIT_BYTES,
) -> Iterator[Recording]:
    """What is put back by these plans within the block can be taken back. If the block raises NotUndone, it is, and the
    error goes on. ``renumbered``: as the block changes it. ``limit_bytes``: for all copies. The block raises NotKept: what
    is about to change could not be kept."""
    known = _KnownDirectories()
    directory = undo_path(job, os.path.join(_LOADING, _LOG))
    keeper = Keeper(directory, key, Recorder(), limit_bytes=limit_bytes, looks=known.look)
    keeper.begin(is_line_whole=False)
    starts = _starts(plans, renumbered)

    def before(operation: Operation) -> None:
        if operation.kind == "cut":
            now = look(operation.path)
            start = 0 if now is None else starts.get(now.file, 0)
            operation = operation._replace(kind="cut" if start else "rewrite", start=start)
        known.before(operation)
        refuse(keeper.before(operation))

    def ahead(changes: Changes) -> None:
        refuse(keeper.ahead(changes))

    def refuse(uncovered: list[Uncovered]) -> None:
        for each in uncovered:
            raise NotKept(f"what is there now could not be kept: {each.reason}", path=each.path)

    try:
        yield Recording(before, ahead)
    except NotUndone:
        keeper.close()
        take_back(job, key)
        raise
    keeper.close()


class _KnownDirectories:
    """What paths are bound to, where this process alone changes them: a directory is looked at again when it, or one above
    it, has changed."""

    def __init__(self) -> None:
        self._found: dict[str, Binding] = {}
        self._there: set[str] = set()  # these directories, and those above them

    def before(self, operation: Operation) -> None:
        """This is about to be done."""
        if not self._there.isdisjoint((operation.path, operation.target)):
            self._found.clear()
            self._there.clear()

    def look(self, path: str) -> Binding:
        """As :func:`ckpt.undo.keeping.look`."""
        if (found := self._found.get(path)) is None:
            found = look(path)
            if found is not None and found.is_directory:
                self._found[path] = found
                self._there.update(and_above(path))
        return found


def _starts(plans: Iterable[Plan], renumbered: dict[FileId, FileId]) -> dict[FileId, int]:
    """Files that are cut and not changed otherwise → from which offset on."""
    starts: dict[FileId, int] = {}
    for plan in plans:
        for known, each in plan.files.items():
            if each.nbytes is not None:
                file = renumbered.get(known, known)
                start = 0 if each.copy else each.nbytes
                starts[file] = min(start, starts.get(file, start))
    return starts


def take_back(job: str, key: bytes, moved: Moved | None = None) -> bool:
    """Files are what the program had left again; but if all ranks had loaded, what was put back stays. ``moved``: a
    directory that the user has renamed since. Returns whether anything was taken back. Raises LogDamaged, NotUndone: it can
    be done again."""
    with named(job):
        if _finish(job, key) or not is_given(job):
            return False
        directory, new = (undo_path(job, os.path.join(_LOADING, name)) for name in (_LOG, _NEW))
        records = read_log(directory, key)
        if moved is not None:
            records = (below_another(record, moved.source, moved.target) for record in records)
        plan = make_plan([Log(directory, list(records))])
        check_kept([(Interval(0, 0, directory), plan)], {})
        renumbered: dict[FileId, FileId] = {}
        put_back(plan, new, renumbered, aside=_ASIDE)
        sync_file_systems(plan.touched(new))
        if renumbered:  # where no hard links can be made, files are other ones now
            state = load(job, key, from_start=True)
            known = dict(state.renumbered)
            state.renumbered.update(renumbered)
            follow(known, state.renumbered)
            save(job, key, state)
        bound = [binding for binding in plan.names.values() if binding is not None]
        note_again(job, key, [*(each.status for each in plan.files.values()), *bound])
        retire(undo_path(job, _LOADING))
        return True


def keep(job: str, key: bytes, state: State, intervals: Iterable[str], recording: Recording) -> None:
    """All ranks have loaded: what was put back stays. ``state``: when that is done; ``intervals``: the names of those that
    are undone with it. Raises NotUndone: it can be done again (:func:`take_back`)."""
    with named(job):
        beside = sorted(recording.beside.items(), reverse=True)  # what is below something else comes first
        write_record(
            job, key, _KEPT, {"state": to_plain(state), "intervals": list(intervals), "beside": beside}
        )
        _finish(job, key)


def _finish(job: str, key: bytes) -> bool:
    """Do what :func:`keep` has written down. Returns whether there was anything."""
    kept = read_record(job, key, _KEPT)
    if kept is None:
        return False
    save(job, key, from_plain(kept["state"]))
    forget_end(job)
    places = Places()
    try:
        for path, target in kept["beside"]:
            if places.look(path) is not None:
                places.move_out(path, free_name(target))
    finally:
        places.close()
    for path in (*(undo_path(job, name) for name in kept["intervals"]), undo_path(job, _LOADING)):
        if os.path.isdir(path):
            retire(path)
    remove_record(job, _KEPT)
    return True


def leave(job: str) -> None:
    """The job goes on with files as they are. Raises OSError."""
    remove_record(job, _KEPT)
    if is_given(job):
        retire(undo_path(job, _LOADING))
