"""Code for one package is in one class (`ckpt/image/libraries`, `compiled`, `joblib`, `pytorch`, `tools`), and nowhere else.

So no other module imports such a package or names it in a string, except for the cases listed below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.image.interface.table import BUILT_IN
from tools import rooms

pytestmark = pytest.mark.xdist_group("the whole source")  # one process parses it, and keeps the trees

ROOT = Path(__file__).parents[1]
ROOMS = (
    "ckpt/image/compiled/",
    "ckpt/image/frameworks/",
    "ckpt/image/joblib/",
    "ckpt/image/libraries/",
    "ckpt/image/pytorch/",
    "ckpt/image/tools/",
    "ckpt/image/interface/table.py",
)
STANDARD_LIBRARY = tuple(f"ckpt.image.{room}." for room in ("stdlib", "handles", "ipc", "loops", "pools"))
NAMES = {name for name, class_path in BUILT_IN.items() if not class_path.startswith(STANDARD_LIBRARY)} | {
    *(
        "coverage",
        "Cython",
        "cython",
        "_cython_",
        "mpi4py",
        "dill",
        "pyfakefs",
        "freezegun",
        "django",
        "sympy",
    ),
    *(
        "jax",
        "tensorflow",
        "cupy",
        "xarray",
        "dask",
        "polars",
        "setuptools",
        "pip",
        "cffi",
        "wrapt",
        "six",
    ),
}
EXEMPT = {
    "ckpt/abft/": ({"numpy", "scipy", "torch"}, "matrices are arrays or tensors; LAPACK"),
    "ckpt/mpi/": ({"numpy"}, "buffers of messages are arrays"),
    "ckpt/rank/": ({"mpi4py"}, "`import mpi4py` gives this toolkit's modules"),
    "controller/cli/": ({"mpi4py"}, "the option --no-mpi4py"),
    "controller/launch/imports.py": ({"mpi4py"}, "`import mpi4py` gives this toolkit's modules"),
    "transport/wires/": ({"zmq"}, "the wire is ZeroMQ"),
    "ckpt/image/reducers/dill_adapter.py": ({"dill"}, "what saves types that have no reducer here"),
    "ckpt/image/modules/package_baseline.py": (
        {"dill", "pip", "setuptools"},
        "no packages of the program: what ckpt uses, and what installs packages",
    ),
    "ckpt/reduction/": ({"numpy"}, "combines arrays of numpy"),
    "ckpt/redundancy/memory/": (
        {"numpy", "torch", "zmq"},
        "what replicas compare are arrays and tensors; the threads of ranks themselves",
    ),
    "ckpt/redundancy/files/descriptors.py": (
        {"numpy"},
        "it would write to a descriptor, which these files do not have",
    ),
    "ckpt/redundancy/surroundings/refusals.py": (
        {"h5py"},
        "its library opens files in C, where no hook of the interpreter sees it",
    ),
    "ckpt/image/modules/held_locks.py": ({"zmq"}, "what ranks use themselves holds no locks of the program"),
    "ckpt/image/modules/origins.py": (
        {"_cython_", "cython_runtime"},
        "modules that the import of another module makes: asked of every module, before any class can be asked",
    ),
}


def _named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and package of imports and of strings, other than documentation, that are or begin with a package's name."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            texts = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            texts = [node.module or ""]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            texts = [node.value]
        else:
            continue
        for text in texts:
            for name in NAMES:
                rest = text.removeprefix(name)
                if text.startswith(name) and (not rest or rest[0] in ".:" or name.endswith("_")):
                    yield node.lineno, name


def _exempt(path: str) -> set[str]:
    return {name for place, (names, _) in EXEMPT.items() if path.startswith(place) for name in names}


def _modules() -> list[tuple[str, Path]]:
    found = [
        path for top in ("ckpt", "transport", "controller") for path in sorted((ROOT / top).rglob("*.py"))
    ]
    return [(str(path.relative_to(ROOT)), path) for path in found]


def test_packages_are_named_in_their_rooms_only() -> None:
    wrong = [
        f"{relative}:{line} names {name}"
        for relative, path in _modules()
        if not relative.startswith(ROOMS)
        for line, name in _named(rooms.parse(path))
        if name not in _exempt(relative)
    ]
    assert wrong == [], (
        "say it in a class of ckpt/image/libraries, compiled, joblib, pytorch or tools:\n" + "\n".join(wrong)
    )


def test_every_exemption_is_needed() -> None:
    used = {
        (place, name)
        for relative, path in _modules()
        for place in EXEMPT
        if relative.startswith(place)
        for _, name in _named(rooms.parse(path))
    }
    assert {(place, name) for place, (names, _) in EXEMPT.items() for name in names} <= used


@pytest.mark.parametrize(
    "source",
    [
        "import numpy",
        "from numpy import random",
        "import sys\nsys.modules.get('numpy.random')",
        "x = 'numpy'",
    ],
)
def test_a_name_is_found(source: str) -> None:
    assert {name for _, name in _named(ast.parse(source))} == {"numpy"}


@pytest.mark.parametrize(
    "source", ['"""numpy"""', "x = 'numpy arrays'", "from . import numpy_like", "# numpy"]
)
def test_what_is_written_for_people_is_no_use_of_it(source: str) -> None:
    assert list(_named(ast.parse(source))) == []
