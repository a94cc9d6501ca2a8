"""Code that uses private parts of CPython, or depends on its version, is in one place: `frames*.h` and `private_api.h` in C,
the room `ckpt/compat/` in Python.

So a new version of Python needs changes there only (docs/new-python.md). Private are, in Python:

    names of the standard library that begin with an underscore: of a module, of its members, of an attribute of its objects
    comparisons of versions; flags and sizes of types; `ctypes.pythonapi`; memory at the address of an object
    the index of a reference in the list that `gc.get_referents` returns

Names that the library reference describes are not private, underscore or not: `os._exit`, `sys._getframe`,
`sys._current_frames`, the module `_thread`, `_replace` and similar names of named tuples, `_fields_` and the like of ctypes.

The source does not show to which class an attribute belongs. So a name counts as ours if the room of the module defines it,
or the room of a module that this one imports; otherwise it counts as the standard library's. In the rooms for other
libraries, it may be that library's.

The first part of this file is the checker for C, the second one that for Python; both are tested on samples and applied to
the tree.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tools import rooms

pytestmark = pytest.mark.xdist_group("the whole source")  # one process parses it, and keeps the trees

ROOT = Path(__file__).parents[1]
C_PLACES = {
    *(
        f"ckpt/image/frames/extension/{name}.h"
        for name in ("frames", "frames_311", "frames_312", "frames_313")
    ),
    "ckpt/image/lowlevel/private_api.h",
}
C_NAMES = {
    "a comparison of versions": r"\bPY_(VERSION_HEX|MINOR_VERSION|MICRO_VERSION)\s*[<>=]",
    "a private name": r"\b_Py[A-Z]?\w*\b",
    "an internal header": r'#\s*include\s*[<"]internal/|Py_BUILD_CORE',
    "a field of the state of a thread": r"\b(ts|tstate)->(?!c_profile)",
    "a field of the state of an interpreter": r"\binterp->",
    "a field of a generator": r"->gi_\w+",
    "the namespace of a type": r"->tp_dict\b",
    "the version of a dict": r"\bma_version_tag\b",
}


def without_comments(text: str) -> str:
    """The C source without its comments; line numbers stay."""
    return re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)


def found_in(text: str, patterns: dict[str, str], path: str) -> list[str]:
    return [
        f"{path}:{number}: {what}: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in patterns.items()
        if (match := re.search(pattern, line))
    ]


def sources(*endings: str) -> list[str]:
    folders = [ROOT / folder for folder in rooms.PACKAGES.values()]
    paths = {path for folder in folders for ending in endings for path in folder.rglob(f"*.{ending}")}
    return sorted(str(path.relative_to(ROOT)) for path in paths)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("#if PY_VERSION_HEX >= 0x030C0000", "a comparison of versions"),
        ("x = _PyType_Lookup(type, name);", "a private name"),
        ('#include "internal/pycore_frame.h"', "an internal header"),
        ("ts->cframe", "a field of the state of a thread"),
    ],
)
def test_what_is_private_in_c_is_found(line: str, what: str) -> None:
    assert what in found_in(line, C_NAMES, "sample.c")[0]


def test_private_names_in_c_are_behind_the_headers() -> None:
    wrong: list[str] = []
    for path in sources("c", "h"):
        if path not in C_PLACES:
            wrong += found_in(without_comments((ROOT / path).read_text()), C_NAMES, path)
    assert not wrong, "\n".join(wrong)


def test_the_places_exist() -> None:
    assert [path for path in C_PLACES if not (ROOT / path).exists()] == []


# ---- Python ----------------------------------------------------------------------------------------------

COMPAT = "ckpt.compat"
LIBRARY_ROOMS = {
    "ckpt.image.compiled",
    "ckpt.image.libraries",
    "ckpt.image.frameworks",
    "ckpt.image.joblib",
    "ckpt.image.pytorch",
    "ckpt.image.tools",
}
DOCUMENTED = {"os._exit", "sys._getframe", "sys._current_frames"}
DOCUMENTED_ATTRIBUTES = {"_replace", "_asdict", "_fields", "_field_defaults", "_make"}  # of named tuples
PRIVATE_MODULES = {name for name in sys.stdlib_module_names if re.match("_[^_]", name)} - {"_thread"}
VERSIONS = {"sys.version_info", "sys.hexversion", "sys.api_version", "platform.python_version_tuple"}
PYTHON_API = {"ctypes.pythonapi", "ctypes.PyDLL"}
TYPE_FIELDS = {"__flags__", "__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__"}
INTERESTING = {name.rpartition(".")[2] for name in VERSIONS | PYTHON_API}
MEMORY_CALLS = {"from_address", "string_at", "memmove"}

WHOSE = {
    # (module, name): whose the name is
    ("ckpt.image.interface.table", "_pytest"): "a package of pytest",
    ("ckpt.image.modules.package_baseline", "_distutils_hack"): "a package of setuptools",
    ("ckpt.mpi.base.errhandler", "_errhandler_kind"): "of what has an error handler: ckpt.mpi.comm",
    ("ckpt.mpi.mpi4py_private", "_alive"): "of ckpt.mpi.comm, of which it must not know",
    ("ckpt.mpi.mpi4py_private", "_side"): "of ckpt.mpi.comm, of which it must not know",
    ("ckpt.image.stdlib.rebuild_c_objects", "_hand_out"): "an argument: the function is a text",
}


def is_private(name: str) -> bool:
    """One underscore at the beginning, and none at the end: `_fields_` and its like are documented by ctypes and enum."""
    return re.fullmatch(r"_(?!_)\w*(?<!_)", name) is not None


def dotted(node: ast.AST) -> str | None:
    """The text `a.b.c` of such an expression; None for any other expression."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


