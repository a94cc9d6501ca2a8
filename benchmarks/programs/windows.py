"""Rank 0 works on a window of rank 1, which does something else meanwhile: `windows.py OUT KIND BYTES REPEATS`.

OUT gets a JSON object: microseconds of a Get, of a Get by message and of a Put with its Flush, REPEATS of each.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from ckpt import MPI


def main(out: str, kind: str, nbytes: int, repeats: int) -> None:
    comm = MPI.COMM_WORLD
    win = MPI.Win.Allocate(nbytes + 1, 1, comm=comm)
    ended = np.frombuffer(win, "B")[nbytes:]
    matrix = np.ones((400, 400))
    if comm.rank == 1:
        while not ended[0]:
            if kind == "asleep":
                time.sleep(0.05)
            elif kind == "Python":
                sum(range(1000))
            else:
                matrix = matrix @ matrix * 1e-3
    else:
        data, one = np.zeros(nbytes, "B"), np.ones(1, "B")
        win.Lock_all()

        def get() -> None:
            win.Get(data, 1)
            win.Flush(1)

        def get_by_message() -> None:
            win.Get_accumulate(data[:0], data, 1, (0, nbytes, MPI.BYTE), MPI.NO_OP)
            win.Flush(1)

        def put() -> None:
            win.Put(data, 1)
            win.Flush(1)

        get()
        calls = {"Get": get, "Get by message": get_by_message, "Put and Flush": put}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(repeats):
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                times[name].append(1e6 * (time.perf_counter() - began))
        Path(out).write_text(json.dumps(times))
        win.Put(one, 1, nbytes)
        win.Unlock_all()
    win.Fence(MPI.MODE_NOSUCCEED)
    win.Free()


if __name__ == "__main__":
    arguments: Any = sys.argv
    main(arguments[1], arguments[2], int(arguments[3]), int(arguments[4]))
