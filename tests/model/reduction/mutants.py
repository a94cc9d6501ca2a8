"""The reductions without one of their rules: a text of the source, and what stands there instead."""

# ruff: noqa: E501 (a table)

from __future__ import annotations

import importlib
import types
from typing import NamedTuple

import pytest

from ckpt.reduction.messages import Contract

PACKAGE = "ckpt.reduction"
MODULES = ("messages", "recovery", "partial", "scheduler", "master", "member", "members")


class Mutant(NamedTuple):
    """`module` without a rule. `contract`: what notices it, in `size` ranks with so many deaths.
    `exhaustive`: every schedule is looked at, else random ones from the number `first` on, one at which it was noticed."""

    name: str
    module: str
    old: str
    new: str
    contract: Contract
    size: int = 5
    deaths: int = 2
    exhaustive: bool = False
    direct: bool = False
    """Others can read a rank's memory; for exhaustive ones."""
    first: int = 0


TREE, READY = Contract(), Contract(order="ready")
ORDERED = Contract(order="ready", commutative=False)
TO_ROOT = Contract(root=1)
ANY = Contract(on_loss="partial")

MUTANTS = (
    Mutant("pairs of the fixed tree", "scheduler", 'if self.order == "tree":', "if False:", TREE, deaths=0),
    Mutant("a block without contributors is passed over", "scheduler", "(other := block(level, index ^ 1) & possible)",
           "(other := block(level, index ^ 1))", ANY),
    Mutant("neighbours only, if the operation does not commute", "scheduler", "if self.commutative:", "if True:", ORDERED),
    Mutant("the lower ranks on the left", "scheduler", "return (first, second) if first.path & -first.path < ",
           "return (second, first) if first.path & -first.path < ", TREE, deaths=0),
    Mutant("faults 1 and 2: the items of a dead executor go back", "scheduler", "if task.executor == rank:", "if False:", TREE),
    Mutant("what the dead held in the queue is split", "scheduler", "if rank in item.holders]:", "if False]:", TREE),
    Mutant("all items of a chain go back", "scheduler", "for item in task.items:\n                    self._return(item)",
           "for item in task.items[:2]:\n                    self._return(item)", TREE),
    Mutant("after a failure all items of a chain go back", "scheduler", "for item in task.items:\n            self._return",
           "for item in task.items[:2]:\n            self._return", TREE),
    Mutant("a chain follows the fixed tree", "scheduler", "self.items.get(sibling(path, possible))) is not None:",
           "next((each for each in self.items.values() if not each.path & path), None)) is not None:", TREE, deaths=0),
    Mutant("two are combined once", "member", "None if work.computing else work.compute(number)", "work.compute(number)", TREE, 6, 0),
    Mutant("what follows in a chain is the left one if it has the lower ranks", "messages",
           "rest.append((held.value, place.path & -place.path < path & -path))", "rest.append((held.value, False))", TREE, deaths=0),
    Mutant("what was combined at once is not combined again", "member", "for _ in range(work.also):", "for _ in range(0):", TREE,
           deaths=0),
    Mutant("the one that is gone is asked for", "member", "work.left_over[which]", "work.left_over[0]", TREE),
    Mutant("the next of a chain comes after the first two", "messages", "if not self.task.more:", "if True:", TREE, deaths=0),
    Mutant("what was made has the lower ranks on the left", "messages", "if made.path & -made.path < after.path & -after.path else",
           "if True else", TREE, 9, 0),
    Mutant("a death concerns all items of a chain", "member", "for place in work.places:\n                if place.holder == rank",
           "for place in work.places[:2]:\n                if place.holder == rank", TREE._replace(copies=0)),
    Mutant("fault 3: the other item goes back", "scheduler",
           "self._return(item, without=holder if item.path == path else -1)",
           "item.path == path and self._return(item, without=holder)", TREE),
    Mutant("fault 3: what cannot be had is split", "scheduler", "without=holder if item.path == path else -1)",
           "without=-1)", TREE, 5, 1, first=894),
    Mutant("a task that was taken back is not done", "scheduler",
           "task = self.running.pop(number, None)\n        if task is None:\n            return []\n        self.times",
           "task = self.running[number]\n        self.times", TREE),
    Mutant("tasks of what is not gone on with count no more", "scheduler", "for task in self.running.values():\n            self.tasks",
           "for task in list[Running]():\n            self.tasks", TO_ROOT),
    Mutant("tasks of the dead count no more", "scheduler", "self.tasks[rank] -= 1", "pass", TREE),
    Mutant("nobody joins once it is closed", "partial", "if self.closed or self.gone", "if self.gone",
           Contract(quorum=2)),
    Mutant("a dead rank that had not called is asked for", "scheduler", "self.orphans |= 1 << rank  # it has not called",
           "pass  # it has not called", TREE, 4, 1),
    Mutant("a loss is asked for", "scheduler", "return [Ask(self.orphans)]", "return []", TREE, 4, 1),
    Mutant("who died while others were asked may have sent a copy", "master", "if self.dead != self.asked_dead:", "if False:",
           Contract(copies=2), 5, 3, first=24_900),
    Mutant("the answer waits until the deaths are known", "member", "if query.dead & ~self.dead:", "if False:", TREE, 4, 2),
    Mutant("what the dead have sent is dropped", "members", "if self.dead >> source & 1:\n            return []\n        if key",
           "if key", Contract(copies=0), 4, 2, first=21_400),
    Mutant("the root hears first", "master", "if root >= 0 and ready.holder != root:", "if False:", TO_ROOT._replace(copies=0)),
    Mutant("an outcome that a program may have stands", "master", "if outcome is not None and (outcome.error or report.complete):",
           "if False:", Contract(copies=0), 4, 2),
    Mutant("who has the result keeps it for others", "member", "self.items = {} if held is None else", "self.items = {} if True else",
           Contract(copies=0), 4, 2),
    Mutant("nothing is let go before all have it", "master", "if self.living & ~self.have:", "if False:", TREE, 3, 1),
    Mutant("a cover is disjoint", "recovery", "if not path & used:", "if True:", READY, 6, 3, first=114_500),
    Mutant("what the fixed tree cannot use is not used", "scheduler", "return path == possible or (", "return path == path or (",
           Contract(quorum=3), 5, 2),
    Mutant("a new master asks", "member", "effects += self.lead.collect()", "pass", TREE, 4, 1),
    Mutant("a new master is told that somebody waits", "member", "effects.append(self._tell(Waiting()))", "pass", TREE, 4, 1),
    Mutant("who waits for a rank that lets go is told", "member", "for rank in ranks_of(self.early)", "for rank in ranks_of(0)",
           TREE, 3, 1, True),
    Mutant("a result that could not be read is asked for", "member", "self.reading = False\n        return self._ask(outcome)",
           "return []", TREE, 2, 0, True, direct=True),
    Mutant("a result that another one has replaced is dropped", "member",
           "(path, where):\n            return []\n        return self._complete",
           "(path, outcome.where):\n            return []\n        return self._complete", READY, 3, 1, True, direct=True),
    Mutant("a question is answered before all is let go", "member", "for source, query in self.deferred)", "for source, query in [])",
           TREE, 4, 3, first=33_000),
)  # fmt: skip


def apply(monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    """Take the rule out, for the time of a test: the classes stay, their methods change."""
    name = f"{PACKAGE}.{mutant.module}"
    module = importlib.import_module(name)
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        text = file.read()
    assert text.count(mutant.old) == 1, f"{mutant.name}: found {text.count(mutant.old)} times"
    changed: dict[str, object] = {"__name__": name, "__file__": module.__file__}
    exec(compile(text.replace(mutant.old, mutant.new), module.__file__, "exec", dont_inherit=True), changed)
    for key, value in list(changed.items()):
        original = getattr(module, key, None)
        if isinstance(value, type) and value.__module__ == name:
            for attribute, function in vars(value).items():
                if isinstance(function, (types.FunctionType, property)) and attribute in vars(original):
                    monkeypatch.setattr(original, attribute, function)
            changed[key] = original
        elif isinstance(value, types.FunctionType) and value.__module__ == name:
            for other in MODULES:
                user = importlib.import_module(f"{PACKAGE}.{other}")
                if getattr(user, key, None) is original:
                    monkeypatch.setattr(user, key, value)
