"""Which modules a program imports, and which of them a host has: one that lacks a module gets no ranks. (driver)

Told when an agent dials in, so before ranks run there, also on a spare: ranks that were started there after the loss of
another host would end at once, and with them the job.

Read are the script, the module of `-m` or the code of `-c`, and the modules of the program's own that these import: those
that lie below the directory of the script (of `-m` and `-c`: below the working directory), or in the package of `-m`.

    always      whenever the program runs: statements outside of functions and conditions. Who lacks such a module gets
                no ranks
    perhaps     statements in functions, in `if`, loops and handlers of exceptions, and all that a module imports which is
                itself imported there: nobody knows whether the program comes there, so it is told, and ranks run
    not at all  what the program can do without, as it says: in a `try` that catches ImportError, in
                `contextlib.suppress(ImportError)`; and `if TYPE_CHECKING`

Of others' packages only the first name counts, not the version; of the program's own each module. Nothing is imported for
that. Names that are computed (`importlib.import_module(name)`) are not seen.

Not here: what is compared, and all packages of a host with their versions (:mod:`ckpt.controller.hosts`).
"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ckpt.controller.supervision.plan import words_of

__all__ = ["Imports", "Statement", "lacks", "modules_of", "statements"]

_MOST_FILES: Final = 200
"""So many files of the program's own are read."""

_OF_IMPORTS = frozenset(("ImportError", "ModuleNotFoundError"))
_OF_ALL = frozenset(("Exception", "BaseException"))


class Statement(NamedTuple):
    """`import module`, or `from module import names`, with `level` dots. `always`: carried out whenever its file is."""

    module: str
    names: tuple[str, ...] = ()
    level: int = 0
    always: bool = True


class Imports(NamedTuple):
    """Names of modules, and whether this host has them. What is in `always` is not in `perhaps`."""

    always: dict[str, bool]
    perhaps: dict[str, bool]

    @property
    def all(self) -> dict[str, bool]:
        return {**self.perhaps, **self.always}


def statements(source: bytes | str, *, is_main: bool = True) -> list[Statement]:
    """The imports of this code, without those that it can do without; none of what is no Python. `is_main`: its
    ``__name__`` is ``"__main__"``."""
    found: list[Statement] = []
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        _read(ast.parse(source).body, True, is_main, found)
    return found


def _read(body: Iterable[ast.stmt], always: bool, is_main: bool, found: list[Statement]) -> None:
    for node in body:
        match node:
            case ast.Import():
                found += [Statement(each.name, always=always) for each in node.names]
            case ast.ImportFrom():
                names = tuple(each.name for each in node.names if each.name != "*")
                found.append(Statement(node.module or "", names, node.level, always))
            case _:
                for block, is_sure in _blocks(node, is_main):
                    _read(block, always and is_sure, is_main, found)


def _blocks(node: ast.stmt, is_main: bool) -> Iterator[tuple[Sequence[ast.stmt], bool]]:
    """The blocks of a statement that may be carried out, and whether they are whenever the statement is."""
    match node:
        case ast.If():
            truth = _truth(node.test, is_main)
            if truth is not False:
                yield node.body, truth is True
            if truth is not True:
                yield node.orelse, truth is False
        case ast.Try() | ast.TryStar():
            caught = frozenset().union(*(_names(each.type) for each in node.handlers))
            if not caught & _OF_IMPORTS:
                yield node.body, not caught & _OF_ALL
            for handler in node.handlers:
                yield handler.body, False
            yield node.orelse, not caught & (_OF_IMPORTS | _OF_ALL)
            yield node.finalbody, True
        case ast.With() | ast.AsyncWith():
            caught = frozenset().union(*(_suppressed(each.context_expr) for each in node.items))
            if not caught & _OF_IMPORTS:
                yield node.body, not caught & _OF_ALL
        case ast.ClassDef():
            yield node.body, True
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.body, False
        case ast.For() | ast.AsyncFor() | ast.While():
            yield node.body, False
            yield node.orelse, False
        case ast.Match():
            for case in node.cases:
                yield case.body, False


def _truth(test: ast.expr, is_main: bool) -> bool | None:
    """What a condition is whenever the program runs; None: not known."""
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.UnaryOp(op=ast.Not()):
            truth = _truth(test.operand, is_main)
            return None if truth is None else not truth
        case ast.Compare(
            left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]
        ):
            return is_main
    return None


def _names(caught: ast.expr | None) -> frozenset[str]:
    """The names of the exceptions that a handler catches."""
    match caught:
        case None:
            return frozenset(("BaseException",))
        case ast.Tuple():
            return frozenset().union(*(_names(each) for each in caught.elts))
        case ast.Name():
            return frozenset((caught.id,))
        case ast.Attribute():
            return frozenset((caught.attr,))
    return frozenset()


def _suppressed(expression: ast.expr) -> frozenset[str]:
    match expression:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
            return frozenset().union(*(_names(each) for each in expression.args))
    return frozenset()


def modules_of(command: Sequence[str], options: Mapping[str, Any], directory: str) -> Imports:
    """The modules that the job's program imports, and whether this host has them. `command`, `options`: of the job;
    `directory`: in which it works."""
    return _Search(words_of(command, options), directory, has_mpi4py=options.get("mpi4py", True)).run()


class _File(NamedTuple):
    """A file of the program's own, to be read. `package`: to which its relative imports refer. `code`: without a file."""

    path: str
    package: str
    is_main: bool = False
    code: str | None = None


