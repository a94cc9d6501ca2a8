"""Writes one rank's image of one epoch: in the forked image child, or in the rank itself.

    write(bytes) … buffer(PickleBuffer) …  →  blocks  →  pack + manifest  →  durable  →  receipt

The pickle stream, the small buffers (one after the other) and each large buffer are cut into blocks of `BLOCK` bytes. A
block with the likeness of a block of the base line (`likeness.py`) is taken to be that block; the digest of the others is
computed. If the base line (`base.py`) has the block, or this image has stored it, the manifest only refers to it. Otherwise
it is packed (`codec.py`) and stored (`packs.py`). Up to `PARALLEL_FROM` bytes all this happens in the calling thread;
beyond, a few threads do it, with at most two blocks each under way: large buffers are never copied as a whole.

`finish` is the commit sequence of an image: sync pack and manifest, both at once, rename them, sync their directory. The
receipt exists only after that. A failure of the system raises `StorageFailed`. After any failure the files are removed as
far as possible, and the writer cannot be used again: no second try on the same files.

States: open → finished, or open → failed. The threads read the blocks of buffers while the writer runs: the content of
buffers must not change before `finish` returns (in a forked child it cannot).
"""

from __future__ import annotations

import _thread
import os
import pickle
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

from ckpt.store.disk.fsio import Buffer, FileSystem, PendingFile, sync_directory
from ckpt.store.disk.memory import Staging
from ckpt.store.disk.pool import Pool, default_threads
from ckpt.store.images.base import NO_KNOWN_BLOCKS, KnownBlocks, find_base, known_blocks
from ckpt.store.images.codec import RAW, Codec
from ckpt.store.images.likeness import Likeness
from ckpt.store.images.packs import STREAM_FROM, PackWriter
from ckpt.store.job.directory import JobDirectory, image_directory, image_stem
from ckpt.store.records.authenticated import digest
from ckpt.store.records.manifest import SMALL_ALIGN, BlockRef, BufferRef, Manifest, PackRef
from ckpt.transport.records import NamedTuple, dataclass, field

__all__ = ["BLOCK", "ImageReceipt", "ImageWriter"]

BLOCK: Final = 4 << 20
"""Largest number of plain bytes in a block; a multiple of every array item size that is a power of two."""

SMALL: Final = 64 << 10
"""Buffers below this share blocks; blocks below this are not looked up in the base."""

PARALLEL_FROM: Final = STREAM_FROM


@dataclass(frozen=True)
class ImageReceipt:
    """The result of `finish`: the image is durable. A rank's vote for its round carries it.

    Attributes:
        manifest_path: relative to the job directory.
        digest: of the manifest file, for the control file.
        bytes_raw: plain size of the image.
        bytes_written: bytes that the image added to the disk, manifest included.
        timings_ns: hash_ns (likenesses too), compress_ns, write_ns (sums over the threads), sync_ns, total_ns
            (from the writer's creation on).
    """

    manifest_path: str
    digest: str
    bytes_raw: int
    bytes_written: int
    timings_ns: dict[str, int]


class _Task(NamedTuple):
    """A block to process: its plain bytes and array item size. `slot`: its number in the order of submission."""

    slot: int
    data: memoryview
    item: int


@dataclass
class Run:
    """Bytes that are being collected into a block, and the slots of the blocks already submitted."""

    data: bytearray = field(default_factory=bytearray)
    slots: list[int] = field(default_factory=list)


@dataclass
class Table:
    """The blocks of the image found so far, and for each slot the index of its block; threads share it under `lock`."""

    lock: _thread.LockType = field(default_factory=_thread.allocate_lock)
    blocks: list[BlockRef | None] = field(default_factory=list)
    by_digest: dict[str, int] = field(default_factory=dict)
    slots: list[int] = field(default_factory=list)
    packs: dict[PackRef, int] = field(default_factory=dict)
    hash_ns: int = 0
    compress_ns: int = 0
    write_ns: int = 0

    def claim(self, name: str, slot: int) -> int | None:
        """Assign the block with the digest `name` to `slot`. Returns the block's new index if the caller has to provide its
        entry in `blocks`, None if the table has the block already."""
        with self.lock:
            if (index := self.by_digest.get(name)) is not None:
                self.slots[slot] = index
                return None
            index = len(self.blocks)
            self.by_digest[name] = index
            self.blocks.append(None)
            self.slots[slot] = index
            return index

    def move(self, moved: Mapping[int, int]) -> None:
        """Change the offsets of blocks in this image's own pack: {old: new}. Called before any thread is started."""
        for index, block in enumerate(self.blocks):
            if block is not None and block.pack == 0:
                self.blocks[index] = block._replace(offset=moved[block.offset])

    def borrow(self, pack: PackRef) -> int:
        """Return the index of another image's pack, added if it is new; index 0 is this image's own pack."""
        with self.lock:
            return self.packs.setdefault(pack, len(self.packs) + 1)

    def add_times(self, hash_ns: int, compress_ns: int, write_ns: int) -> None:
        with self.lock:
            self.hash_ns += hash_ns
            self.compress_ns += compress_ns
            self.write_ns += write_ns


