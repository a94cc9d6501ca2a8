from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.support import Job, jobs_fixture


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """start(app, *argv, ranks=4, every=0.2, …) -> Job: options become flags of `ckpt run`."""
    yield from jobs_fixture(tmp_path)


@pytest.fixture
def find_the_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs whose entry is `tests.system.stub_rank` find it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs can connect to a port of this process: the environment variable PORT_OF_THE_TEST has its number."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("PORT_OF_THE_TEST", str(server.getsockname()[1]))
        yield


@pytest.fixture(scope="session")
def clock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to preload: it moves the wall clock by the seconds in the file that CKPT_TEST_CLOCK names."""
    source = Path(__file__).parent / "points" / "wallclock.c"
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    subprocess.run(["cc", "-O", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
