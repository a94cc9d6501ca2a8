"""Modules have at most 400 lines and functions at most 70, so that a reader can keep them in mind.

The header of a longer module gives the reason, in a sentence that begins with "This module is long because" ("This file" in
C). A module that grows beyond the limit is divided by topic; only if that is not possible it gets such a sentence.

Of tests, tools, benchmarks and examples only the functions are measured.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import rooms

pytestmark = pytest.mark.xdist_group("the whole source")  # one process parses it, and keeps the trees

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 70
REASONS = {
    ".py": "This module is long because ",
    ".c": "This file is long because ",
    ".h": "This file is long because ",
}


def sources() -> list[Path]:
    return sorted(
        path
        for folder in rooms.PACKAGES.values()
        for suffix in REASONS
        for path in (rooms.ROOT / folder).rglob(f"*{suffix}")
    )


def other_sources() -> list[Path]:
    folders = ("tests", "tools", "benchmarks", "examples")
    return sorted(path for folder in folders for path in (rooms.ROOT / folder).rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    """The module; empty for a program that needs a later version of Python."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError:
        return ast.Module([], [])


def header(path: Path, text: str) -> str:
    """The docstring of a module, or the comment with which a file in C begins."""
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    return text[: text.index("*/")] if text.startswith("/*") else ""


def too_long(path: Path, text: str) -> bool:
    if len(text.splitlines()) <= MOST_LINES:
        return False
    words = " ".join(header(path, text).replace("\n * ", "\n").split())
    return REASONS[path.suffix] not in words


def long_functions(tree: ast.Module) -> list[str]:
    return [
        f"{node.name}: {(node.end_lineno or 0) - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]


def long_functions_in_c(text: str) -> list[str]:
    """Functions whose braces stand at the beginning of a line; without the lines of their heads."""
    found, opened = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if line == "{":
            opened = number
        elif line == "}" and opened:
            if number - opened >= MOST_LINES_OF_A_FUNCTION:
                found.append(f"line {opened}: {number - opened + 1} lines")
            opened = 0
    return found


@pytest.mark.parametrize("suffix", [".py", ".c"])
def test_a_reason_is_looked_for_in_the_header_only(suffix: str) -> None:
    path, lines = Path(f"sample{suffix}"), "\n" * MOST_LINES
    opening, end = ('"""', '"""') if suffix == ".py" else ("/* ", " */")
    reason = REASONS[suffix].strip().replace(" because", "\n because") + " it is one state machine."
    assert not too_long(path, f"{opening}Short.{end}\n")
    assert too_long(path, f"{opening}Long.{end}\n{lines}")
    assert too_long(path, f"{opening}Long.{end}\n{lines}{opening}{reason}{end}\n")
    assert not too_long(path, f"{opening}Long.\n\n{reason}\n{end}\n{lines}")


def test_a_long_function_is_found() -> None:
    body = "    x = 1\n" * (MOST_LINES_OF_A_FUNCTION - 1)
    assert long_functions(ast.parse(f"def f():\n{body}")) == []
    assert long_functions(ast.parse(f"def f():\n{body}    y = 2\n")) == ["f: 71 lines"]


def test_a_long_function_in_c_is_found() -> None:
    body = "    x();\n" * (MOST_LINES_OF_A_FUNCTION - 2)
    assert long_functions_in_c(f"int f(void)\n{{\n{body}}}\n") == []
    assert long_functions_in_c(f"int f(void)\n{{\n{body}\n}}\n") == ["line 2: 71 lines"]


def test_long_modules_give_a_reason_and_functions_are_short() -> None:
    found = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        if too_long(path, text):
            found.append(f"{path}: {len(text.splitlines())} lines")
        if path.suffix == ".py":
            found += [f"{path}: {each}" for each in long_functions(rooms.parse(path))]
        else:
            found += [f"{path}: {each}" for each in long_functions_in_c(text)]
    assert not found, "\n".join(found)


def test_functions_of_tests_and_tools_are_short() -> None:
    found = [f"{path}: {each}" for path in other_sources() for each in long_functions(parsed(path))]
    assert not found, "\n".join(found)
