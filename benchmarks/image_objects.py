"""Images of many small objects beside plain pickle of the same, and how long a stack takes to record.

    python -m benchmarks.image_objects [--rounds 5] [--quick]

100 000 instances of a class of the program, each with a string, a tuple, an integer and a reference. *Image* is the whole
program: modules, stack and objects, by `ckpt.image.dump` in a forked child, and by `ckpt.image.load` in a fresh process.
*Plain* is the C pickler on the list alone (protocol 5, classes by reference, collector off: the best it can do), without a
fork, whose page faults the image pays; and in a fresh process. Digests and compression are in neither:
`benchmarks.store_image` has those.

Goals: dump and load within 4 × of plain; recording a stack of 12 frames in less than 30 us.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import pickle
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.spine_jobs import PROGRAMS, ROOT, Figure, Row, environment, run_suite, scratch

FRAMES = 12
CAPTURES = 2000
GOAL_TIMES = 4.0
GOAL_US = 30.0


class FileSink:
    """Stream and buffers of an image in two files."""

    def __init__(self, path: Path) -> None:
        self._stream = open(path, "wb")  # noqa: SIM115 (closed below)
        self.buffers: list[bytes] = []

    def write(self, data: bytes) -> int:
        return self._stream.write(data)

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        self.buffers.append(bytes(buffer.raw()))

    def close(self) -> None:
        self._stream.close()


class FileSource:
    """The same, read back (objects only: there are no large buffers)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def stream(self) -> Any:
        return open(self._path, "rb")

    def buffers(self) -> list[Any]:
        return []


def in_child(work: Callable[[], float]) -> float:
    """What `work` returns, in a forked child, which is what a rank's image is written by."""
    come, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(tell, str(work()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(come) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return float(text)


def host(count: int, rounds: int, folder: Path) -> None:
    """Runs the program and measures when it says so; prints {name: values}."""
    from ckpt import image

    found: dict[str, list[float]] = {"capture us": [], "dump": [], "plain dump": [], "plain here": []}

    def measure(data: object, deep: Callable[[int, Callable[[], object]], object]) -> None:
        def capture() -> None:
            times = []
            for _ in range(CAPTURES):
                began = time.perf_counter_ns()
                stack = image.capture(at="call", skip=(capture.__code__, measure.__code__))
                times.append((time.perf_counter_ns() - began) / 1e3)
                del stack
            assert len(image.capture(at="call", skip=(capture.__code__,)).frames) >= FRAMES
            found["capture us"].append(statistics.median(times))

        def dump(prepared: image.Prepared) -> float:
            sink = FileSink(folder / "image")
            began = time.perf_counter()
            image.dump(prepared, live={"measure": measure}, sink=sink)
            took = time.perf_counter() - began
            sink.close()
            return took

        def plain() -> float:
            gc.disable()
            with open(folder / "plain", "wb") as out:
                began = time.perf_counter()
                pickle.dump(data, out, 5)
                return time.perf_counter() - began

        for _ in range(rounds):
            deep(FRAMES - 2, capture)  # and main and the module
            stack = image.capture(at="call", skip=(measure.__code__,))
            prepared = image.prepare(stack, {})
            found["dump"].append(in_child(partial(dump, prepared)))
            found["plain dump"].append(in_child(plain))
            found["plain here"].append(plain())
            gc.enable()
            del stack, prepared

    builtins.measure = measure  # type: ignore[attr-defined]
    image.preload()
    image.prepare_program([str(PROGRAMS / "objects.py"), str(count)])()
    print(json.dumps(found))


def load_image(folder: Path) -> None:
    """Seconds of loading the image, in this process, which is prepared as the agent prepares itself for all its ranks."""
    from ckpt import image

    image.preload()
    gc.freeze()
    began = time.perf_counter()
    loaded = image.load(FileSource(folder / "image"), live={"measure": print})
    took = time.perf_counter() - began
    assert loaded.stack is not None
    print(took, flush=True)
    os._exit(0)


def load_plain(folder: Path) -> None:
    """Seconds of plain loading, in this process."""
    import runpy

    program = runpy.run_path(str(PROGRAMS / "objects.py"), run_name="objects")
    sys.modules["__main__"].Particle = program["Particle"]  # type: ignore[attr-defined]
    gc.disable()
    with open(folder / "plain", "rb") as file:
        began = time.perf_counter()
        pickle.load(file)
        print(time.perf_counter() - began, flush=True)
    os._exit(0)


def run_self(*arguments: object) -> str:
    command = [sys.executable, "-m", "benchmarks.image_objects", "--part", *map(str, arguments)]
    env = {**environment(), "PYTHONHASHSEED": "1"}  # it is part of an image
    return subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def measure_all(rounds: int, quick: bool) -> list[Row]:
    """All rows."""
    count = 10_000 if quick else 100_000
    with scratch() as folder:
        found = json.loads(run_self("host", count, rounds, folder))
        loads: dict[str, list[float]] = {"image": [], "plain": []}
        for _ in range(rounds):
            for name, times in loads.items():
                times.append(float(run_self(name, folder)))
    dumps = tuple(a / b for a, b in zip(found["dump"], found["plain here"], strict=True))
    forked = tuple(a / b for a, b in zip(found["dump"], found["plain dump"], strict=True))
    loaded = tuple(a / b for a, b in zip(loads["image"], loads["plain"], strict=True))

    def ms(values: list[float]) -> tuple[float, ...]:
        return tuple(value * 1e3 for value in values)

    return [
        Figure(f"recording a stack of {FRAMES} frames", "us", tuple(found["capture us"]), GOAL_US),
        Figure(f"image of {count} objects / plain pickle: dump", "x", dumps, GOAL_TIMES),
        Figure(f"image of {count} objects / plain pickle: load", "x", loaded, GOAL_TIMES),
        Figure("  dump, plain pickle in a forked child too", "x", forked),
        Figure("image: dump", "ms", ms(found["dump"])),
        Figure("plain: dump", "ms", ms(found["plain here"])),
        Figure("plain: dump in a forked child", "ms", ms(found["plain dump"])),
        Figure("image: load", "ms", ms(loads["image"])),
        Figure("plain: load", "ms", ms(loads["plain"])),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        part, *rest = sys.argv[2:]
        if part == "host":
            host(int(rest[0]), int(rest[1]), Path(rest[2]))
        else:
            (load_image if part == "image" else load_plain)(Path(rest[0]))
    else:
        sys.exit(run_suite(measure_all, __doc__))
