"""What the documentation says is what the code does: links, options, verbs, exit codes, events."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

import pytest

from controller import cli, errors

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND_LINE = (ROOT / "docs" / "command-line.md").read_text()
EVENTS = (ROOT / "docs" / "events.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_named_in_code_quotes_exists(page: Path) -> None:
    named = re.findall(r"`((?:ckpt|controller|transport|docs|examples|tests)/[\w./-]+)`", page.read_text())
    assert not [path for path in named if not (ROOT / path).exists()]


def verbs() -> dict[str, argparse.ArgumentParser]:
    parser = cli._parser()
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
    documented = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", COMMAND_LINE))
    for name, parser in verbs().items():
        assert re.search(rf"^## ckpt {name}\b", COMMAND_LINE, re.MULTILINE), name
        assert not options(parser) - documented, name


def test_every_documented_option_exists() -> None:
    in_tables = re.findall(r"^\| (`-.*?) \|", COMMAND_LINE, re.MULTILINE)
    named = {name for cell in in_tables for name in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", cell)}
    assert named
    assert named <= options(verbs()["run"])


def test_the_exit_codes_are_those_of_the_code() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", COMMAND_LINE, re.MULTILINE)}
    assert documented == {value for name, value in vars(errors).items() if name.startswith("EXIT_")}


def logged_events() -> set[str]:
    """Names of events written in the source: Log("name", …), events.append("name", …), _log("name", …)."""
    found = set()
    for layer in ("controller", "ckpt"):
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                name = ast.unparse(node.func)
                if name == "Log" or name.endswith(("._log", "events.append")):
                    for value in ast.walk(node.args[0]):
                        if isinstance(value, ast.Constant) and isinstance(value.value, str):
                            found.add(value.value)
    return {name for name in found if re.fullmatch(r"[a-z]+(-[a-z]+)*", name)}


def test_every_event_is_documented() -> None:
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", EVENTS, re.MULTILINE))
    written = logged_events()
    assert {"committed", "rank-died", "round-started"} <= written
    assert not written - documented
