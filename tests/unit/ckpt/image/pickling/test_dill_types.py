"""dill is what the pickler falls back to; so dill's own list of types goes through the pickler, one object of each.

Each is saved and comes back, as the same object (saved by name), as an equal one, or at least as one of the same type; or it
is refused by name, and stands here with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]

REFUSED = {
    # memory that belongs to C
    "CParamType": "CArgObject' object",
    "SymtableEntryType": "cannot pickle 'symtable entry' object",
    "DialectType": "cannot pickle 'Dialect' instances",
    # the position is known to C alone
    "LineIteratorType": "cannot pickle 'line_iterator' object",
    "PositionsIteratorType": "cannot pickle 'positions_iterator' object",
    # only with fork: they are used up to find their state
    "CallableIteratorType": "cannot be saved without fork",
    "SREScannerType": "cannot be saved without fork",
    "MemoryIteratorType": "cannot be saved without fork",
    # outside of the process, or of the image
    "SocketPairType": "the socket with descriptor",
    "FrameType": "a frame object cannot be saved",
}
OTHER_TYPE = {
    "ZlibCompressType": "ckpt.image.stdlib.compressors.Deflating",  # goes on where the other was
    "DeadCallableProxyType": "weakref.ProxyType",  # nothing can be done with a dead one
}
DIFFERS = {
    "DeadReferenceType": "dead references are equal to themselves only",
    "MethodType": "methods of two objects are never equal",
    "UnboundMethodType": "the same",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pytest.importorskip("dill")
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.ckpt.image.pickling.dill_types"],
        cwd=tmp_path_factory.mktemp("dill"),
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_list_is_long(outcomes: dict[str, str]) -> None:
    assert len(outcomes) > 150


def test_what_is_refused_is_refused_by_name(outcomes: dict[str, str]) -> None:
    refused = {name: text for name, text in outcomes.items() if text.startswith("refused: ")}
    assert refused.keys() == REFUSED.keys() & outcomes.keys(), refused
    wrong = {name: text for name, text in refused.items() if REFUSED[name] not in text}
    assert not wrong


def test_the_others_come_back(outcomes: dict[str, str]) -> None:
    others = {name: text for name, text in outcomes.items() if not text.startswith("refused: ")}
    changed = {name: text for name, text in others.items() if text not in ("same", "equal", "type")}
    for name, kind in OTHER_TYPE.items():
        assert changed.pop(name, f"other type: {kind}") == f"other type: {kind}"
    assert changed.keys() <= DIFFERS.keys(), changed
    assert set(changed.values()) <= {"differs"}
