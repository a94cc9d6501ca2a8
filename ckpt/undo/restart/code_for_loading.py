"""Ranks that load their images import the code of the checkpoint, also where the program has changed it since.

Files are put back when every rank has loaded its image, and code among them is imported before. So, before ranks load, code
alone is given the state of the checkpoint; and once they have loaded, or one of them could not, it is taken back to what the
program had left, before anything else happens. What is changed for that is recorded as the changes of a rank are, and undone
by the same means:

    JOB/undo/loading/rank-00000/    the log of these changes, and what they need of links and copies
    JOB/undo/loading/away/          what was moved out of the way meanwhile
    JOB/undo/loading/new/           what was moved out of the way when it was taken back

While the directory is there, the program's code is, or may be, that of a checkpoint: whoever puts files back takes that back
first, also where the controller that had given it was killed. All of it can be done again.

Not here: when ranks load (:mod:`ckpt.controller.service.files`), what is put back for good
(:mod:`ckpt.undo.restart.restoring`).
"""

from __future__ import annotations

import importlib.machinery
import itertools
import os
from collections.abc import Container, Iterable, Iterator, Sequence

from ckpt.transport.records import replace
from ckpt.undo.chain import Interval, undo_path
from ckpt.undo.errors import NotUndone
from ckpt.undo.keeping import Keeper
from ckpt.undo.logs import read_log
from ckpt.undo.recorder import Operation, Recorder
from ckpt.undo.records import Binding, FileId, and_above, below_another
from ckpt.undo.restart.ending import leave_out, note_again
from ckpt.undo.restart.kept_files import check_kept
from ckpt.undo.restart.plan import Log, Plan, make_plan
from ckpt.undo.restart.putting_back import put_back
from ckpt.undo.restart.state import Moved, State, follow, load, named, retire, save, sync_file_systems

__all__ = ["code_of", "give", "is_given", "leave", "take_back"]

_LOADING = "loading"
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
    """Is the program's code that of a checkpoint, perhaps, for ranks that load their images?"""
    return os.path.isdir(undo_path(job, _LOADING))


def give(
    job: str, key: bytes, plans: Iterable[Plan], foreign: list[tuple[str, FileId]], state: State
) -> bool:
    """Give code the state of a checkpoint. ``plans``: of the intervals since, newest first; ``foreign``: what somebody else
    has changed, which is left alone. Returns whether anything was to be done. Raises NotUndone, and then nothing is
    changed (if that could be taken back)."""
    parts = code_of([plan for plan in plans if plan.names or plan.files])
    if not parts:
        return False
    directory, away = (os.path.join(undo_path(job, _LOADING), name) for name in (_LOG, _AWAY))
    keeper = Keeper(directory, key, Recorder(), limit_bytes=_NO_LIMIT_BYTES)
    keeper.begin(is_line_whole=False)
    renumbered = dict(state.renumbered)

    def before(operation: Operation) -> None:
        for each in keeper.before(operation):
            raise NotUndone(f"it could not be kept while code is put back: {each.reason}", path=each.path)

    try:
        for part in parts:
            leave_out(part, foreign, renumbered)
            put_back(part, away, renumbered, before=before)
    except NotUndone:
        keeper.close()
        take_back(job, key)
        raise
    keeper.close()
    return True


def take_back(job: str, key: bytes, moved: Moved | None = None) -> bool:
    """Code is what the program had left again. ``moved``: a directory that the user has renamed since. Returns whether there
    was anything to do. Raises LogDamaged, NotUndone: it can be done again."""
    with named(job):
        if not is_given(job):
            return False
        directory, new = (os.path.join(undo_path(job, _LOADING), name) for name in (_LOG, _NEW))
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
        bound = {path: binding for path, binding in plan.names.items() if binding is not None}
        note_again(job, key, {each.path: each.status for each in plan.files.values()} | bound)
        retire(undo_path(job, _LOADING))
        return True


def leave(job: str) -> None:
    """The job goes on with code as it is. Raises OSError."""
    if is_given(job):
        retire(undo_path(job, _LOADING))
