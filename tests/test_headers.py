"""Headers and docstrings name what exists: modules, classes and functions in roles (``:mod:`…```), and files.

Every module begins with a header, and every room's header lists its modules. A name that has moved since shows here; whether
a header is right, only a reader can say.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import rooms

pytestmark = pytest.mark.xdist_group("the whole source")  # one process parses it, and keeps the trees

ROLE = re.compile(r":(?:mod|class|func|meth|data|attr|exc):`~?(\.?[\w.]+)(?:\(\))?`")
FILE = re.compile(r"(?<![\w/.<*-])((?:[\w-]+/)*[\w-]+\.(?:py|c|h))\b(?![\w(])")
ENDING = re.compile(r"\.(?:py|c|h)\b")  # looked for first, since FILE takes ten times as long
FOREIGN = re.compile(r"(?:Lib|Modules|Objects|Include|Python|cpython|linux)/")
# Files of CPython, of a library or of a user that are named without their folder; frames_31N.h and the like: any of some.
ELSEWHERE = {
    *("app.py", "os.py", "code.py", "queue.py", "setup.py"),
    *("frames_31N.h", "frames_3NN.h", "dictobject.c", "listobject.c", "genobject.c", "setobject.c"),
    *("base_events.py", "selector_events.py", "unix_events.py", "events.py", "tasks.py", "posix-timers.h"),
    *("_superluobject.h", "supermatrix.h"),
}


def sources() -> dict[str, Path]:
    """Module's name → its file; the C files of an extension, and headers, by their path."""
    found = dict(rooms.project())
    for folder in rooms.PACKAGES.values():
        for path in (rooms.ROOT / folder).rglob("*.[ch]"):
            found.setdefault(str(path.relative_to(rooms.ROOT)), path)
    return found


@functools.cache
def content(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def texts(path: Path) -> list[str]:
    """The docstrings of a module, its header first; in C its comments."""
    if path.suffix != ".py":
        return re.findall(r"/\*.*?\*/", content(path), flags=re.DOTALL)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(rooms.parse(path))
    return [ast.get_docstring(node, clean=False) or "" for node in nodes if isinstance(node, documented)]


def exists(target: str, module: str, modules: dict[str, Path]) -> bool:
    """Is the dotted name a module, or in one? What comes behind a name in a module has to be written there."""
    if target.startswith("."):
        package = module if modules[module].name == "__init__.py" else module.rpartition(".")[0]
        target = package + target
    above, names = target, list[str]()
    while above and above not in modules:
        above, _, name = above.rpartition(".")
        names.append(name)
    if not above:
        return False
    folder = modules[above].parent
    places = folder.rglob("*.[ch]") if modules[above].suffix != ".py" else [modules[above]]
    written = "".join(map(content, places))
    if modules[above].name == "__init__.py":  # its header names all modules of the room, as words
        written = written.replace(texts(modules[above])[0], "")
    return all(re.search(rf"\b{name}\b", written) for name in names)


def is_known(target: str, path: Path) -> bool:
    """Is it of the standard library, or written in the module at `path` elsewhere than in roles?"""
    first = target.partition(".")[0]
    if first in sys.stdlib_module_names or hasattr(builtins, first):
        return True
    return re.search(rf"\b{first}\b", ROLE.sub("", content(path))) is not None


def wrong_names(module: str, text: str, modules: dict[str, Path]) -> Iterator[str]:
    if module in modules:
        for target in ROLE.findall(text):
            is_dotted = target.startswith(("ckpt.", "."))
            if not (exists(target, module, modules) if is_dotted else is_known(target, modules[module])):
                yield f"{module} names {target}"
    for name in FILE.findall(text) if ENDING.search(text) else ():
        if not FOREIGN.match(name) and name.rpartition("/")[2] not in ELSEWHERE and not is_file(name):
            yield f"{module} names {name}"


def is_file(name: str) -> bool:
    """Is it a file of this repository, by its path or the end of it?"""
    return name in FILES


def all_files() -> set[str]:
    """The ends of all paths, from a whole name on."""
    folders = (*rooms.PACKAGES.values(), "tests", "tools", "benchmarks", "examples")
    paths = [
        path.relative_to(rooms.ROOT).parts
        for folder in folders
        for ending in ("py", "c", "h")
        for path in (rooms.ROOT / folder).rglob(f"*.{ending}")
    ]
    return {"/".join(parts[start:]) for parts in paths for start in range(len(parts))}


FILES = all_files()


@pytest.mark.parametrize(
    "text",
    [
        ":mod:`ckpt.image.nowhere`",
        ":func:`ckpt.image.loading.nothing_such`",
        ":class:`.nowhere.Thing`",
        "see nowhere_such.py",
        "transport/wires/nowhere.c",
    ],
)
def test_a_name_of_what_does_not_exist_is_found(text: str) -> None:
    modules = rooms.project()
    assert len(list(wrong_names("ckpt.image.pairs", text, modules))) == 1


@pytest.mark.parametrize(
    "text",
    [
        ":mod:`ckpt.image`, :func:`ckpt.image.loading.load`, :meth:`ckpt.image.interface.library.Library.refuse`",
        ":func:`~ckpt.image.trial.examine`, :mod:`.trial`, :class:`io.TextIOWrapper`",
        "pairs.py, transport/rings/ring.c_not_a_file, ring_ends.c, Modules/_ctypes/callbacks.c, `x.pyi`",
    ],
)
def test_names_of_what_exists_pass(text: str) -> None:
    modules = rooms.project()
    assert list(wrong_names("ckpt.image.pairs", text, modules)) == []


def test_headers_name_what_exists() -> None:
    modules = rooms.project()
    wrong = [
        each
        for module, path in sources().items()
        for text in texts(path)
        for each in wrong_names(module, text, modules)
    ]
    assert not wrong, "\n".join(wrong)


# Rooms whose modules have the names of libraries; the face, where each name is documented by itself.
NOT_LISTED = {"ckpt", "ckpt.image.compiled", "ckpt.image.libraries", "ckpt.image.tools"}


def unlisted(room: str, header: str, modules: dict[str, Path]) -> list[str]:
    """The modules and rooms below a room that its header does not name."""
    below = [name.rpartition(".")[2] for name in modules if name.rpartition(".")[0] == room]
    return [name for name in below if name != "__main__" and not re.search(rf"\b{name}\b", header)]


def test_a_module_that_is_not_listed_is_found() -> None:
    modules = {
        "ckpt.room": Path(),
        "ckpt.room.one": Path(),
        "ckpt.room.two": Path(),
        "ckpt.other.three": Path(),
    }
    assert unlisted("ckpt.room", "A room.\n\n    one    the first", modules) == ["two"]


def test_the_header_of_a_room_lists_its_modules() -> None:
    modules = rooms.project()
    wrong = [
        f"{room}: {', '.join(missing)}"
        for room, path in modules.items()
        if path.name == "__init__.py"
        and room not in NOT_LISTED
        and (missing := unlisted(room, texts(path)[0], modules))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_file_has_a_header() -> None:
    bare = [
        path
        for path in sources().values()
        if not (texts(path)[0] if path.suffix == ".py" else content(path).startswith("/*"))
    ]
    assert not bare, "\n".join(map(str, bare))
