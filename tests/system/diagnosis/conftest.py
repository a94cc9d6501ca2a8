from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.diagnosis import devices, services
from tests.system.diagnosis.cluster import Cluster
from tests.system.diagnosis.plant import NEEDED, Plant
from tests.system.hosts.bed import needs_hosts


@pytest.fixture(autouse=True)
def no_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def hosts() -> dict[str, str]:
    """On which switches do they hang? A module says otherwise with a fixture of this name."""
    return {"n1": "sw1", "n2": "sw1", "n3": "sw2"}


@pytest.fixture
def cluster(hosts: dict[str, str]) -> Iterator[Cluster]:
    for tool in ("ip", "nsenter", "nft"):
        if shutil.which(tool) is None:
            pytest.skip("needs ip (iproute2), nsenter (util-linux) and nft (nftables)")
    found = Cluster(hosts, [("sw1", "sw2")] if "sw2" in hosts.values() else [])
    try:
        found.lay()
        yield found
    finally:
        found.remove()


def needs_all() -> None:
    needs_hosts()
    missing = [*(each for each in NEEDED if devices.program(each) is None), *services.missing()]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    pytest.importorskip("ezsnmp", reason="ezsnmp is not installed")


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    needs_all()
    found = Plant(tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.end()
