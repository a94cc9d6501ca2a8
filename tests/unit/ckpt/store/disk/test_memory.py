"""Memory: what an image child needs beside the program's own, and the pages that images are read into."""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_helpers import commit, read_image

from ckpt.store import ImageWriter, JobDirectory
from ckpt.store.disk.memory import ALIGN, HUGE_PAGE, Staging, map_pages, round_up

MIB = 1 << 20
THREADS = 4
BOUND = THREADS * 16 * MIB + 32 * MIB
"""A thread has the block's planes, what is compressed of them and its staging memory, at most 4 MiB each; all share the
stream's and the small buffers' current block and the interpreter's own."""


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


def growth_of_a_child(job: JobDirectory, data: Any) -> int:
    """Bytes by which the peak of a forked child's memory is above what it began with, writing an image of `data`.

    What the child shares with its parent counts on both sides, so the difference is what it needs for itself.
    """
    come, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            began = status("VmRSS")
            writer = ImageWriter(job, rank=0, incarnation=0, label=(0, 1), threads=THREADS)
            pickle.Pickler(writer, protocol=5, buffer_callback=writer.buffer).dump(data)
            writer.finish({})
            os.write(tell, str(status("VmHWM") - began).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(come, "rb") as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    assert text, "the child failed"
    return int(text)


def arrays(megabytes: int) -> list[np.ndarray]:
    """Half random, half smooth, every page touched: as much as it says, and one that is written with the stream."""
    random = np.random.default_rng(1)
    count = 16 * MIB // 8
    return [
        random.random(count) if number % 2 else np.sin(np.arange(count) * 1e-4 + number)
        for number in range(megabytes // 16)
    ]


def check_growth(job: JobDirectory, megabytes: int) -> None:
    grown = growth_of_a_child(
        job, [arrays(megabytes), os.urandom(20 * MIB), [float(n) for n in range(100_000)]]
    )
    print(
        f"an image of {megabytes} MiB: the child's memory grew by {grown / MIB:.0f} MiB, bound {BOUND / MIB:.0f}"
    )
    assert grown < BOUND


def test_the_memory_of_an_image_child_is_bounded(job: JobDirectory) -> None:
    """Larger than the bound, so that an image held as a whole would show."""
    assert 2 * BOUND < 256 * MIB
    check_growth(job, 256)


@pytest.mark.soak
def test_the_memory_of_the_child_of_a_gigabyte_is_bounded_by_the_same(job: JobDirectory) -> None:
    check_growth(job, 1024)


# ---------------------------------------------------------------------- huge pages


def mappings() -> Iterator[tuple[int, int, set[str]]]:
    """(start, end, flags) of every mapping of this process."""
    start = end = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head, _, rest = line.partition(" ")
        if "-" in head and not head.endswith(":"):
            start, end = (int(part, 16) for part in head.split("-"))
        elif head == "VmFlags:":
            yield start, end, set(rest.split())


def is_advised(array: np.ndarray) -> bool:
    """Whether huge pages were asked for where the middle of the array lies."""
    middle = array.ctypes.data + array.nbytes // 2
    return any(start <= middle < end and "hg" in flags for start, end, flags in mappings())


needs_huge_pages = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a kernel without transparent huge pages"
)


@needs_huge_pages
def test_large_arrays_have_huge_pages_before_and_after_a_restart(job: JobDirectory) -> None:
    """A fork copies the page tables of a gigabyte 512 times faster. numpy asks for them itself, from 4 MiB on;
    what is restored lies in our memory, and we ask."""
    before = np.ones(64 * MIB // 8)
    commit(job, 1, before)
    after = read_image(job, 0)[1]
    assert is_advised(before), "numpy was told not to (NUMPY_MADVISE_HUGEPAGE)?"
    assert is_advised(after) and np.array_equal(before, after)
    assert not is_advised(np.frombuffer(mmap.mmap(-1, 8 * MIB), np.uint8)), "the check can fail"


@needs_huge_pages
@pytest.mark.parametrize("length", [HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 1])
def test_only_whole_huge_pages_are_advised(length: int) -> None:
    """The last part of a mapping must not cost a whole huge page."""
    view = map_pages(length)
    whole = length // HUGE_PAGE * HUGE_PAGE
    start = np.frombuffer(view, np.uint8).ctypes.data
    advised = sum(
        max(0, min(end, start + round_up(length)) - max(begin, start))
        for begin, end, flags in mappings()
        if "hg" in flags
    )
    assert advised == whole


def test_without_huge_pages_it_is_only_slower(job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt.store.disk.memory.HUGE_ADVICE", -1)  # no kernel knows that one
    data = np.random.default_rng(1).random(MIB)
    commit(job, 1, data)
    assert np.array_equal(read_image(job, 0)[1], data)


@pytest.mark.parametrize("length", [0, 1, ALIGN, HUGE_PAGE, HUGE_PAGE + 1, 5 * HUGE_PAGE - 1])
def test_pages_are_zero_and_writable_and_aligned(length: int) -> None:
    view = map_pages(length)
    assert len(view) == length and bytes(view) == bytes(length)
    view[:] = b"x" * length
    if length:
        assert np.frombuffer(view, np.uint8).ctypes.data % ALIGN == 0


def test_staging_memory_grows_and_is_padded_with_zeros() -> None:
    staging = Staging()
    assert bytes(staging.fill(b"abc")) == b"abc" + bytes(ALIGN - 3)
    assert bytes(staging.fill(b"y" * 5000)) == b"y" * 5000 + bytes(2 * ALIGN - 5000)
    assert bytes(staging.fill(b"")) == b""
    assert bytes(staging.fill(b"z")) == b"z" + bytes(ALIGN - 1), (
        "what was there before does not shine through"
    )
    assert len(staging.take(3 * HUGE_PAGE)) == 3 * HUGE_PAGE
    assert [round_up(n) for n in (0, 1, ALIGN, ALIGN + 1)] == [0, ALIGN, ALIGN, 2 * ALIGN]
