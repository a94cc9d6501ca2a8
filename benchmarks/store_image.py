"""Writing, writing again and reading back one large image, beside what the machine can do; and committing a
small one.

    python -m benchmarks.store_image [--rounds 5] [--quick]

1 GiB of arrays, half random doubles, half a smooth field and text. Everything in a round is taken in turn; ratios
are taken within a round, and their medians count. Peers, each at its best:

- zstd level 1 over 4 MiB chunks on all cores, nothing written;
- raw write of the same bytes: O_DIRECT from huge pages, fsync;
- raw read of the same bytes, not in the page cache: the faster of O_DIRECT into huge pages and the plain way; once
  into the same few megabytes again and again, and once into new memory, as everything that means to *use* the
  gigabyte afterwards has to. The second is the fair peer of a restart and has the goal; the first is printed beside it.

Goals: write at least 0.8 of the slower of the two; unchanged again at least 5 times faster and under 1 % of
the bytes; restore at least 0.8 of the raw read.
"""

from __future__ import annotations

import os
import pickle
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import zstandard

from benchmarks.spine_jobs import Figure, Row, run_suite, scratch
from ckpt.store import (
    ControlFile,
    ImageReader,
    ImageReceipt,
    ImageWriter,
    JobDirectory,
    RankEntry,
    write_control,
)
from ckpt.store.disk.memory import map_pages

CHUNK = 4 << 20
READ_CHUNK = 32 << 20
_DIRECT = getattr(os, "O_DIRECT", 0)


