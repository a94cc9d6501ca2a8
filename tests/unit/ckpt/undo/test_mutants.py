"""Every rule of the undo log is needed: without it something is not undone, or is done that should not be (rules.py).

`make test` runs all mutants that a random program shows, and a tenth of the others, another one for every commit; `make
nightly` all.
"""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ckpt.undo import recorder
from ckpt.undo.planning import plan
from ckpt.undo.restart import putting_back
from tests.unit.ckpt.undo import test_sequences as sequences
from tests.unit.ckpt.undo.rules import MUTANTS, Mutant, One, Two

where = sequences.where

HERE = Path(__file__).parent
SHOWN = [mutant for mutant in MUTANTS if not isinstance(mutant.by, str)]
NAMED = [mutant for mutant in MUTANTS if isinstance(mutant.by, str)]

# A module is imported from its text with the replacement; what was compiled of it before is not looked at. pytest is not to
# explain why the test fails: where CI is set, it compares all of two trees, which takes minutes where files are long.
WITH_A_MUTANT = """
import importlib.machinery, sys
import pytest
name, old, new, test = sys.argv[1:]
loader = importlib.machinery.SourceFileLoader
genuine = loader.get_code
def get_code(self, module):
    if module != name:
        return genuine(self, module)
    path = self.get_filename(module)
    text = self.get_data(path).decode()
    assert text.count(old) == 1, f"found {text.count(old)} times: {old}"
    return compile(text.replace(old, new), path, "exec", dont_inherit=True)
loader.get_code = get_code
options = ["-x", "-q", "--noconftest", "--import-mode=importlib", "--assert=plain"]
sys.exit(pytest.main([*options, "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", test]))
"""


def module_of(mutant: Mutant) -> types.ModuleType:
    return importlib.import_module(f"ckpt.undo.{mutant.module}")


def mutated(module: types.ModuleType, old: str, new: str) -> dict[str, Any]:
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"found {source.count(old)} times: {old}"
    space: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(old, new), module.__file__ or "", "exec"), space)
    return space


@pytest.mark.parametrize("mutant", SHOWN, ids=[mutant.rule for mutant in SHOWN])
def test_without_the_rule_something_is_not_undone(
    where: str, mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = mutated(module_of(mutant), mutant.old, mutant.new)
    users = (
        (sequences, "Recorder"),
        (sequences, "Keeper"),
        (sequences, "make_plan"),
        (sequences, "put_back"),
        (recorder, "PathTable"),
        (plan, "PathsSince"),
        (plan, "Renamings"),
        (putting_back, "Places"),
    )
    for user, name in users:
        if space.get(name) is not getattr(user, name):
            monkeypatch.setattr(user, name, space.get(name, getattr(user, name)))
    with pytest.raises(Exception):  # noqa: B017 - of any kind: the mutant may also fail
        match mutant.by:
            case One(seed):
                sequences.check(where, seed)
            case Two(seed):
                sequences.check_two_ranks(where, seed)


@pytest.mark.rotate(10)
@pytest.mark.parametrize("mutant", NAMED, ids=[mutant.rule for mutant in NAMED])
def test_without_the_rule_the_test_named_fails(mutant: Mutant) -> None:
    assert isinstance(mutant.by, str)
    module = module_of(mutant).__name__
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_MUTANT, module, mutant.old, mutant.new, str(HERE / mutant.by)],
        capture_output=True,
        text=True,
        cwd=HERE.parents[3],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=120,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "found 0 times" not in done.stdout + done.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.rule for mutant in MUTANTS])
def test_the_rule_is_where_it_is_said_to_be(mutant: Mutant) -> None:
    assert inspect.getsource(module_of(mutant)).count(mutant.old) == 1, mutant.old
    if isinstance(mutant.by, str):
        path, _, test = mutant.by.partition("::")
        assert f"def {test}(" in (HERE / path).read_text(encoding="utf-8")
