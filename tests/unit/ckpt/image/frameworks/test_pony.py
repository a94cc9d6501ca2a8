"""pony: caches by the addresses of code are emptied, pools go on in the new process."""

from __future__ import annotations

import os
import sys
import types

import pytest

from ckpt.image.frameworks.pony import Pony


def test_caches_by_addresses_are_emptied_and_pools_keep_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query was looked for by the address of another one's code; a database in memory was empty after a restart."""
    database = type("Database", (), {})
    pool = type("Pool", (), {"pid": None})
    core, provider = types.ModuleType("pony.orm.core"), types.ModuleType("pony.orm.dbapiprovider")
    core.Database, provider.Pool = database, pool  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pony.orm.core", core)
    monkeypatch.setitem(sys.modules, "pony.orm.dbapiprovider", provider)
    own, used, unused = database(), pool(), pool()
    own._translator_cache, own._constructed_sql_cache = {1: "one"}, {(2,): "two"}  # type: ignore[attr-defined]
    used.pid = 1  # type: ignore[attr-defined]
    Pony("pony.orm.core").after_restart()
    assert (own._translator_cache, own._constructed_sql_cache) == ({}, {})  # type: ignore[attr-defined]
    assert (used.pid, unused.pid) == (os.getpid(), None)  # type: ignore[attr-defined]