def half_compressible(megabytes: int) -> list[np.ndarray]:
    """Half random doubles, half a smooth field and text, in arrays of 64 MiB at most."""
    random = np.random.default_rng(1)
    size = min(64, megabytes // 2) << 20
    arrays = []
    for number in range((megabytes << 20) // size):
        if number % 2:
            arrays.append(random.random(size // 8))
        elif number % 4:
            arrays.append(np.sin(np.arange(size // 8) * 1e-4 + number))
        else:
            text = np.frombuffer(b"step 00012 residual 1.234e-05 energy -76.026765\n", np.uint8)
            noise = random.integers(48, 58, size // 12, dtype=np.uint8)
            array = np.resize(text, size)
            array[: len(noise) * 12 : 12] = noise
            arrays.append(array.view(np.float64))
    return arrays


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compress_all(arrays: list[np.ndarray]) -> None:
    views = [memoryview(array).cast("B") for array in arrays]
    chunks = [view[start : start + CHUNK] for view in views for start in range(0, len(view), CHUNK)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda chunk: len(zstandard.ZstdCompressor(level=1).compress(chunk)), chunks))


def raw_write(arrays: list[np.ndarray], path: Path) -> None:
    memory = map_pages(CHUNK)
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | _DIRECT, 0o600)
    for array in arrays:
        view = memoryview(array).cast("B")
        for start in range(0, len(view), CHUNK):
            memory[:] = view[start : start + CHUNK]
            os.write(fd, memory)
    os.fsync(fd)
    os.close(fd)


def drop_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def raw_read(path: Path, *, direct: bool, new: bool) -> None:
    """The whole file, piece by piece, into the same memory or into memory for all of it."""
    length = path.stat().st_size
    memory = map_pages(length if new else READ_CHUNK)
    fd = os.open(path, os.O_RDONLY | (_DIRECT if direct else 0))
    done = 0
    while got := os.preadv(fd, [memory[done : done + READ_CHUNK] if new else memory], done):
        done += got
    os.close(fd)


def write_image(job: JobDirectory, epoch: int, data: object, incremental: bool = True) -> ImageReceipt:
    writer = ImageWriter(job, rank=0, incarnation=0, label=(epoch - 1, epoch), incremental=incremental)
    pickle.Pickler(writer, protocol=5, buffer_callback=writer.buffer).dump(data)
    return writer.finish({})


def commit(job: JobDirectory, epoch: int, receipt: ImageReceipt) -> None:
    entry = RankEntry(
        0,
        0,
        (epoch - 1, epoch),
        receipt.manifest_path,
        receipt.digest,
        receipt.bytes_raw,
        receipt.bytes_written,
    )
    write_control(job, ControlFile(epoch, epoch - 1, 0, 1, [entry]))


def restore(job: JobDirectory, epoch: int) -> None:
    reader = ImageReader(job, epoch=epoch, rank=0)
    pickle.load(reader.stream(), buffers=reader.buffers())


class Columns(dict[str, list[float]]):
    """{name: one value a round}."""

    def add(self, name: str, value: float) -> None:
        self.setdefault(name, []).append(value)


def large(folder: Path, arrays: list[np.ndarray], columns: Columns) -> None:
    """One round."""
    gigabytes = sum(array.nbytes for array in arrays) / 1e9
    raw = folder / "raw"
    job = JobDirectory.create(folder / "job", command=[], size=1)
    receipts: list[ImageReceipt] = []

    def read_s(new: bool) -> float:
        times = []
        for direct in (True, False):
            drop_cache(folder)
            times.append(seconds(lambda: raw_read(raw, direct=direct, new=new)))  # noqa: B023
        return min(times)

    zstd_s = seconds(lambda: compress_all(arrays))
    write_s = seconds(lambda: receipts.append(write_image(job, 1, arrays)))
    raw_s = seconds(lambda: raw_write(arrays, raw))
    commit(job, 1, receipts[0])
    again_s = seconds(lambda: receipts.append(write_image(job, 2, arrays)))
    commit(job, 2, receipts[1])
    reused_s = read_s(new=False)
    drop_cache(folder)
    restore_s = seconds(lambda: restore(job, 2))
    new_s = read_s(new=True)
    columns.add("zstd", gigabytes / zstd_s)
    columns.add("raw write", gigabytes / raw_s)
    columns.add("write", gigabytes / write_s)
    columns.add("write ratio", max(zstd_s, raw_s) / write_s)
    columns.add("stored", receipts[0].bytes_written / receipts[0].bytes_raw)
    columns.add("again", write_s / again_s)
    columns.add("again %", 100 * receipts[1].bytes_written / receipts[1].bytes_raw)
    columns.add("read reused", gigabytes / reused_s)
    columns.add("read new", gigabytes / new_s)
    columns.add("restore", gigabytes / restore_s)
    columns.add("restore ratio", new_s / restore_s)
    columns.add("restore ratio reused", reused_s / restore_s)
    for name in ("hash_ns", "compress_ns", "write_ns", "sync_ns"):
        columns.add(name, receipts[0].timings_ns[name] / 1e9)


def small(folder: Path, count: int, columns: Columns) -> None:
    """Milliseconds for images of 20 kB."""
    job = JobDirectory.create(folder / "small", command=[], size=1)
    data = {"state": list(range(5000)), "array": np.arange(500.0)}
    image_ms, commit_ms = [], []
    for epoch in range(1, count + 1):
        receipts: list[ImageReceipt] = []
        image_ms.append(1e3 * seconds(lambda: receipts.append(write_image(job, epoch, data))))  # noqa: B023
        commit_ms.append(1e3 * seconds(lambda: commit(job, epoch, receipts[0])))  # noqa: B023
    columns.add("small image", statistics.median(image_ms))
    columns.add("small commit", statistics.median(commit_ms))


def measure(rounds: int, quick: bool) -> list[Row]:
    """All rows."""
    arrays = half_compressible(128 if quick else 1024)
    columns = Columns()
    for _ in range(rounds):
        with scratch() as folder:
            large(folder, arrays, columns)
            small(folder, 50, columns)

    def figure(name: str, unit: str, key: str, goal: float | None = None, at_least: bool = True) -> Figure:
        return Figure(name, unit, tuple(columns[key]), goal, at_least)

    return [
        figure("write / slower of zstd -1 and raw write", "x", "write ratio", 0.8),
        figure("zstd level 1, nothing written", "GB/s", "zstd"),
        figure("raw write, O_DIRECT and fsync", "GB/s", "raw write"),
        figure("image write", "GB/s", "write"),
        figure("stored bytes / raw bytes", "x", "stored"),
        figure("unchanged again: times faster", "x", "again", 5),
        figure("unchanged again: share of the bytes", "%", "again %", 1, at_least=False),
        figure("restore / raw read into new memory", "x", "restore ratio", 0.8),
        figure("restore / raw read into the same memory again", "x", "restore ratio reused"),
        figure("raw read into new memory", "GB/s", "read new"),
        figure("raw read into the same memory again", "GB/s", "read reused"),
        figure("restore", "GB/s", "restore"),
        figure("of the write, thread seconds hashing", "s", "hash_ns"),
        figure("  compressing", "s", "compress_ns"),
        figure("  writing", "s", "write_ns"),
        figure("  at the last sync", "s", "sync_ns"),
        figure("small image", "ms", "small image"),
        figure("its control file", "ms", "small commit"),
    ]


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__))
