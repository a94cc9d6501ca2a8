"""The rooms of the three packages, found in the source: their names, their imports, and a picture of these.

    python tools/rooms.py            print the picture, as it is in docs/architecture.md
    python tools/rooms.py --write    write it into docs/architecture.md

A *room* is a package (a folder with an `__init__.py`). `ORDER` lists them, lowest first: a room may import only rooms before
it. Every import counts, also those for types only and those inside functions. Modules of `FLOOR` belong to no room: all
rooms may import them, for example the trees of errors. `FACE` is what programs import, `SCRIPTS` what
processes begin with.

tests/test_layers.py checks the source against these rules.
"""

from __future__ import annotations

import ast
import functools
import gc
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: made by tools/rooms.py -->\n", "<!-- end of rooms -->\n"

# Where the modules of a package lie: two of them at the top of the repository.
PACKAGES = {"ckpt": "ckpt", "ckpt.transport": "transport", "ckpt.controller": "controller"}

FLOOR = frozenset(
    [
        *("ckpt.errors", "ckpt.version", "ckpt.image.errors", "ckpt.store.errors", "ckpt.undo.errors"),
        *("ckpt.transport", "ckpt.transport.errors", "ckpt.transport.namedtuples", "ckpt.transport.records"),
        *("ckpt.transport.finder", "ckpt.transport.integers", "ckpt.transport._integers"),
        "ckpt.transport.jsontext",
        *("ckpt.controller", "ckpt.controller.errors", "ckpt.diagnosis.errors"),
        "ckpt.abft.errors",
    ]
)
SCRIPTS = {"ckpt.__main__", "ckpt.controller.boot"}
"""What processes begin with."""
FACE = frozenset({"ckpt", "ckpt.MPI", "ckpt.layer", "ckpt.libraries", "ckpt.ready"})

ORDER = (
    "ckpt.compat",
    *("ckpt.transport.protocol", "ckpt.transport.wires", "ckpt.transport.rings"),
    *("ckpt.transport.boards", "ckpt.transport.driver"),
    *(
        "ckpt.store.disk",
        "ckpt.store.records",
        "ckpt.store.job",
        "ckpt.store.images",
        "ckpt.store.upkeep",
        "ckpt.store",
    ),
    *("ckpt.undo.selection", "ckpt.undo", "ckpt.undo.planning", "ckpt.undo.restart"),
    "ckpt.shared_memory",
    *("ckpt.mpi.base", "ckpt.mpi.datatypes", "ckpt.mpi.engine", "ckpt.mpi.requests", "ckpt.mpi.collectives"),
    "ckpt.mpi.slots",
    *("ckpt.mpi.comm", "ckpt.mpi.active", "ckpt.mpi.members", "ckpt.mpi.rma", "ckpt.mpi.io", "ckpt.mpi"),
    *(
        "ckpt.image.lowlevel",
        "ckpt.image.frames",
        "ckpt.image.threads",
        "ckpt.image.interface",
        "ckpt.image.modules",
        "ckpt.image.reducers",
        "ckpt.image.files",
        "ckpt.image.ipc",
    ),
    *(
        "ckpt.image.stdlib",
        "ckpt.image.handles",
        "ckpt.image.loops",
        "ckpt.image.libraries",
        "ckpt.image.compiled",
        "ckpt.image.tools",
        "ckpt.image.frameworks",
        "ckpt.image.process",
        "ckpt.image.pools",
        "ckpt.image.pytorch",
        "ckpt.image.joblib",
        "ckpt.image.pickling",
        "ckpt.image",
    ),
    *("ckpt.capture", "ckpt.replay", "ckpt.rank.channel", "ckpt.rank", "ckpt.doctor", "face"),
    *("ckpt.reduction.keeping", "ckpt.reduction"),
    *(
        "ckpt.diagnosis.handlers",
        "ckpt.diagnosis.surroundings",
        "ckpt.diagnosis",
        "ckpt.diagnosis.lldp",
        "ckpt.diagnosis.baseline",
    ),
    *("ckpt.abft.decisions", "ckpt.abft.numbers", "ckpt.abft.solver", "ckpt.abft.operations", "ckpt.abft"),
    "ckpt.redundancy.memory",
    "ckpt.redundancy.files",
    "ckpt.redundancy.surroundings",
    "ckpt.redundancy.agreement",
    "ckpt.redundancy",
    "ckpt.redundancy.comparison",
    *(
        "ckpt.controller.supervision.cuts",
        "ckpt.controller.supervision",
        "ckpt.controller.launch",
        "ckpt.controller.replicas",
        "ckpt.controller.adoption",
        "ckpt.controller.sharing",
        "ckpt.controller.hosts",
        "ckpt.controller.hosts.launch",
        "ckpt.controller.faults",
        "ckpt.controller.service",
        "ckpt.controller.doctor",
    ),
    *("ckpt.controller.cli.hosts", "ckpt.controller.cli", "main"),
)


