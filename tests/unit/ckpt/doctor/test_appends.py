"""Files that are opened for appending again and again. In a process of their own: an audit hook stays for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import json, os, sys
from pathlib import Path
from ckpt.doctor.appends import Appends

appends = Appends()
appends.watch()
os.chdir(sys.argv[1])

def by_open():
    open("a", "a").close()

def by_path():
    with Path("b").open("ab"):
        pass

def by_number():
    os.close(os.open(b"c", os.O_WRONLY | os.O_APPEND | os.O_CREAT))

for _ in range(3):
    by_open(), by_path(), by_number()
    open("written", "w").close()
    open("written").close()
    open("/dev/null", "a").close()
    open(os.open("written", os.O_WRONLY | os.O_APPEND), "a").close()
try:
    open("no/such/directory", "a")
except FileNotFoundError:
    pass
open("once", "a").close()
os.remove("c")
print(json.dumps(appends.found()))
"""


def found_in(program: str, directory: Path) -> list[dict[str, Any]]:
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", program, directory], cwd=root, capture_output=True, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_regular_files_opened_so_more_than_once_are_told_with_their_place(tmp_path: Path) -> None:
    found = {Path(row["path"]).name: row for row in found_in(PROGRAM, tmp_path)}
    assert set(found) == {"a", "b", "written"}
    assert [found[name]["times"] for name in ("a", "b", "written")] == [3, 3, 3]
    assert found["a"]["where"].endswith(" by_open") and found["b"]["where"].endswith(" by_path")
