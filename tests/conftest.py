"""What all tests share: Hypothesis without wall-clock deadlines, and no root tests without root."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from hypothesis import settings

from tests import soak as ledger
from tests.seeds import seed_of_the_commit

# The machine's speed must not decide whether a property holds. On CI the examples are the same every time.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_report_header() -> str:
    return f"seed {seed_of_the_commit()} (again with CKPT_SEED={seed_of_the_commit()})"


FIGURES = pytest.StashKey[dict[str, int]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Adds to a figure that is printed at the end of the run: figures(name, how_many)."""
    kept = request.config.stash.setdefault(FIGURES, {})

    def add(name: str, count: int) -> None:
        kept[name] = kept.get(name, 0) + count

    return add


@pytest.fixture
def soaked() -> Callable[..., None]:
    """Writes to the ledger of long sweeps, when CKPT_SOAK_LEDGER is set: soaked(row, count, **figures).

    To be called when all went well: what fails is not written down.
    """
    began = time.monotonic()

    def add(row: str, count: int, **found: int) -> None:
        nonlocal began
        if os.environ.get("CKPT_SOAK_LEDGER"):
            ledger.record(row, ledger.next_number(row), count, time.monotonic() - began, found)
            began = time.monotonic()

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    kept = config.stash.get(FIGURES, {})
    if kept:
        terminalreporter.section("figures")
        for name, count in kept.items():
            terminalreporter.write_line(f"{count:>12,}  {name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)
