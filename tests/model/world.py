"""The production code that is explored and simulated, loaded from its source, with rules taken out on demand.

A `World` is one copy of the modules in `MODULES`, compiled from the files as they are; a `Mutant` replaces pieces of their
text, each of which must occur exactly once: when the code changes, the mutant has to be checked again. Everything that these
modules import from elsewhere is the ordinary production module.

Two parts are not production code: `ckpt.capture.writing.write` (the work of the image child; here a method of the rank under
test, called where the child would be forked), and the parts of `ckpt.image` that read a real program's call stack (see
`without_stacks`).
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import ckpt.capture.memory
import ckpt.capture.threads
import ckpt.image

ROOT = Path(__file__).resolve().parent.parent.parent

MODULES = (
    "ckpt.transport.protocol.units",
    "ckpt.transport.protocol.window",
    "ckpt.transport.protocol.ledger",
    "ckpt.transport.protocol.link",
    "ckpt.transport.protocol.endpoint",
    "ckpt.controller.supervision.cuts.vectors",
    "ckpt.controller.supervision.history",
    "ckpt.controller.supervision.coordinator",
    "ckpt.controller.supervision.stopping",
    "ckpt.controller.supervision.supervisor",
    "ckpt.capture.taker",
    "ckpt.capture.imager",
    "ckpt.rank.packets",
    "ckpt.rank.runtime",
)
"""In the order in which they use each other."""


@dataclass(frozen=True)
class Edit:
    """In `module`, `old` (found exactly once) becomes `new`."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A rule taken out. `rule`: its row in the protocol's table."""

    name: str
    rule: str
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        return self.name


def mutant(name: str, rule: str, *edits: tuple[str, str, str]) -> Mutant:
    """A mutant from (module, old, new) triples."""
    return Mutant(name, rule, tuple(Edit(*edit) for edit in edits))


class World:
    """One copy of the production modules. `endpoint`, `runtime`, … are their classes and functions."""

    def __init__(self, edits: tuple[Edit, ...] = ()) -> None:
        self.modules: dict[str, ModuleType] = {}
        for name in MODULES:
            self.modules[name] = self._load(name, [edit for edit in edits if edit.module == name])
        assert all(edit.module in MODULES for edit in edits)
        self.endpoint: Any = self.modules["ckpt.transport.protocol.endpoint"].Endpoint
        self.vectors = self.modules["ckpt.controller.supervision.cuts.vectors"]
        self.history = self.modules["ckpt.controller.supervision.history"]
        self.coordinator: Any = self.modules["ckpt.controller.supervision.coordinator"].Coordinator
        self.supervisor: Any = self.modules["ckpt.controller.supervision.supervisor"].Supervisor
        self.runtime: Any = self.modules["ckpt.rank.runtime"].Runtime
        self.obey: Any = self.modules["ckpt.rank.packets"].obey
        taking: Any = self.modules["ckpt.capture.taker"]
        taking.write = lambda runtime, job: runtime.write_image(job)
        taking._fork = _no_fork

    def _load(self, name: str, edits: list[Edit]) -> ModuleType:
        path = ROOT / f"{name.replace('.', '/')}.py"
        text = path.read_text(encoding="utf-8")
        for edit in edits:
            found = text.count(edit.old)
            assert found == 1, f"{name}: found {found} times: {edit.old}"
            text = text.replace(edit.old, edit.new)
        module = ModuleType(name)
        module.__file__ = str(path)
        module.__dict__["__name__"] = name
        # dataclasses look their module up while it is executed
        with mock.patch.dict(sys.modules, {**self.modules, name: module}):
            for loaded, copy in self.modules.items():
                package, _, short = loaded.rpartition(".")
                if hasattr(sys.modules.get(package), short):
                    setattr(sys.modules[package], short, copy)
            try:
                exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
            finally:
                for loaded in self.modules:
                    package, _, short = loaded.rpartition(".")
                    if loaded in ORIGINALS:
                        setattr(sys.modules[package], short, ORIGINALS[loaded])
        return module


def _no_fork(noted: object, others: object = None) -> int:
    raise OSError(errno.ENOMEM, "nothing is forked here: the image is written at once")


def _originals() -> dict[str, ModuleType]:
    import importlib

    return {name: importlib.import_module(name) for name in MODULES}


ORIGINALS = _originals()


@cache
def production() -> World:
    """The world without any change."""
    return World()


@contextmanager
def without_stacks() -> Iterator[None]:
    """Do not capture call stacks, which these tests are not about: a capture always succeeds, and costs nothing. Nor are
    the threads and the memory mappings of the testing process examined (that took a quarter of the time of a simulation)."""
    with (
        mock.patch.multiple(
            ckpt.image,
            capture=lambda **_: SimpleNamespace(frames=()),
            prepare=lambda stack, extras, noted: extras,
            refuse_transient=lambda stack: None,
        ),
        mock.patch.object(ckpt.capture.threads.HarmlessThreads, "others", lambda self: []),
        mock.patch.multiple(
            ckpt.capture.memory, shared_files=list, resident_bytes=lambda: 1 << 20, available=lambda: None
        ),
    ):
        yield
