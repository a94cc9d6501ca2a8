"""Reads one rank's image: all blocks are verified before the first byte is returned.

The manifest is verified against the job's key (MAC) and the control file (digest, rank, epoch, incarnation).
`stream` and `buffers` then read *all* blocks first: the digest of each block's stored bytes is verified, and only then is
the block decompressed, directly into the memory that the program will use. So damage in any block is found before the
unpickler has read a byte and could have executed anything.

Blocks are read in the order of their offsets in the packs, by a few threads. Large buffers
get memory mappings of their own (on huge pages where the system has them); small ones share one piece of memory.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from ckpt.store.disk.fsio import FileSystem
from ckpt.store.disk.memory import ALIGN, Staging, map_pages
from ckpt.store.disk.pool import Pool, default_threads
from ckpt.store.errors import Damaged, Incompatible, RecordDamaged
from ckpt.store.images.codec import Codec
from ckpt.store.images.source import BlockSource, Target
from ckpt.store.job.directory import JobDirectory
from ckpt.store.job.lines import entry_of, load_control, load_manifest, newest_good_epoch
from ckpt.store.records.control import RankEntry
from ckpt.store.records.manifest import SMALL_ALIGN

__all__ = ["ImageReader"]

_OWN_MAPPING_FROM: Final = 4 << 20
_PARALLEL_FROM: Final = 4 << 20
_STREAM_CHUNK: Final = 1 << 20


class ImageReader:
    """The reader of one rank's image.

    Args:
        entry: the rank's entry in a control file; or
        epoch, rank: look that entry up (epoch None: in the newest committed line).
        threads: for large images; None: two per available core, at most 8; 0: only the caller's thread.

    Raises:
        NotPrivate: another user may write to the directory of the rank's images.
        EpochMissing, Damaged, Incompatible, StorageFailed: as `load_control` and `load_manifest`. `fallback_epoch` of a
            `Damaged` names another epoch that can be used instead, if there is one.
        TypeError: neither `entry` nor `rank` was given.
    """

    def __init__(
        self,
        job: JobDirectory,
        entry: RankEntry | None = None,
        *,
        epoch: int | None = None,
        rank: int | None = None,
        threads: int | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        self._job = job
        self._fs = job.fs if fs is None else fs
        self._threads = threads
        if entry is None:
            entry = _find_entry(job, epoch, rank)
        self.entry = entry
        self._fs.check_private(job.rank_directory(entry.rank))
        try:
            self.manifest = load_manifest(job, entry, fs=self._fs)
        except Damaged as error:
            error.fallback_epoch = newest_good_epoch(job, without=entry.label[1])
            raise
        self._chunks: list[memoryview] = []
        self._buffers: list[memoryview] | None = None

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `meta` that `ImageWriter.finish` got: JSON."""
        return self.manifest.meta

    def stream(self) -> BinaryIO:
        """Return the pickle stream. Raises, before any byte is returned, BlockDamaged, RecordDamaged (lengths in the
        manifest do not agree) or StorageFailed."""
        self._load()
        return io.BufferedReader(_Chunks(self._chunks), _STREAM_CHUNK)

    def buffers(self) -> list[memoryview]:
        """Return the out-of-band buffers (pickle protocol 5), writable, in order. Raises as `stream`."""
        self._load()
        assert self._buffers is not None
        return list(self._buffers)

    def _load(self) -> None:
        if self._buffers is not None:
            return
        manifest = self.manifest
        targets: dict[int, list[Target]] = {}
        self._chunks = [self._place(index, targets) for index in manifest.stream]
        small = self._spread(_allocate(self._total(manifest.small)), manifest.small, targets)
        buffers: list[memoryview] = []
        taken = 0
        for buffer in manifest.buffers:
            if buffer.blocks is None:
                buffers.append(small[taken : taken + buffer.length])
                taken += buffer.length + -buffer.length % SMALL_ALIGN
            else:
                buffers.append(self._spread(_allocate(buffer.length), buffer.blocks, targets))
        if taken != len(small):
            raise RecordDamaged("the small buffers do not add up", path=self.entry.manifest)
        try:
            self._read_all(targets)
        except Damaged as error:
            error.fallback_epoch = newest_good_epoch(self._job, without=self.entry.label[1])
            raise
        self._buffers = buffers

    def _total(self, blocks: tuple[int, ...]) -> int:
        return sum(self.manifest.blocks[index].length for index in blocks)

    def _place(self, index: int, targets: dict[int, list[Target]]) -> memoryview:
        return self._spread(_allocate(self.manifest.blocks[index].length), (index,), targets)

    def _spread(
        self, memory: Target, blocks: tuple[int, ...], targets: dict[int, list[Target]]
    ) -> memoryview:
        """Note in `targets` the part of `memory` that each block fills; return the memory. Raises RecordDamaged."""
        start = 0
        for index in blocks:
            length = self.manifest.blocks[index].length
            aligned = memory.aligned and start % ALIGN == 0
            targets.setdefault(index, []).append(Target(memory.view[start : start + length], aligned))
            start += length
        if start != len(memory.view):
            raise RecordDamaged("the blocks of a buffer do not add up", path=self.entry.manifest)
        return memory.view

    def _read_all(self, targets: dict[int, list[Target]]) -> None:
        blocks = self.manifest.blocks
        order = sorted(targets, key=lambda index: (blocks[index].pack, blocks[index].offset))
        source = BlockSource(self._job, self.manifest, self._fs)
        threads = default_threads() if self._threads is None else self._threads
        if sum(block.length for block in blocks) < _PARALLEL_FROM:
            threads = 0

        def make_worker() -> Callable[[int], None]:
            codec, staging = Codec(), Staging()

            def work(index: int) -> None:
                first, *others = targets[index]
                source.read(blocks[index], first, codec, staging)
                for other in others:
                    other.view[:] = first.view

            return work

        pool: Pool[int] = Pool(make_worker, threads)
        try:
            for index in order:
                pool.submit(index)
            pool.join()
        finally:
            pool.close()
            source.close()


class _Chunks(io.RawIOBase):
    """A readable file whose content is a list of pieces of memory."""

    def __init__(self, chunks: list[memoryview]) -> None:
        super().__init__()
        self._chunks = chunks
        self._next = 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        """As `io.RawIOBase.readinto`."""
        while not self._rest and self._next < len(self._chunks):
            self._rest = self._chunks[self._next]
            self._next += 1
        view = memoryview(target).cast("B")
        length = min(len(view), len(self._rest))
        view[:length] = self._rest[:length]
        self._rest = self._rest[length:]
        return length


def _find_entry(job: JobDirectory, epoch: int | None, rank: int | None) -> RankEntry:
    if rank is None:
        raise TypeError("ImageReader needs an entry, or a rank")
    control = load_control(job, epoch)
    if not 0 <= rank < control.size:
        raise Incompatible(
            f"the line has {control.size} ranks, there is no rank {rank}",
            path=job.path,
            hint=f"Start with {control.size} ranks.",
        )
    return entry_of(job, control, rank)


def _allocate(length: int) -> Target:
    """Allocate memory for a buffer: on pages of its own if it is large."""
    if length < _OWN_MAPPING_FROM:
        return Target(memoryview(bytearray(length)))
    return Target(map_pages(length), aligned=True)