class _Place(NamedTuple):
    """A module on this host. `origin`: its file; None: it is nothing but directories. `folders`: where modules of the
    package are; None: it is no package."""

    origin: str | None
    folders: list[str] | None


class _Search:
    def __init__(self, words: Sequence[str], directory: str, *, has_mpi4py: bool) -> None:
        self._beside = directory
        self._top: str | None = None
        self._ours = {"ckpt", "mpi4py"} if has_mpi4py else {"ckpt"}
        self._found = Imports({}, {})
        self._places: dict[str, _Place | None] = {}
        self._files: list[_File] = []
        self._seen: set[str] = set()
        self._later: list[tuple[Statement, str]] = []
        self._always = True
        self._begin(*words[:2])

    def run(self) -> Imports:
        self._read_files()
        self._always = False
        for statement, package in self._later:  # which grows
            self._take(statement, package)
            self._read_files()
        return self._found

    def _begin(self, first: str = "", second: str = "") -> None:
        if first == "-c":
            self._files.append(_File("", "", is_main=True, code=second))
        elif first == "-m":
            top = second.partition(".")[0]
            self._top = None if top in sys.stdlib_module_names else top  # or a module here has that name
            if top and top not in self._ours:
                self._begin_with_module(second)
        else:
            path = os.path.join(self._beside, first)
            if os.path.isdir(path):
                path = os.path.join(path, "__main__.py")
            self._beside = os.path.dirname(os.path.realpath(path))
            self._add(_File(path, "", is_main=True))

    def _begin_with_module(self, name: str) -> None:
        place, package = self._place(name), name.rpartition(".")[0]
        if place is not None and place.folders is not None:
            name, package = f"{name}.__main__", name
            place = self._place(name)
        if place is not None and place.origin is not None and place.origin.endswith(".py"):
            self._add(_File(place.origin, package, is_main=True))
        self._note(name)

    def _add(self, file: _File) -> None:
        if file.path not in self._seen and len(self._seen) < _MOST_FILES:
            self._seen.add(file.path)
            self._files.append(file)

    def _read_files(self) -> None:
        for file in self._files:  # which grows
            source: bytes | str | None = file.code
            if source is None:
                try:
                    with open(file.path, "rb") as opened:
                        source = opened.read()
                except OSError:
                    continue
            for each in statements(source, is_main=file.is_main):
                if each.always and self._always:
                    self._take(each, file.package)
                else:
                    self._later.append((each, file.package))
        self._files.clear()

    def _take(self, statement: Statement, package: str) -> None:
        """Note what a statement imports that stands in a module of this package."""
        base = statement.module
        if statement.level:
            parents = package.split(".")[: len(package.split(".")) - statement.level + 1]
            if not package or not parents:
                return  # an error, whichever host it is
            base = ".".join([*parents, *([base] if base else [])])
        elif base.partition(".")[0] in sys.stdlib_module_names | self._ours:
            return
        if self._note(base):
            for name in statement.names:  # modules, or what is in the module: then these are nowhere
                self._note(f"{base}.{name}")

    def _note(self, name: str) -> bool:
        """Note whether a module is here, and those in which it is. Are modules in it of interest?"""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            prefix = ".".join(parts[:count])
            place = self._place(prefix)
            is_here = place is not None and place.origin is not None
            if prefix not in self._found.always:
                (self._found.always if self._always else self._found.perhaps).setdefault(prefix, is_here)
            if place is None or place.origin is None:
                continue
            if not self._is_own(place.origin, parts[0]):
                return False
            self._add(
                _File(place.origin, ".".join(parts[: count if place.folders is not None else count - 1]))
            )
            if place.folders is None:
                return False
        return True

    def _place(self, name: str) -> _Place | None:
        """Where a module is; None: there is none."""
        if name not in self._places:
            self._places[name] = self._look_for(name)
        return self._places[name]

    def _look_for(self, name: str) -> _Place | None:
        package, _, last = name.rpartition(".")
        folders: list[str] | None = [self._beside, *sys.path]
        if package:
            parent = self._place(package)
            folders = None if parent is None else parent.folders
        if folders is None:
            return None
        # how such a package finds its directories needs its parents to be imported
        inside = [path for path in (os.path.join(folder, last) for folder in folders) if os.path.isdir(path)]
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, folders)
            if not package and (spec is None or spec.origin is None):
                spec = importlib.util.find_spec(name) or spec  # one that an editable installation finds
        except KeyError:
            return _Place(None, inside)
        except (ImportError, ValueError, OSError):
            return None
        if spec is None:
            return None
        places = spec.submodule_search_locations
        return _Place(spec.origin, inside if spec.origin is None else places and list(places))

    def _is_own(self, path: str, top: str) -> bool:
        """Is it a file of the program's own?"""
        if not path.endswith(".py"):
            return False
        return top == self._top or (
            path.startswith(os.path.join(self._beside, "")) and "-packages/" not in path
        )


def lacks(here: Mapping[str, bool] | None, there: Mapping[str, bool] | None) -> list[str]:
    """What a host lacks and this one has. None: not known. Of a package that is not there its modules are not named."""
    if here is None or there is None:
        return []
    found = [name for name, is_here in here.items() if is_here and there.get(name) is False]
    return [name for name in found if name.rpartition(".")[0] not in found]
