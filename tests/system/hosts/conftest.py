from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import apps
from tests.system.hosts.bed import Hosts, needs_hosts
from tests.system.support import write_app


@pytest.fixture
def ipv6() -> bool:
    """Have the hosts IPv6 addresses only? A module says so with a fixture of this name."""
    return False


@pytest.fixture
def hosts(ipv6: bool) -> Iterator[Hosts]:
    needs_hosts()
    found = Hosts(4, ipv6=ipv6)
    try:
        found.lay()
        yield found
    finally:
        found.remove()


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return write_app(tmp_path, apps.RING, "ring.py")
