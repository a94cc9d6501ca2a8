"""Writing, writing again and reading back one large image, beside what the machine can do; and committing a
small one.

    python benchmarks/store_image.py [--megabytes 1024] [--rounds 5] [--dir DIR] [--threads N]

All figures of a round are taken in turn in the same run; the ratios are medians over the rounds. Peers:

- zstd level 1 over 4 MiB chunks with as many threads, nothing written;
- raw write of the same bytes with O_DIRECT and fsync, and raw read of them (caches dropped; the faster of
  with and without O_DIRECT), to and from the same disk.

Goals: write at least 0.8 of the slower of the two; unchanged again at least 5 times faster and under 1 % of
the bytes; restore at least 0.8 of the raw read.
"""

from __future__ import annotations

import argparse
import mmap
import os
import pickle
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import zstandard

from ckpt.store import (
    ControlFile,
    ImageReader,
    ImageReceipt,
    ImageWriter,
    JobDirectory,
    RankEntry,
    write_control,
)
from ckpt.store.pool import default_threads

CHUNK = 4 << 20


def half_compressible(megabytes: int) -> list[np.ndarray]:
    """Half random doubles, half a smooth field and zeros, in arrays of 64 MiB."""
    random = np.random.default_rng(1)
    count = (64 << 20) // 8
    arrays = []
    for number in range(megabytes // 64):
        if number % 2:
            arrays.append(random.random(count))
        elif number % 4:
            arrays.append(np.sin(np.arange(count) * 1e-4 + number))
        else:
            text = np.frombuffer(b"step 00012 residual 1.234e-05 energy -76.026765\n", np.uint8)
            noise = random.integers(48, 58, (64 << 20) // 48 * 4, dtype=np.uint8)
            array = np.resize(text, 64 << 20)
            array[: len(noise) * 12 : 12] = noise
            arrays.append(array.view(np.float64))
    return arrays


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compress_all(arrays: list[np.ndarray], threads: int) -> None:
    views = [memoryview(array).cast("B") for array in arrays]
    chunks = [view[start : start + CHUNK] for view in views for start in range(0, len(view), CHUNK)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda chunk: len(zstandard.ZstdCompressor(level=1).compress(chunk)), chunks))


def raw_write(arrays: list[np.ndarray], path: str) -> None:
    memory = mmap.mmap(-1, CHUNK)
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | getattr(os, "O_DIRECT", 0), 0o600)
    for array in arrays:
        view = memoryview(array).cast("B")
        for start in range(0, len(view), CHUNK):
            memory[:] = view[start : start + CHUNK]
            os.write(fd, memory)
    os.fsync(fd)
    os.close(fd)


def drop_cache(folder: str) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            fd = os.open(os.path.join(parent, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def raw_read(path: str, *, direct: bool) -> None:
    """The whole file, piece by piece into the same memory."""
    memory = mmap.mmap(-1, 2 * CHUNK)
    fd = os.open(path, os.O_RDONLY | (getattr(os, "O_DIRECT", 0) if direct else 0))
    done = 0
    while got := os.preadv(fd, [memory], done):
        done += got
    os.close(fd)


def write_image(job: JobDirectory, epoch: int, data: object, threads: int | None) -> ImageReceipt:
    writer = ImageWriter(job, rank=0, incarnation=0, label=(epoch - 1, epoch), threads=threads)
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


def restore(job: JobDirectory, epoch: int, threads: int | None) -> None:
    reader = ImageReader(job, epoch=epoch, rank=0, threads=threads)
    pickle.load(reader.stream(), buffers=reader.buffers())


def large(folder: str, megabytes: int, threads: int | None) -> dict[str, float]:
    """One round; GB/s and ratios."""
    arrays = half_compressible(megabytes)
    gigabytes = sum(array.nbytes for array in arrays) / 1e9
    used = default_threads() if threads is None else threads
    job = JobDirectory.create(os.path.join(folder, "job"), command=[], size=1)
    receipts: list[ImageReceipt] = []
    zstd_s = seconds(lambda: compress_all(arrays, used))
    write_s = seconds(lambda: receipts.append(write_image(job, 1, arrays, threads)))
    raw_s = seconds(lambda: raw_write(arrays, os.path.join(folder, "raw")))
    commit(job, 1, receipts[0])
    again_s = seconds(lambda: receipts.append(write_image(job, 2, arrays, threads)))
    commit(job, 2, receipts[1])
    drop_cache(folder)
    read_s = seconds(lambda: raw_read(os.path.join(folder, "raw"), direct=False))
    drop_cache(folder)
    read_s = min(read_s, seconds(lambda: raw_read(os.path.join(folder, "raw"), direct=True)))
    restore_s = seconds(lambda: restore(job, 2, threads))
    times = receipts[0].timings_ns
    return {
        "zstd-1 GB/s": gigabytes / zstd_s,
        "raw write GB/s": gigabytes / raw_s,
        "image write GB/s": gigabytes / write_s,
        "image bytes / raw bytes": receipts[0].bytes_written / receipts[0].bytes_raw,
        "write / slower peer (goal 0.8)": max(zstd_s, raw_s) / write_s,
        "unchanged again GB/s": gigabytes / again_s,
        "unchanged: times faster (goal 5)": write_s / again_s,
        "unchanged: % of bytes (goal < 1)": 100 * receipts[1].bytes_written / receipts[1].bytes_raw,
        "raw read GB/s": gigabytes / read_s,
        "restore GB/s": gigabytes / restore_s,
        "restore / raw read (goal 0.8)": read_s / restore_s,
        "of that write, thread seconds hashing": times["hash_ns"] / 1e9,
        "… compressing": times["compress_ns"] / 1e9,
        "… writing": times["write_ns"] / 1e9,
        "… at the last sync": times["sync_ns"] / 1e9,
    }


def small(folder: str, rounds: int) -> dict[str, float]:
    """Milliseconds for images of 20 kB."""
    job = JobDirectory.create(os.path.join(folder, "small"), command=[], size=1)
    data = {"state": list(range(5000)), "array": np.arange(500.0)}
    image_ms, commit_ms = [], []
    for epoch in range(1, rounds + 1):
        receipts: list[ImageReceipt] = []
        image_ms.append(1e3 * seconds(lambda: receipts.append(write_image(job, epoch, data, None))))  # noqa: B023
        commit_ms.append(1e3 * seconds(lambda: commit(job, epoch, receipts[0])))  # noqa: B023
    return {
        "small image ms": statistics.median(image_ms),
        "its control file ms": statistics.median(commit_ms),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dir", help="where to write (default: the current directory's .ckpt)")
    options = parser.parse_args()
    parent = options.dir or ".ckpt"
    os.makedirs(parent, exist_ok=True)
    rounds: list[dict[str, float]] = []
    for _ in range(options.rounds):
        folder = tempfile.mkdtemp(dir=parent)
        try:
            rounds.append({**large(folder, options.megabytes, options.threads), **small(folder, 50)})
        finally:
            shutil.rmtree(folder)
    print(
        f"{options.megabytes} MiB, median (least, most) of {options.rounds} rounds, {default_threads()} cores"
    )
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        print(f"{name:40s} {statistics.median(values):8.3f}  ({min(values):.3f}, {max(values):.3f})")


if __name__ == "__main__":
    main()
