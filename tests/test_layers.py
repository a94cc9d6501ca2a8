"""The walls of the architecture, read off the source with `ast`.

Direction   transport ← ckpt ← controller: a lower package never imports a higher one, not even for types.
Purity      a pure module is a state machine: no clock, socket, thread, random number, file, process or
            environment; and of this project it imports only pure modules. Imports under `if TYPE_CHECKING:`
            do not run and may name anything the direction allows.
Libraries   transport's core needs the standard library only; one module imports dill.

The first half of this file is the checker; the second half tests it on samples and applies it to the tree.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("transport", "ckpt", "controller")  # lowest first

# The modules that are promised to be pure; every one must exist. A new state machine is added here.
PURE = {
    "transport": "batches config errors events frames jsontext lean ledger link endpoint rangeset simulation state timeout "
    "window",
    "ckpt": "allowance choice errors heldup",
    "ckpt.explicit": "position",
    "ckpt.store": "branch",
    "ckpt.mpi": "agreement attributes buffers constants datatypes derived envelope errors few group handle integers kind "
    "layout losses matching nothing op operations packing partitioned process progress status topology typenames",
    "ckpt.image": "errors opcodes tables",
    "controller": "boundaries coordinator doctor_report drought errors events judgement lines messages plan remedies "
    "supervisor "
    "translate vectors",
}

IMPURE_LIBRARIES = {
    "clock": "time datetime calendar sched timeit",
    "socket": "socket ssl select selectors socketserver http urllib zmq",
    "thread": "threading _thread concurrent multiprocessing asyncio queue contextvars",
    "random": "random secrets uuid",
    "file": "os io pathlib tempfile shutil glob fileinput mmap fcntl sqlite3 logging",
    "process": "subprocess signal resource atexit gc ctypes importlib runpy faulthandler",
}
IMPURE_REASON = {name: why for why, names in IMPURE_LIBRARIES.items() for name in names.split()}
# Mere values in impure libraries: a generator of which everything follows from its seed, names of signals.
VALUE_TYPES = {("random", "Random"), ("signal", "Signals")}
IMPURE_CALLS = {"open", "input", "print", "breakpoint", "eval", "exec", "compile", "__import__"}
# One module makes methods of classes, when these are defined.
ALLOWED_CALLS = {("transport.lean", "exec")}
IMPURE_SYS = {
    "argv",
    "stdin",
    "stdout",
    "stderr",
    "exit",
    "path",
    "modules",
    "getrefcount",
    "settrace",
    "_getframe",
}


@dataclass(frozen=True)
class Import:
    """One imported name. `module` is absolute; `name` is what `from module import name` takes, or None."""

    module: str
    name: str | None
    line: int
    typing_only: bool

    def targets(self) -> tuple[str, ...]:
        """The modules this may load: `from a import b` is a, and a.b if that is a module."""
        return (self.module,) if self.name is None else (self.module, f"{self.module}.{self.name}")


def imports(tree: ast.Module, module: str, *, package: bool) -> list[Import]:
    """Every import of the module called `module`, wherever it stands. `package`: it is an __init__.py."""
    found: list[Import] = []

    def visit(node: ast.AST, typing_only: bool) -> None:
        if isinstance(node, ast.If) and is_type_checking(node.test):
            for child in node.body:
                visit(child, True)
            for child in node.orelse:
                visit(child, typing_only)
            return
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, None, node.lineno, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, module, package)
            found.extend(Import(base, alias.name, node.lineno, typing_only) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child, typing_only)

    visit(tree, False)
    return found


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def absolute(node: ast.ImportFrom, module: str, package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    base = parts[: len(parts) - node.level + (1 if package else 0)]
    return ".".join([*base, *([node.module] if node.module else [])])


def upward(module: str, found: list[Import]) -> Iterator[str]:
    """Imports of a higher layer."""
    level = LAYERS.index(module.partition(".")[0])
    for item in found:
        top = item.module.partition(".")[0]
        if top in LAYERS and LAYERS.index(top) > level:
            yield f"{module}:{item.line}: imports {item.module}, a higher layer"


def impurities(
    module: str, tree: ast.Module, found: list[Import], pure: set[str], known: set[str]
) -> Iterator[str]:
    """What a pure module must not do. `known`: all modules of the project; `pure`: the pure ones of them."""
    for item in found:
        if item.typing_only:
            continue
        top = item.module.partition(".")[0]
        if top in IMPURE_REASON and not value_type(item):
            yield f"{module}:{item.line}: imports {item.module} ({IMPURE_REASON[top]})"
        elif top in LAYERS:
            loaded = [target for target in item.targets() if target in known]
            if loaded and loaded[-1] not in pure:
                yield f"{module}:{item.line}: imports {loaded[-1]}, which is not pure"
        elif top not in sys.stdlib_module_names and module.partition(".")[0] == "transport":
            yield f"{module}:{item.line}: imports {item.module}, which is not in the standard library"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS and (module, node.func.id) not in ALLOWED_CALLS:
                yield f"{module}:{node.lineno}: calls {node.func.id}()"
            elif node.func.id == "Random" and not node.args:
                yield f"{module}:{node.lineno}: Random() without a seed"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "sys" and node.attr in IMPURE_SYS:
                yield f"{module}:{node.lineno}: uses sys.{node.attr}"
            elif node.attr == "random" and node.value.id in ("np", "numpy"):
                yield f"{module}:{node.lineno}: uses {node.value.id}.random"


def value_type(item: Import) -> bool:
    """Is it one of the names of an impure library that are mere values?"""
    return (item.module, item.name) in VALUE_TYPES


def project() -> dict[str, Path]:
    """Every module of the three packages by its dotted name."""
    found = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def pure_modules() -> set[str]:
    return {f"{package}.{name}" for package, names in PURE.items() for name in names.split()}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


# ---- the checker itself ----------------------------------------------------------------------------------


def check(module: str, source: str, known: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    tree = ast.parse(source)
    found = imports(tree, module, package=False)
    return [*upward(module, found), *impurities(module, tree, found, pure_modules(), set(known))]


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("transport.link", "import ckpt", "higher layer"),
        ("transport.link", "from controller.plan import x", "higher layer"),
        ("ckpt.runtime", "def f():\n    import controller.cli", "higher layer"),
        ("ckpt.runtime", "if TYPE_CHECKING:\n    import controller", "higher layer"),
        ("ckpt.mpi.op", "from ...controller import plan", "higher layer"),
        ("transport.link", "import time", "clock"),
        ("transport.link", "from time import monotonic_ns as now", "clock"),
        ("transport.link", "def f():\n    from datetime import datetime", "clock"),
        ("transport.link", "import socket", "socket"),
        ("transport.link", "import zmq.utils", "socket"),
        ("transport.link", "try:\n    import threading\nexcept ImportError:\n    pass", "thread"),
        ("transport.link", "import random", "random"),
        ("transport.link", "from random import random", "random"),
        ("transport.link", "from random import Random\nr = Random()", "without a seed"),
        ("transport.link", "from os import environ", "file"),
        ("transport.link", "import pathlib", "file"),
        ("transport.link", "x = open('f')", "calls open"),
        ("transport.link", "print('x')", "calls print"),
        ("transport.link", "import sys\nsys.argv", "sys.argv"),
        ("transport.link", "import numpy", "standard library"),
        ("transport.link", "from .port import Port", "transport.port, which is not pure"),
        ("transport.link", "from transport import port", "transport.port, which is not pure"),
        ("ckpt.mpi.op", "import numpy as np\nnp.random.rand()", "np.random"),
        ("ckpt.mpi.matching", "from ckpt.runtime import Runtime", "ckpt.runtime, which is not pure"),
    ],
)
def test_a_violation_is_found(module: str, source: str, complaint: str) -> None:
    found = check(
        module, "from typing import TYPE_CHECKING\n" + source, {"transport.port", "ckpt.runtime", "transport"}
    )
    assert len(found) >= 1 and complaint in found[0], found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("transport.link", "from __future__ import annotations\nimport heapq\nfrom collections import deque"),
        ("transport.link", "from transport.frames import Frame\nfrom .errors import Corrupt"),
        ("transport.link", "if TYPE_CHECKING:\n    from random import Random\n    import threading"),
        ("transport.link", "from random import Random\ngenerator = Random(17)"),
        ("ckpt.mpi.op", "import numpy as np\nnp.maximum(1, 2)"),
        ("controller.plan", "from ckpt.errors import CkptError\nfrom transport.errors import X"),
        ("transport.link", "import sys\nsys.getsizeof(b'')\nself.open(1)\nclock.time()"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    known = {"transport.frames", "transport.errors", "ckpt.errors", "transport"}
    assert check(module, "from typing import TYPE_CHECKING\n" + source, known) == []


def test_the_line_is_named() -> None:
    assert check("transport.link", "x = 1\n\nimport time") == ["transport.link:3: imports time (clock)"]


# ---- the tree --------------------------------------------------------------------------------------------


def test_no_layer_imports_a_higher_one() -> None:
    wrong: list[str] = []
    for module, path in project().items():
        wrong += upward(module, imports(parse(path), module, package=path.name == "__init__.py"))
    assert not wrong, "\n".join(wrong)


def test_pure_modules_are_pure() -> None:
    modules = project()
    wrong: list[str] = []
    for module in sorted(pure_modules() & modules.keys()):
        tree = parse(modules[module])
        found = imports(tree, module, package=False)
        wrong += impurities(module, tree, found, pure_modules(), set(modules))
    assert not wrong, "\n".join(wrong)


def test_every_module_that_is_promised_to_be_pure_exists() -> None:
    """One that moved must move in the list too, or the list would check nothing."""
    missing = pure_modules() - project().keys()
    assert not missing, f"not there: {sorted(missing)}"


def test_one_module_imports_dill() -> None:
    importers = {
        module
        for module, path in project().items()
        for item in imports(parse(path), module, package=path.name == "__init__.py")
        if item.module.partition(".")[0] == "dill" and not item.typing_only
    }
    assert len(importers) <= 1, f"dill is imported by {sorted(importers)}"


def test_ranks_do_not_load_the_command_lines_libraries() -> None:
    """transport and the rank's side of ckpt start fast: no argument parser, no terminal library."""
    wrong = [
        f"{module}:{item.line}: imports {item.module}"
        for module, path in project().items()
        if module.partition(".")[0] != "controller"
        for item in imports(parse(path), module, package=path.name == "__init__.py")
        if item.module.partition(".")[0] in ("argparse", "curses", "typer", "rich", "textual")
    ]
    assert not wrong, "\n".join(wrong)
