"""Programs that hold handles of C are killed in the middle of their loops, twice, and print what they print undisturbed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(3)]

Start = Callable[..., Job]
KILLS = 2

FILES = """
    import ctypes, dbm.dumb, glob, os, shelve, sys, time
    for name in ("a/b", "a/c", "d"):
        os.makedirs("top/" + name, exist_ok=True)
        for number in range(40):
            open(f"top/{name}/{number}.txt", "w").close()

    class Node(ctypes.Structure):
        pass
    Node._fields_ = [("value", ctypes.c_long), ("next", ctypes.POINTER(Node))]
    nodes = (Node * 3)()
    for number in range(3):
        nodes[number].next = ctypes.pointer(nodes[(number + 1) % 3])
    absolute = ctypes.CDLL(None).labs
    absolute.restype = absolute.argtypes = None
    absolute.restype, absolute.argtypes = ctypes.c_long, [ctypes.c_long]
    shelf = shelve.Shelf(dbm.dumb.open("shelf", "n"), writeback=True)

    def work():
        node, seen = nodes[0], []
        for root, directories, files in os.walk("top"):
            for entry in os.scandir(root):
                seen.append(entry.path)
                node.value += absolute(-len(entry.name))
                node = node.next.contents
                shelf.setdefault(root, []).append(entry.name)
                time.sleep(0.01)
        for path in glob.iglob("top/**/*.txt", recursive=True):
            seen.append(path)
            time.sleep(0.005)
        return seen

    seen = work()
    shelf.close()
    with shelve.Shelf(dbm.dumb.open("shelf", "r")) as stored:
        print([(key, sorted(stored[key])) for key in sorted(stored)])
    print(len(seen), sorted(seen), sum(node.value for node in nodes))
"""

FACTORS = """
    import time
    import numpy as np, scipy.sparse as sp, scipy.sparse.linalg as sl

    size = 400
    laplacian = sp.diags([np.ones(size - 1), -2 * np.ones(size), np.ones(size - 1)], [-1, 0, 1], format="csc")
    factors = sl.splu(sp.eye(size, format="csc") - 0.1 * laplacian)
    solve = sl.factorized(sp.eye(size, format="csc") * 1.25)
    field = np.sin(np.arange(size) / 9.0)
    for step in range(300):
        field = solve(factors.solve(field)) + 0.01
        time.sleep(0.005)
    print(field.tobytes().hex())
"""

SHARED = """
    import time
    from multiprocessing import shared_memory
    import numpy as np

    block = shared_memory.SharedMemory(create=True, size=80_000)
    field = np.ndarray((10_000,), buffer=block.buf)
    field[:] = np.arange(10_000)
    for step in range(200):
        field *= 1.001
        time.sleep(0.01)
    print(block.size, field.tobytes().hex()[:200])
    del field
    block.close()
    block.unlink()
"""


@pytest.mark.parametrize(
    ("program", "needs"),
    [(FILES, ""), (FACTORS, "scipy"), (SHARED, "numpy")],
    ids=["files", "factors", "shared"],
)
def test_a_program_with_handles_survives_kills(
    program: str, needs: str, start: Start, tmp_path: Path
) -> None:
    if needs:
        pytest.importorskip(needs)
    plain = tmp_path / "plain"
    plain.mkdir()
    alone = subprocess.run(
        [sys.executable, write_app(plain, program)], cwd=plain, capture_output=True, text=True, check=True
    )
    job = start(write_app(tmp_path, program), ranks=1, every=0.1)
    for kill in range(1, KILLS + 1):
        before = len(job.events("committed"))
        job.wait_for(
            lambda before=before: len(job.events("committed")) > before + 1, "images of the program at work"
        )
        job.kill_rank(0)
        job.wait_event("restarted", kill)
    assert job.finish() == 0, job.report()
    assert job.stdout == alone.stdout, job.report()
