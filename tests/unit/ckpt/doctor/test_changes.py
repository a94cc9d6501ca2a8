"""What a program does to files, as the doctor's audit hook sees it. In a process of its own: such a hook stays for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import json, os, sys
from pathlib import Path
from ckpt.doctor.changes import Changes

os.chdir(sys.argv[1])
os.makedirs("job/doctor")
changes = Changes(os.path.abspath("job/doctor"), 0)
changes.watch()

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
os.makedirs("job-data", exist_ok=True)
for name in ("job/log", "job-data/log"):
    open(name, "w").close()
os.symlink("job-data/log", "link")
open("link", "a").close()
os.rename("written", "renamed")
os.utime("once")
print(json.dumps([changes.appended(), [[*json.loads(line), ""][:3] for line in open("job/doctor/changed-0")]]))
"""


def found_in(program: str, directory: Path) -> tuple[list[dict[str, Any]], set[str]]:
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", program, directory], cwd=root, capture_output=True, text=True, check=True
    )
    appended, changed = json.loads(done.stdout)
    return appended, {str(Path(path).relative_to(directory)) for path, _, function in changed if not function}


def test_what_is_changed_and_what_is_appended_to_again_and_again(tmp_path: Path) -> None:
    """With a job "job" the program's files in "job-data" were taken for the job's, and not compared."""
    appended, changed = found_in(PROGRAM, tmp_path.resolve())
    found = {Path(row["path"]).name: row for row in appended}
    assert set(found) == {"a", "b"}  # "written" has another name now
    assert [found[name]["times"] for name in ("a", "b")] == [3, 3]
    assert found["a"]["where"].endswith(" by_open") and found["b"]["where"].endswith(" by_path")
    assert changed == {"a", "b", "c", "written", "renamed", "once", "job-data/log", "link"}


UNSEEN = """
import ctypes, json, os, sys, tempfile
from ckpt.doctor.changes import Changes

os.chdir(sys.argv[1])
os.makedirs("job/doctor")
changes = Changes(os.path.abspath("job/doctor"), 0)
changes.watch()
library = ctypes.CDLL(None)

def unseen():
    library.fopen, library["rename"], library.getpid

def in_memory():
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm"):
        pass

def of_ckpt():
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm", prefix="ours-"):
        pass

of_ckpt = type(of_ckpt)(of_ckpt.__code__, {**globals(), "__name__": "ckpt.reduction.memory"})
unseen(), unseen(), in_memory(), of_ckpt()
print(json.dumps([[], [[*json.loads(line), ""][:3] for line in open("job/doctor/changed-0")]]))
"""


def test_what_is_looked_up_to_change_files_unseen(tmp_path: Path) -> None:
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", UNSEEN, tmp_path], cwd=root, capture_output=True, text=True, check=True
    )
    rows = json.loads(done.stdout)[1]
    assert [(where.split()[-1], name) for _, where, name in rows if name] == [
        ("unseen", "fopen"),
        ("unseen", "rename"),
    ]
    assert [where.split()[-1] for path, where, _ in rows if path.startswith("/dev/shm/")] == ["in_memory"]
