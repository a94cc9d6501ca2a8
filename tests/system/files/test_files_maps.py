"""Memory maps of files: after kills the files are those of an undisturbed run (the rest: test_files_ways.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.files.test_files_ways import both

pytestmark = pytest.mark.system

WAYS = """
    import numpy
    results = []
    numpy.zeros((4, 4)).tofile("array")
    with open("mapped", "wb") as file:
        file.write(bytes(64))
    held = numpy.memmap("held", dtype="int64", mode="w+", shape=(8,))

    def array_of_a_step(n):
        array = numpy.memmap("array", dtype="float64", mode="r+", shape=(4, 4))
        results.append(float(array[0, 0]))
        del array
        yield
        array = numpy.memmap("array", dtype="float64", mode="r+", shape=(4, 4))
        array += n
        array.flush()

    def array_that_is_held(n):
        results.append(int(held[0]))
        held[n % 8] += 1
        yield
        held[0] += n

    def map_of_a_step(n):
        yield
        with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as map:
            results.append(map[0])
            map[0] += 1
            map[n] = n

    WAYS = [array_of_a_step, array_that_is_held, map_of_a_step]
"""


@pytest.mark.rotate(2)
def test_files_that_are_mapped_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    undisturbed, killed = both(tmp_path, WAYS)
    assert killed.files == undisturbed.files
    assert killed.printed == undisturbed.printed
