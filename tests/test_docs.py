"""The documentation agrees with the code: links, options, verbs, exit codes, events."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ckpt.errors
from ckpt.controller import errors
from ckpt.controller.cli import arguments
from tools import rooms

pytestmark = pytest.mark.xdist_group("the whole source")  # one process parses it, and keeps the trees

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND_LINE = (ROOT / "docs" / "command-line.md").read_text()
EVENTS = (ROOT / "docs" / "events.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text())
    targets = [(page.parent / name if name else page, anchor) for name, anchor in links]
    missing = [
        anchor for target, anchor in targets if target.suffix == ".md" and anchor not in anchors(target)
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_named_in_code_quotes_exists(page: Path) -> None:
    named = re.findall(r"`((?:ckpt|controller|transport|docs|examples|tests)/[\w./-]+)`", page.read_text())
    assert not [path for path in named if not (ROOT / path).exists()]


def verbs() -> dict[str, argparse.ArgumentParser]:
    parser = arguments.make_parser()
    [choices] = [
        action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(choices)


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {
        name
        for action in parser._actions
        if action.help is not argparse.SUPPRESS
        for name in action.option_strings
        if name not in ("-h", "--help")
    }


def test_every_verb_and_every_option_is_documented() -> None:
    documented = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", COMMAND_LINE))
    for name, parser in verbs().items():
        assert re.search(rf"^## ckpt {name}\b", COMMAND_LINE, re.MULTILINE), name
        assert not options(parser) - documented, name


def test_every_documented_option_exists() -> None:
    in_tables = re.findall(r"^\| (`-.*?) \|", COMMAND_LINE, re.MULTILINE)
    named = {name for cell in in_tables for name in re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", cell)}
    assert named
    assert named <= {option for parser in verbs().values() for option in options(parser)}


def test_the_exit_codes_are_those_of_the_code() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", COMMAND_LINE, re.MULTILINE)}
    assert documented == {value for name, value in vars(errors).items() if name.startswith("EXIT_")}


def logged_events() -> set[str]:
    """Names of events in the source: Log("x", …), events.append("x", …), _log("x", …), {"event": "x"}."""
    found: set[str] = set()
    for layer in ("controller", "ckpt"):
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(rooms.parse(path)):
                found.update(event_names(node))
    return found - {"output", "message"}  # of `--json` only, not in the log


def event_names(node: ast.AST) -> Iterator[str]:
    named: list[ast.expr] = []
    if isinstance(node, ast.Call) and node.args:
        function = ast.unparse(node.func)
        if function == "Log" or function.endswith(("._log", "events.append")):
            first = node.args[0]
            named = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    elif isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        named = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "event"]
    for value in named:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def test_every_event_is_documented() -> None:
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", EVENTS, re.MULTILINE))
    written = logged_events()
    assert {"committed", "rank-died", "round-started"} <= written
    assert not written - documented


def test_every_exception_that_a_program_may_catch_is_documented() -> None:
    guide = (ROOT / "docs" / "user-guide.md").read_text()
    missing = [name for name in ckpt.errors.__all__ if f"`{name}`" not in guide]
    assert not missing, missing
