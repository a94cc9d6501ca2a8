"""Every rule of the undo log is needed: without it some random program is not undone.

A mutant is a module with one text replaced, and the number of a sequence that shows the difference (None: the test of a
directory with an old name does).
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest

from ckpt.undo import recorder
from ckpt.undo.restart import places, plan, putting_back
from tests.unit.ckpt.undo import test_sequences as sequences

where = sequences.where

MUTANTS = [
    (recorder, "copies = not appends and binding.nbytes > 0", "copies = False", 1),
    (recorder, "if is_complete or (is_complete is False and appends):", "if is_complete is not None:", 40),
    (recorder, "yield from self._name(target, replaced, now_ns)", "pass", 1),
    (recorder, "yield from self._name(source, moving, now_ns)", "pass", 1),
    (recorder, "or self._is_in_new(posixpath.dirname(path)):", "or False:", None),
    (
        recorder,
        "self._moves = {renamed(path, source, target): original",
        "self._moves = {path: original",
        None,
    ),
    (recorder, "happened = _has_happened(moved, seen[_shown_by(moved)])", "happened = True", 115),
    (recorder, "self._moves, self._made = self._as_before", "pass", 115),
    (recorder, "return self._moves[at] + tail", "return directory", 145),
    (recorder, "            return kept  # it fails", "            pass  # it fails", 145),
    (recorder, "if binding.is_file else self._original(path)", "", 746),
    (recorder, " and directory not in self._moves and", " and", None),
    (plan, "key=lambda item: item[0].count", "key=lambda item: -item[0].count", 12),
    (plan, "open_from = len(found)", "pass", 145),
    (plan, "file.link = file.link or log.kept(kept)", "pass", 1),
    (putting_back, "        self._put_aside()", "        pass", 12),
    (putting_back, "return path in self._plan.directories and not", "return False and not", 339),
    (putting_back, "directory.change_mode(stat.S_IMODE(binding.mode))", "pass", 44),
    (places, "os.utime(self._path, ns=(os.stat(self._path).st_atime_ns, status.mtime_ns))", "pass", 2),
    (places, "os.chmod(self._path, stat.S_IMODE(status.mode))", "pass", 2),
    (places, "            os.ftruncate(fd, nbytes)", "            pass", 10),
    (putting_back, "while not unsteady.isdisjoint((above, *_above([above]))):", "while False:", 1135),
]


def mutated(module: types.ModuleType, old: str, new: str) -> dict[str, Any]:
    source = inspect.getsource(module)
    assert source.count(old) == 1, old
    space: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(old, new), module.__file__ or "", "exec"), space)
    return space


def directory_with_an_old_name(where: str, seed: int) -> None:
    sequences.test_a_new_directory_with_an_old_name_is_another_directory(where)


@pytest.mark.parametrize("number", range(len(MUTANTS)), ids=[old.strip()[:40] for _, old, _, _ in MUTANTS])
def test_without_the_rule_something_is_not_undone(
    where: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, old, new, seed = MUTANTS[number]
    space = mutated(module, old, new)
    users = (
        (sequences, "Recorder"),
        (sequences, "make_plan"),
        (sequences, "put_back"),
        (putting_back, "Places"),
    )
    for user, name in users:
        if space.get(name) is not getattr(user, name):
            monkeypatch.setattr(user, name, space.get(name, getattr(user, name)))
    with pytest.raises(Exception):  # noqa: B017 - of any kind: the mutant may also fail
        (directory_with_an_old_name if seed is None else sequences.check)(where, seed)
