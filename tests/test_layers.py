"""The rules of the architecture, checked in the source with `ast`.

Rooms       imports between rooms run one way, those for types and inside functions included (tools/rooms.py has the
            rooms and their order); a room has at most about 15 files.
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
from pathlib import Path

import pytest

from tools import rooms
from tools.rooms import Import

pytestmark = pytest.mark.xdist_group("the whole source")  # one process parses it, and keeps the trees

MOST_FILES = 15  # of a room, beside its __init__.py
MOST_SOURCES = 17  # of a folder, with all sources in C

# The modules that are promised to be pure; every one must exist. A new state machine is added here.
PURE = {
    "ckpt": "errors",
    "ckpt.abft": "errors",
    "ckpt.abft.decisions": "broadcast columns copies course encoding grid joining plan progress shares steps summa",
    "ckpt.abft.numbers": "arrays checked dense local methods seals triangle verify",
    "ckpt.abft.solver": "report",
    "ckpt.capture": "check_budget choice search stalls",
    "ckpt.compat": "interpreter",
    "ckpt.controller": "errors",
    "ckpt.controller.doctor": "facts problems report",
    "ckpt.controller.replicas": "clones coordinator copies ends events inquiries lines memory silence stalls supervisor "
    "text",
    "ckpt.controller.faults": "link_failures slowness",
    "ckpt.controller.adoption": "roster verdict",
    "ckpt.controller.sharing": "proof",
    "ckpt.controller.hosts": "batch fleet health hostlist lease slurm tenure",
    "ckpt.controller.supervision": "coordinator events failure_policy lines messages packet_events plan remedies "
    "rounds spares stopping supervisor uncommitted",
    "ckpt.controller.supervision.cuts": "boundaries vectors",
    "ckpt.diagnosis": "errors errors_map graph growth models report topology verdict witnesses",
    "ckpt.diagnosis.handlers": "entity face",
    "ckpt.diagnosis.lldp": "compare",
    "ckpt.image": "errors",
    "ckpt.image.frames": "opcodes tables",
    "ckpt.image.process": "clock_offsets",
    "ckpt.mpi.active": "table",
    "ckpt.mpi.base": "attributes constants envelope errors group handle handlers integers null_handles process progress",
    "ckpt.mpi.collectives": "topology",
    "ckpt.mpi.datatypes": "buffers datatype_info datatypes derived gaps layout op packing small_reductions status "
    "typenames",
    "ckpt.mpi.engine": "agreement failures matching operations partitioned windows",
    "ckpt.mpi.rma": "epochs locks wire",
    "ckpt.mpi.io": "modes view wire",
    "ckpt.redundancy.memory": "comparison",
    "ckpt.redundancy.files": "together",
    "ckpt.redundancy.agreement": "order turns",
    "ckpt.redundancy": "ahead chain lines membership model origin vote",
    "ckpt.redundancy.comparison": "arrivals digests release",
    "ckpt.reduction": "errors master member members messages partial recovery scheduler",
    "ckpt.replay": "position",
    "ckpt.store": "errors",
    "ckpt.store.job": "branch journal",
    "ckpt.store.records": "authenticated control formats journal manifest shapes",
    "ckpt.undo": "errors path_table records recorder",
    "ckpt.undo.selection": "patterns",
    "ckpt.undo.planning": "across_hosts before_images moves plan planned",
    "ckpt.transport": "errors integers jsontext namedtuples records",
    "ckpt.transport.protocol": "batches config endpoint events frames ledger link rangeset simulation state timeout "
    "units watch window",
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
# Mere values in impure libraries: a generator of which everything follows from its seed, names of signals and errors,
# a comparison.
VALUE_TYPES = {
    ("random", "Random"),
    ("signal", "Signals"),
    ("ckpt.compat.accelerators", "compare_digest"),
    *(("os", name) for name in ("PathLike", "fspath", "strerror")),
}
IMPURE_CALLS = {"open", "input", "print", "breakpoint", "eval", "exec", "compile", "__import__"}
# One module makes methods of classes, when these are defined, and looks up what the text of an annotation names.
ALLOWED = {
    ("ckpt.transport.namedtuples", "exec"),
    ("ckpt.transport.records", "exec"),
    ("ckpt.transport.records", "modules"),
}
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


def upward(module: str, found: list[Import], modules: dict[str, Path]) -> Iterator[str]:
    """Imports of a room that comes later. `modules`: all of the project, and `module` among them."""
    room = rooms.room_of(module, modules)
    level = -1 if room is None else rooms.ORDER.index(room)
    for item in found:
        target = item.target(modules)
        other = None if target is None else rooms.room_of(target, modules)
        if other is not None and rooms.ORDER.index(other) > level:
            yield f"{module}:{item.line}: imports {target}, of the room {other}, which is above"


def impurities(
    module: str, tree: ast.Module, found: list[Import], pure: set[str], known: set[str]
) -> Iterator[str]:
    """The places where a pure module does what it must not. `known`: all modules of the project."""
    for item in found:
        if item.typing_only:
            continue
        top = item.module.partition(".")[0]
        if top in IMPURE_REASON and not value_type(item):
            yield f"{module}:{item.line}: imports {item.module} ({IMPURE_REASON[top]})"
        elif top == "ckpt":
            loaded = [target for target in item.targets() if target in known]
            if loaded and loaded[-1] not in pure and not value_type(item):
                yield f"{module}:{item.line}: imports {loaded[-1]}, which is not pure"
        elif top not in sys.stdlib_module_names and module.startswith("ckpt.transport."):
            yield f"{module}:{item.line}: imports {item.module}, which is not in the standard library"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS and (module, node.func.id) not in ALLOWED:
                yield f"{module}:{node.lineno}: calls {node.func.id}()"
            elif node.func.id == "Random" and not node.args:
                yield f"{module}:{node.lineno}: Random() without a seed"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "sys" and node.attr in IMPURE_SYS and (module, node.attr) not in ALLOWED:
                yield f"{module}:{node.lineno}: uses sys.{node.attr}"
            elif node.attr == "random" and node.value.id in ("np", "numpy"):
                yield f"{module}:{node.lineno}: uses {node.value.id}.random"


def value_type(item: Import) -> bool:
    """Is it one of the names of an impure library that are mere values?"""
    return (item.module, item.name) in VALUE_TYPES


def pure_modules() -> set[str]:
    return {f"{package}.{name}" for package, names in PURE.items() for name in names.split()}


# ---- the checker itself ----------------------------------------------------------------------------------


def check(module: str, source: str, known: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    tree = ast.parse(source)
    found = rooms.imports(tree, module, package=False)
    modules = rooms.project() | {module: Path("sample.py")}
    return [*upward(module, found, modules), *impurities(module, tree, found, pure_modules(), set(known))]


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("ckpt.transport.protocol.link", "import ckpt", "room face, which is above"),
        ("ckpt.transport.protocol.link", "from ckpt.controller.supervision.plan import x", "which is above"),
        ("ckpt.rank.runtime", "def f():\n    import ckpt.controller.cli.main", "which is above"),
        ("ckpt.rank.runtime", "if TYPE_CHECKING:\n    import ckpt.controller.cli.main", "which is above"),
        ("ckpt.mpi.datatypes.op", "from ...controller.supervision import plan", "which is above"),
        ("ckpt.transport.protocol.link", "import time", "clock"),
        ("ckpt.transport.protocol.link", "from time import monotonic_ns as now", "clock"),
        ("ckpt.transport.protocol.link", "def f():\n    from datetime import datetime", "clock"),
        ("ckpt.transport.protocol.link", "import socket", "socket"),
        ("ckpt.transport.protocol.link", "import zmq.utils", "socket"),
        (
            "ckpt.transport.protocol.link",
            "try:\n    import threading\nexcept ImportError:\n    pass",
            "thread",
        ),
        ("ckpt.transport.protocol.link", "import random", "random"),
        ("ckpt.transport.protocol.link", "from random import random", "random"),
        ("ckpt.transport.protocol.link", "from random import Random\nr = Random()", "without a seed"),
        ("ckpt.transport.protocol.link", "from os import environ", "file"),
        ("ckpt.transport.protocol.link", "import pathlib", "file"),
        ("ckpt.transport.protocol.link", "x = open('f')", "calls open"),
        ("ckpt.transport.protocol.link", "print('x')", "calls print"),
        ("ckpt.transport.protocol.link", "import sys\nsys.argv", "sys.argv"),
        ("ckpt.transport.protocol.link", "import numpy", "standard library"),
        (
            "ckpt.transport.protocol.link",
            "from ..driver.port import Port",
            "ckpt.transport.driver.port, which is not pure",
        ),
        (
            "ckpt.transport.protocol.link",
            "from ckpt.transport.driver import port",
            "ckpt.transport.driver.port, which is not pure",
        ),
        ("ckpt.mpi.datatypes.op", "import numpy as np\nnp.random.rand()", "np.random"),
        (
            "ckpt.mpi.engine.matching",
            "from ckpt.rank.runtime import Runtime",
            "ckpt.rank.runtime, which is not pure",
        ),
    ],
)
def test_a_violation_is_found(module: str, source: str, complaint: str) -> None:
    found = check(
        module,
        "from typing import TYPE_CHECKING\n" + source,
        {"ckpt.transport.driver.port", "ckpt.rank.runtime"},
    )
    assert any(complaint in each for each in found), found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "ckpt.transport.protocol.link",
            "from __future__ import annotations\nimport heapq\nfrom collections import deque",
        ),
        (
            "ckpt.transport.protocol.link",
            "from ckpt.transport.protocol.frames import Frame\nfrom .events import Event",
        ),
        (
            "ckpt.transport.protocol.link",
            "if TYPE_CHECKING:\n    from random import Random\n    import threading",
        ),
        ("ckpt.transport.protocol.link", "from random import Random\ngenerator = Random(17)"),
        ("ckpt.mpi.datatypes.op", "import numpy as np\nnp.maximum(1, 2)"),
        (
            "ckpt.controller.supervision.plan",
            "from ckpt.errors import CkptError\nfrom ckpt.transport.errors import X",
        ),
        ("ckpt.transport.protocol.link", "import sys\nsys.getsizeof(b'')\nself.open(1)\nclock.time()"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    known = {
        "ckpt.transport.protocol.frames",
        "ckpt.transport.errors",
        "ckpt.errors",
        "ckpt.transport.protocol.events",
    }
    assert check(module, "from typing import TYPE_CHECKING\n" + source, known) == []


def test_the_line_is_named() -> None:
    assert check("ckpt.transport.protocol.link", "x = 1\n\nimport time") == [
        "ckpt.transport.protocol.link:3: imports time (clock)"
    ]


# ---- the tree --------------------------------------------------------------------------------------------


def test_imports_between_rooms_run_one_way() -> None:
    modules = rooms.project()
    wrong: list[str] = []
    for module, path in modules.items():
        wrong += upward(module, rooms.imports_of(module, path), modules)
    assert not wrong, "\n".join(wrong)


def test_every_room_is_there_and_no_larger_than_one_can_see() -> None:
    modules = rooms.project()
    sizes = {
        room: sum(rooms.room_of(each, modules) == room and each != room for each in modules)
        for room in rooms.ORDER
    }
    assert not [room for room, size in sizes.items() if not size and room not in modules]
    assert not {room: size for room, size in sizes.items() if size > MOST_FILES}


def test_a_folder_holds_no_more_sources_than_one_can_see() -> None:
    """A module in C may have many files: those are in folders of their own, without an `__init__.py`."""
    found: dict[str, int] = {}
    for top in rooms.PACKAGES.values():
        for path in (rooms.ROOT / top).rglob("*.*"):
            if path.suffix in (".py", ".c") and path.name != "__init__.py":
                folder = str(path.parent.relative_to(rooms.ROOT))
                found[folder] = found.get(folder, 0) + 1
    assert not {folder: size for folder, size in found.items() if size > MOST_SOURCES}


def test_unit_tests_mirror_the_rooms() -> None:
    """A folder of unit tests has the name of the room that it tests, or of the package above several rooms."""
    unit = rooms.ROOT / "tests" / "unit"
    names = {"transport": "ckpt.transport", "controller": "ckpt.controller"}
    modules, wrong = rooms.project(), []
    for folder in {path.parent for path in unit.rglob("test_*.py")} - {unit, unit / "examples"}:
        top, *rest = folder.relative_to(unit).parts
        if ".".join([names.get(top, top), *rest]) not in modules:
            wrong.append(str(folder))
    assert not wrong, "\n".join(wrong)


def test_tests_have_rooms_too() -> None:
    """Those with real processes lie in folders by the question that they answer, each no larger than a room of the code."""
    system = rooms.ROOT / "tests" / "system"
    files = [path.parent.relative_to(system).as_posix() for path in system.rglob("test_*.py")]
    assert "." not in files
    assert not {folder: files.count(folder) for folder in files if files.count(folder) > MOST_FILES}


def test_the_picture_of_the_rooms_is_current() -> None:
    assert rooms.picture() in rooms.PICTURE.read_text(encoding="utf-8"), "python tools/rooms.py --write"


def test_pure_modules_are_pure() -> None:
    modules = rooms.project()
    known = {module for module, path in modules.items() if path.suffix == ".py"}  # C has no Python to look at
    wrong: list[str] = []
    for module in sorted(pure_modules() & modules.keys()):
        tree = rooms.parse(modules[module])
        found = rooms.imports(tree, module, package=False)
        wrong += impurities(module, tree, found, pure_modules(), known)
    assert not wrong, "\n".join(wrong)


def test_every_module_that_is_promised_to_be_pure_exists() -> None:
    """If a module moves, its name in the list has to change too: otherwise the list would check nothing."""
    missing = pure_modules() - rooms.project().keys()
    assert not missing, f"not there: {sorted(missing)}"


@pytest.mark.parametrize("system", ["ckpt.reduction", "ckpt.redundancy"])
def test_systems_on_top_of_ckpt_import_its_public_names_only(system: str) -> None:
    """What such a system needs of ckpt is there for every program, with its own tests and documents."""
    public = {"ckpt", "ckpt.MPI", "ckpt.errors", "ckpt.layer"}
    wrong = [
        f"{module}:{item.line}: imports {item.module}.{item.name or ''}"
        for module, path in rooms.project().items()
        if module == system or module.startswith(f"{system}.")
        for item in rooms.imports_of(module, path)
        if item.module.partition(".")[0] == "ckpt"
        and item.module not in public
        and not item.module.startswith(system)
    ]
    assert not wrong, "\n".join(wrong)


def test_import_ckpt_does_not_import_the_systems_on_top() -> None:
    modules = rooms.project()
    wrong = [
        module
        for module, path in modules.items()
        if not module.startswith(("ckpt.reduction", "ckpt.redundancy", "ckpt.controller.replicas"))
        and any(
            (item.target(modules) or "").startswith(("ckpt.reduction", "ckpt.redundancy"))
            for item in rooms.imports_of(module, path)
        )
    ]
    assert not wrong, wrong


def test_one_module_imports_dill() -> None:
    importers = {
        module
        for module, path in rooms.project().items()
        for item in rooms.imports_of(module, path)
        if item.module.partition(".")[0] == "dill" and not item.typing_only
    }
    assert len(importers) <= 1, f"dill is imported by {sorted(importers)}"


def test_ranks_do_not_load_the_command_lines_libraries() -> None:
    """transport and the rank's side of ckpt start fast: no argument parser, no terminal library."""
    wrong = [
        f"{module}:{item.line}: imports {item.module}"
        for module, path in rooms.project().items()
        if not module.startswith("ckpt.controller.")
        for item in rooms.imports_of(module, path)
        if item.module.partition(".")[0] in ("argparse", "curses", "typer", "rich", "textual")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_location_of_faults_stands_alone() -> None:
    """No rank has it, since its credentials must be in no image: only the command line imports it."""
    wrong = []
    for module, path in rooms.project().items():
        for item in rooms.imports_of(module, path):
            inside, names = module.startswith("ckpt.diagnosis"), item.module.startswith("ckpt.diagnosis")
            if (names and not inside and not module.startswith("ckpt.controller.cli.")) or (
                inside and item.module.partition(".")[0] == "ckpt" and not names
            ):
                wrong.append(f"{module}:{item.line}: imports {item.module}")
    assert not wrong, "\n".join(wrong)
