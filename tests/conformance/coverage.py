"""The coverage table of docs/mpi.md, made from the code: `python -m tests.conformance.coverage` rewrites it."""

from __future__ import annotations

import inspect
import os
from typing import Any

from ckpt import MPI

DOCUMENT = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "mpi.md")
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
CLASSES = (
    "Comm Intracomm Intercomm Topocomm Cartcomm Graphcomm Distgraphcomm Request Prequest Grequest Message Status "
    "Datatype Op Group Info Errhandler Session Pickle Win File"
)


def absent(member: Any) -> bool:
    """Whether a method only says what to use instead."""
    function = inspect.unwrap(getattr(member, "__func__", member))
    code = getattr(function, "__code__", None)
    return code is not None and (code.co_name == "refuse" or "NotImplementedError" in code.co_names)


def members(cls: type) -> tuple[list[str], list[str]]:
    """(offered, not offered) public methods and properties that the class has beyond its bases in the module."""
    bases = [base for base in cls.__mro__[1:] if base.__name__ in CLASSES.split()]
    offered, missing = [], []
    for name in sorted(dir(cls)):
        if name.startswith("_") or any(hasattr(base, name) for base in bases):
            continue
        member = inspect.getattr_static(cls, name)
        (missing if absent(member) or absent(getattr(cls, name)) else offered).append(name)
    return offered, missing


def table() -> str:
    lines = ["| class | offered | not offered |", "| --- | --- | --- |"]
    for name in CLASSES.split():
        offered, missing = members(getattr(MPI, name))
        lines.append(f"| {name} | {' '.join(offered)} | {' '.join(missing)} |")
    functions = [
        name for name in sorted(vars(MPI)) if inspect.isfunction(getattr(MPI, name)) and name[0] != "_"
    ]
    have = [name for name in functions if not absent(getattr(MPI, name))]
    lack = [name for name in functions if absent(getattr(MPI, name))]
    lines.append(f"| functions | {' '.join(have)} | {' '.join(lack)} |")
    return "\n".join(lines)


def document(text: str) -> str:
    """The document with the table as the code has it now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> None:
    with open(DOCUMENT, encoding="utf-8") as source:
        text = source.read()
    with open(DOCUMENT, "w", encoding="utf-8") as target:
        target.write(document(text))


if __name__ == "__main__":
    main()