@dataclass(frozen=True)
class Import:
    """One imported name. `module` is absolute; `name` is what `from module import name` takes, or None."""

    module: str
    name: str | None
    line: int
    typing_only: bool

    def targets(self) -> tuple[str, ...]:
        """The modules that this import may load: `from a import b` loads a, and a.b if that is a module."""
        return (self.module,) if self.name is None else (self.module, f"{self.module}.{self.name}")

    def target(self, known: Container[str]) -> str | None:
        """The module among `known` that is imported; None: none of them."""
        found = [each for each in self.targets() if each in known]
        return found[-1] if found else None


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


def project() -> dict[str, Path]:
    """Every module of the three packages by its dotted name; those in C by the path of their source."""
    found = {}
    for package, folder in PACKAGES.items():
        for pattern in ("*.py", "_*.c"):
            for path in sorted((ROOT / folder).rglob(pattern)):
                parts = [package, *path.relative_to(ROOT / folder).with_suffix("").parts]
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def parse(path: Path) -> ast.Module:
    """The tree of a source, which is kept. Nodes are in no cycles: to look for some takes twice the time of the parsing."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    finally:
        gc.enable()


@functools.cache
def imports_of(module: str, path: Path) -> list[Import]:
    if path.suffix != ".py":
        return []
    return imports(parse(path), module, package=path.name == "__init__.py")


def room_of(module: str, modules: dict[str, Path]) -> str | None:
    """The room that a module belongs to; None: the floor. Raises KeyError for a module that is in none."""
    if module in FLOOR:
        return None
    if module in FACE:
        return "face"
    if module in SCRIPTS:
        return "main"
    room = module if modules[module].name == "__init__.py" else module.rpartition(".")[0]
    if room not in ORDER:
        raise KeyError(f"{module} is in no room of tools/rooms.py")
    return room


def edges(modules: dict[str, Path]) -> Iterator[tuple[str, str, str]]:
    """(importing room, imported room, where) of every import between two rooms."""
    for module, path in modules.items():
        room = room_of(module, modules)
        for item in imports_of(module, path):
            target = item.target(modules)
            other = None if target is None else room_of(target, modules)
            if other is None or other == room:
                continue
            yield room or module, other, f"{module}:{item.line}: imports {target}"


def reduced(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges without those that follow from others: these are drawn."""
    below: dict[str, set[str]] = {}
    for room in ORDER:
        direct = {b for a, b in pairs if a == room}
        below[room] = direct.union(*(below.get(each, set()) for each in direct))
    return {
        (a, b) for a, b in pairs if not any(b in below[other] for x, other in pairs if x == a and other != b)
    }


def title(room: str, modules: dict[str, Path]) -> str:
    """The first sentence of the room's own docstring."""
    if room == "face":
        return "`import ckpt`, `from ckpt import MPI`, `ckpt.ready`: what programs use; `ckpt.libraries`: distributions."
    if room == "main":
        return "What processes begin with: `python -m ckpt`, and the script of agents."
    text = ast.get_docstring(parse(modules[room])) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def folder_of(room: str, modules: dict[str, Path]) -> str:
    if room == "face":
        return "ckpt/"
    if room == "main":
        return "ckpt/__main__.py, controller/boot.py"
    return f"{modules[room].parent.relative_to(ROOT)}/"


def picture() -> str:
    """The rooms in Markdown: a diagram of their imports, and the purpose of each."""
    modules = project()
    pairs = {(a, b) for a, b, _ in edges(modules) if a in ORDER}
    lines = ["```mermaid", "flowchart BT"]
    groups: dict[str, list[str]] = {}
    for room in ORDER:
        parts = room.split(".")
        groups.setdefault(".".join(parts[:2]) if len(parts) > 1 else room, []).append(room)
    for rooms in groups.values():
        if len(rooms) > 1:
            lines.append(f'    subgraph "{folder_of(rooms[0], modules).rstrip("/").rpartition("/")[0]}/"')
        for room in rooms:
            name = folder_of(room, modules).rstrip("/")
            lines.append(f'    {"    " * (len(rooms) > 1)}{room.replace(".", "_")}["{name}"]')
        if len(rooms) > 1:
            lines.append("    end")
    for a, b in sorted(reduced(pairs), key=lambda pair: (ORDER.index(pair[0]), ORDER.index(pair[1]))):
        lines.append(f"    {a.replace('.', '_')} --> {b.replace('.', '_')}")
    lines += ["```", "", "| room | what it is | files |", "| --- | --- | --- |"]
    for room in ORDER:
        count = sum(1 for module in modules if room_of(module, modules) == room)
        lines.append(f"| `{folder_of(room, modules)}` | {title(room, modules)} | {count} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    text = PICTURE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    if sys.argv[1:] == ["--write"]:
        PICTURE.write_text(f"{head}{BEGIN}{picture()}{END}{tail}", encoding="utf-8")
    else:
        print(picture(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