class ImageWriter:
    """The writer of one image. Call `write` and `buffer` in the order of the pickler, then `finish` or `abort`.

    As a context manager it aborts an image that is not finished: it frees files, threads and memory.

    Args:
        label: (previous epoch, epoch]: the epochs for which the image is valid.
        threads: for large images; None: two per available core, at most 8; 0: only the caller's thread.
        incremental: refer to unchanged blocks of the base line instead of writing them again.
        resumed_from: the epoch this incarnation was restored from, if any: its blocks were verified then.
        fs: the system calls; the job's own by default.

    Raises:
        ValueError: `label` is out of order, or the job has no such rank.
        NotPrivate: another user may write to the directory of the rank's images.
    """

    def __init__(
        self,
        job: JobDirectory,
        *,
        rank: int,
        incarnation: int,
        label: tuple[int, int],
        threads: int | None = None,
        incremental: bool = True,
        resumed_from: int | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        if not 0 <= label[0] < label[1]:
            raise ValueError(f"label {label} is not (previous, epoch] with 0 <= previous < epoch")
        self._job = job
        self._fs = job.fs if fs is None else fs
        self._rank = rank
        self._incarnation = incarnation
        self._label = label
        self._threads = threads
        self._incremental = incremental
        self._resumed_from = resumed_from
        self._started_ns = time.perf_counter_ns()
        self._directory = job.rank_directory(rank)
        self._fs.check_private(self._directory)
        self._stem = f"{image_stem(label[1], incarnation)}.{os.urandom(4).hex()}"
        self._pack = PackWriter(self._fs, self._directory, self._stem + ".pack")
        self._table = Table()
        self._known: KnownBlocks | None = None
        self._likeness = Likeness(job.key)
        self._pool: Pool[_Task] | None = None
        self._own_codec = Codec()
        self._stream = Run()
        self._small = Run()
        self._buffers: list[tuple[int, list[int] | None]] = []
        self._bytes_raw = 0
        self._open = True

    def __enter__(self) -> ImageWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def write(self, data: Buffer) -> None:
        """Add the next bytes of the pickle stream.

        Raises:
            StorageFailed: the system refused; the image is aborted.
            ValueError: the writer is finished or aborted.
        """
        self._check_open()
        self._append(self._stream, data)

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        """Add the next out-of-band buffer. Raises BufferError if it is not contiguous, else as `write`."""
        self._check_open()
        with memoryview(buffer) as shape:
            item = shape.itemsize
        data = buffer.raw()
        length = len(data)
        if length < SMALL:
            self._buffers.append((length, None))
            self._append(self._small, data)
            self._append(self._small, bytes(-length % SMALL_ALIGN))
            return
        self._bytes_raw += length
        slots: list[int] = []
        step = BLOCK - BLOCK % item if 1 < item <= SMALL else BLOCK
        for start in range(0, length, step):
            self._submit(data[start : start + step], item, slots)
        self._buffers.append((length, slots))

    def _append(self, run: Run, data: Buffer) -> None:
        """Add `data` to a run, and submit each full block: a run never holds more than one block."""
        self._bytes_raw += len(data)
        rest = memoryview(data)
        while len(run.data) + len(rest) >= BLOCK:
            room = BLOCK - len(run.data)
            run.data += rest[:room]
            rest = rest[room:]
            self._flush(run)
        run.data += rest

    def _flush(self, run: Run) -> None:
        if run.data:
            block, run.data = run.data, bytearray()
            self._submit(memoryview(block), 1, run.slots)

    def _submit(self, data: memoryview, item: int, slots: list[int]) -> None:
        slot = len(self._table.slots)
        self._table.slots.append(-1)
        slots.append(slot)
        try:
            if self._known is None and len(data) >= SMALL:
                self._known = self._load_base()
            if self._pool is None and (len(data) >= BLOCK or self._pack.length + len(data) > PARALLEL_FROM):
                self._table.move(self._pack.stream())
                self._pool = Pool(
                    self._make_worker, default_threads() if self._threads is None else self._threads
                )
            task = _Task(slot, data, item)
            if self._pool is None:
                self._process(task, self._own_codec, None)
            else:
                self._pool.submit(task)
        except BaseException:
            self.abort()
            raise

    def _load_base(self) -> KnownBlocks:
        if not self._incremental:
            return NO_KNOWN_BLOCKS
        base = find_base(
            self._job, rank=self._rank, incarnation=self._incarnation, resumed_from=self._resumed_from
        )
        return NO_KNOWN_BLOCKS if base is None else known_blocks(base)

    def _make_worker(self) -> Callable[[_Task], None]:
        codec = Codec()
        staging = Staging(BLOCK)
        return lambda task: self._process(task, codec, staging)

    def _process(self, task: _Task, codec: Codec, staging: Staging | None) -> None:
        """Recognise one block by its likeness or digest, or pack and store it. Several threads run this at a time."""
        table = self._table
        begun_ns = time.perf_counter_ns()
        likeness = self._likeness.of(task.data)
        base = self._known or NO_KNOWN_BLOCKS
        known = base.by_likeness.get(likeness)
        name = digest(task.data) if known is None else known.block.digest
        hashed_ns = time.perf_counter_ns()
        index = table.claim(name, task.slot)
        if index is None:
            table.add_times(hashed_ns - begun_ns, 0, 0)
            return
        known = known or base.by_digest.get(name)
        if known is not None:
            pack, there = known
            table.blocks[index] = there._replace(pack=table.borrow(pack), likeness=likeness)
            table.add_times(hashed_ns - begun_ns, 0, 0)
            return
        packed = codec.pack(task.data, task.item)
        check = "" if packed.codec == RAW else digest(packed.data)
        packed_ns = time.perf_counter_ns()
        offset = self._pack.add(packed.data, staging)
        table.blocks[index] = BlockRef(
            name, 0, offset, len(packed.data), len(task.data), packed.codec, packed.item, check, likeness
        )
        table.add_times(hashed_ns - begun_ns, packed_ns - hashed_ns, time.perf_counter_ns() - packed_ns)

    def finish(self, meta: Mapping[str, Any], files: Mapping[str, Any] | None = None) -> ImageReceipt:
        """Make the image durable and return the receipt. `meta` is JSON, which the manifest keeps; `files`: see `Manifest`.
        Raises:
            StorageFailed: the system refused; the image is aborted.
            ValueError: the writer is finished or aborted.
        """
        self._check_open()
        try:
            self._flush(self._stream)
            self._flush(self._small)
            if self._pool is not None:
                self._pool.join()
            receipt = self._commit(meta, files)
        except BaseException:
            self.abort()
            raise
        self._close()
        return receipt

    def _commit(self, meta: Mapping[str, Any], files: Mapping[str, Any] | None) -> ImageReceipt:
        begun_ns = time.perf_counter_ns()
        stored = self._pack.complete()
        manifest = self._manifest(meta, files, stored)
        data = manifest.encode(self._job.key)
        file = PendingFile(self._fs, self._directory, self._stem + ".json")
        try:
            file.write(data, 0)
            if self._pack.file is None:
                file.seal()
            else:
                self._fs.at_once((self._pack.file.seal, file.seal))
                self._pack.file.publish()
            file.publish()
            sync_directory(self._fs, self._directory)
        except BaseException:
            file.drop()
            raise
        ended_ns = time.perf_counter_ns()
        return ImageReceipt(
            manifest_path=f"{image_directory(self._rank)}/{self._stem}.json",
            digest=digest(data),
            bytes_raw=manifest.bytes_raw,
            bytes_written=manifest.bytes_written + len(data),
            timings_ns={
                "hash_ns": self._table.hash_ns,
                "compress_ns": self._table.compress_ns,
                "write_ns": self._table.write_ns,
                "sync_ns": ended_ns - begun_ns,
                "total_ns": ended_ns - self._started_ns,
            },
        )

    def _manifest(self, meta: Mapping[str, Any], files: Mapping[str, Any] | None, stored: bool) -> Manifest:
        table = self._table
        own = PackRef(f"{image_directory(self._rank)}/{self._stem}.pack", self._pack.length, self._pack.align)
        packs = ([own] if stored else []) + list(table.packs)
        shift = 0 if stored else 1
        blocks: list[BlockRef] = []
        for block in table.blocks:
            assert block is not None, "a block was claimed and never stored"
            blocks.append(block._replace(pack=block.pack - shift) if shift else block)
        return Manifest(
            job=self._job.job_id,
            rank=self._rank,
            incarnation=self._incarnation,
            label=self._label,
            packs=tuple(packs),
            blocks=tuple(blocks),
            stream=self._resolve(self._stream.slots),
            small=self._resolve(self._small.slots),
            buffers=tuple(
                BufferRef(length, None if slots is None else self._resolve(slots))
                for length, slots in self._buffers
            ),
            meta=meta,
            bytes_raw=self._bytes_raw,
            bytes_written=self._pack.length if stored else 0,
            files=files,
        )

    def _resolve(self, slots: list[int]) -> tuple[int, ...]:
        return tuple(self._table.slots[slot] for slot in slots)

    def abort(self) -> None:
        """Give the image up and remove its files as far as the system permits. Does nothing after `finish` or `abort`."""
        if self._open:
            self._close()
            self._pack.drop()

    def _close(self) -> None:
        self._open = False
        if self._pool is not None:
            self._pool.close()
        self._stream = Run()
        self._small = Run()

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("this image is finished, or was given up")