KINDS = (
    *(ast.Import, ast.ImportFrom, ast.Attribute, ast.Name, ast.Constant, ast.Call, ast.Subscript),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg, ast.Assign),
)


def nodes_of(tree: ast.AST) -> list[Any]:
    """All of these kinds, without texts that are parts of a word: in f-strings, and ends that names are compared with."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, KINDS):
            found.append(node)
        if isinstance(node, ast.JoinedStr):
            waiting += [each for each in node.values if not isinstance(each, ast.Constant)]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in ("endswith", "removesuffix"):
            waiting.append(node.func)
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def defined_by(nodes: list[Any]) -> set[str]:
    """Private names that a module gives: functions, classes, variables, arguments, attributes of its objects, slots."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if dotted(node.value) in ("self", "cls"):
                found.add(node.attr)
        elif isinstance(node, ast.Assign) and dotted(node.targets[0]) == "__slots__":
            found |= {str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return {name for name in found if is_private(name)}


def standard_names(nodes: list[Any]) -> dict[str, str]:
    """What imports of the standard library bind: name here → name there."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                top = each.name.partition(".")[0]
                found[each.asname or top] = each.name if each.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return {
        name: there for name, there in found.items() if there.partition(".")[0] in sys.stdlib_module_names
    }


def rooms_of_imports(nodes: list[Any], modules: Collection[str]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "level", 0):
            above = [node.module] if isinstance(node, ast.ImportFrom) else []
            for each in node.names:
                target = ".".join([*map(str, above), each.name])
                yield (target if target in modules else target.rpartition(".")[0]).rpartition(".")[0]


def is_private_there(there: str) -> bool:
    """Is a dotted name of the standard library private, by one of its parts?"""
    return there not in DOCUMENTED and any(map(is_private, there.removeprefix("_thread").split(".")))


class Uses:
    """What of CPython a module uses that is private. `ours`: the private names of this project that it can mean."""

    def __init__(self, module: str, nodes: list[Any], ours: Collection[str]) -> None:
        self.module, self.nodes = module, nodes
        self.names = standard_names(nodes)
        self.ours = {
            *ours,
            *(name for key, name in WHOSE if key == module),
            *DOCUMENTED_ATTRIBUTES,
            "_thread",
        }
        self.is_for_a_library = module.rpartition(".")[0] in LIBRARY_ROOMS

    def found(self) -> Iterator[str]:
        look: dict[type, Callable[[Any], Iterator[str]]] = {
            ast.Import: self.imported,
            ast.ImportFrom: self.imported,
            ast.Attribute: self.attribute,
            ast.Name: self.name,
            ast.Constant: self.text,
            ast.Call: self.memory,
            ast.Subscript: self.order,
        }
        for node in self.nodes:
            if type(node) in look:
                for what in look[type(node)](node):
                    yield f"{self.module}:{node.lineno}: {what}"

    def is_foreign(self, name: str) -> bool:
        return is_private(name) and not self.is_for_a_library and name not in self.ours

    def imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for whole in (f"{above}{each.name}" for each in node.names if not getattr(node, "level", 0)):
            if whole.partition(".")[0] in sys.stdlib_module_names and is_private_there(whole):
                yield f"imports {whole}"

    def attribute(self, node: ast.Attribute) -> Iterator[str]:
        if node.attr[0] != "_" and node.attr not in INTERESTING:
            return
        path = str(dotted(node))
        root = path.partition(".")[0]
        if root in self.names:
            there = self.names[root] + path[len(root) :]
            if there in VERSIONS | PYTHON_API or (is_private(node.attr) and is_private_there(there)):
                yield f"uses {there}"
        elif node.attr in TYPE_FIELDS or (
            dotted(node.value) not in ("self", "cls") and self.is_foreign(node.attr)
        ):
            yield f"uses the attribute {node.attr}"

    def name(self, node: ast.Name) -> Iterator[str]:
        if self.names.get(node.id) in VERSIONS | PYTHON_API:
            yield f"uses {self.names[node.id]}"

    def text(self, node: ast.Constant) -> Iterator[str]:
        if isinstance(node.value, str) and "_" in node.value and not re.search(r"\s", node.value):
            for part in re.split(r"[.:]", node.value):
                if part in PRIVATE_MODULES or self.is_foreign(part):
                    yield f"names {part}"

    def memory(self, node: ast.Call) -> Iterator[str]:
        called = getattr(node.func, "attr", None)
        inside = (dotted(each) for argument in node.args for each in ast.walk(argument))
        if called in MEMORY_CALLS and "id" in inside:
            yield "reads or writes the memory of an object"

    def order(self, node: ast.Subscript) -> Iterator[str]:
        if isinstance(node.value, ast.Call) and dotted(node.value.func) == "gc.get_referents":
            yield "knows the order of an object's references"


def private_uses(module: str, source: str, ours: Collection[str] = ()) -> list[str]:
    nodes = nodes_of(ast.parse(source))
    return list(Uses(module, nodes, {*ours, *defined_by(nodes)}).found())


PRELUDE = "import gc, os, sys, ctypes, logging, threading\nfrom ckpt.transport.driver import port\n"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import _random", "imports _random"),
        ("import importlib._bootstrap", "imports importlib._bootstrap"),
        ("def f():\n    from _queue import SimpleQueue", "imports _queue.SimpleQueue"),
        ("from importlib import _bootstrap_external as b", "imports importlib._bootstrap_external"),
        ("threading._active.pop(1)", "uses threading._active"),
        ("import logging as l\nl.root._cache", "uses logging.root._cache"),
        ("def f(l):\n    l._levelToName", "uses the attribute _levelToName"),
        ("lock._is_owned()", "uses the attribute _is_owned"),
        ("getattr(threading, '_shutdown')()", "names _shutdown"),
        ("x = sys.modules.get('_lsprof')", "names _lsprof"),
        ("x = 'pickle:_Pickler.save'", "names _Pickler"),
        ("x.__dict__['_handle']", "names _handle"),
        ("if sys.version_info >= (3, 12):\n    pass", "uses sys.version_info"),
        ("from sys import hexversion\nx = hexversion > 1", "uses sys.hexversion"),
        ("ctypes.pythonapi.PyFrame_New", "uses ctypes.pythonapi"),
        ("cls.__flags__ & 512", "uses the attribute __flags__"),
        ("ctypes.c_int.from_address(id(x) + 16)", "reads or writes the memory of an object"),
        ("gc.get_referents(x)[0]", "knows the order of an object's references"),
    ],
)
def test_what_is_private_in_python_is_found(source: str, complaint: str) -> None:
    assert [each.split(": ")[1] for each in private_uses("ckpt.rank.runtime", PRELUDE + source)] == [
        complaint
    ]


@pytest.mark.parametrize(
    "source",
    [
        "os._exit(1)\nsys._getframe(1)\nsys._current_frames()\nfrom _thread import get_ident",
        "from __future__ import annotations\nimport __main__\nx = '__main__'",
        "class C:\n    def __init__(self, other):\n        self._x = other._x\n        getattr(other, '_x')",
        "from typing import NamedTuple\nrow._replace(a=1)._asdict()\nclass S:\n    _fields_ = ()",
        "x = f'{n}_ns'.removesuffix('_ns')\ngc.get_referents(x)\nctypes.c_int.from_address(address)",
    ],
)
def test_what_is_public_in_python_passes(source: str) -> None:
    assert private_uses("ckpt.rank.runtime", PRELUDE + source) == []


def test_names_of_a_library_are_that_librarys_in_its_room_only() -> None:
    source = "reader._engine\nimport _random"
    assert len(private_uses("ckpt.image.reducers.logs", source)) == 2
    assert private_uses("ckpt.image.libraries.pandas", source) == [
        "ckpt.image.libraries.pandas:2: imports _random"
    ]


def test_private_names_in_python_are_in_compat() -> None:
    modules = {name: path for name, path in rooms.project().items() if path.suffix == ".py"}
    nodes = {name: nodes_of(rooms.parse(path)) for name, path in modules.items()}
    defined: dict[str, set[str]] = {}  # by room
    for name in modules:
        defined.setdefault(name.rpartition(".")[0], set()).update(defined_by(nodes[name]))
    wrong: list[str] = []
    for name in modules:
        room = name.rpartition(".")[0]
        if room != COMPAT:
            ours = set[str]().union(
                *(defined.get(each, ()) for each in (room, *rooms_of_imports(nodes[name], modules)))
            )
            wrong += Uses(name, nodes[name], ours).found()
    assert not wrong, "\n".join(wrong)


def test_every_exemption_is_needed() -> None:
    modules = rooms.project()
    assert [key for key in WHOSE if key[1] not in modules[key[0]].read_text()] == []
