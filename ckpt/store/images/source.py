"""Reads verified blocks from the packs of one image.

A streamed pack (see `packs.py`) is read with O_DIRECT, as it was written: a raw block directly into the memory
that the program will use, any other block into a thread's staging memory and from there through the codec. No data
pass through the page cache, which would cost a copy and the same amount of memory again. Where O_DIRECT is refused, at the
start or for a single read (another alignment, the rest of a short read), the pack is read through the cache.

Order for every block: read, verify the digest of the stored bytes, check the padding, and only then decompress. So the
decompressor never gets changed bytes.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from ckpt.store.disk.fsio import FileSystem, close_quietly
from ckpt.store.disk.memory import ALIGN, Staging
from ckpt.store.errors import BlockDamaged, StorageFailed
from ckpt.store.images.codec import RAW, Codec
from ckpt.store.job.directory import JobDirectory
from ckpt.store.job.lines import check_packs
from ckpt.store.records.authenticated import digest
from ckpt.store.records.manifest import BlockRef, Manifest
from ckpt.transport.records import NamedTuple

__all__ = ["BlockSource", "Target"]


class Target(NamedTuple):
    """The destination of a block: memory for its plain bytes. `aligned`: it starts on a page (O_DIRECT can read into it)."""

    view: memoryview
    aligned: bool = False


class BlockSource:
    """The packs of one manifest, open for reading. Threads may share it; each passes its own codec and staging memory.

    Raises:
        BlockDamaged: a pack is missing or has another length.
        RecordDamaged: a pack is not a regular file.
        StorageFailed: the system refused.
    """

    def __init__(self, job: JobDirectory, manifest: Manifest, fs: FileSystem) -> None:
        self._fs = fs
        self._job = job
        self._packs = manifest.packs
        self._fds: list[int] = []
        self._direct: list[bool] = []
        check_packs(job, manifest, fs=fs)
        try:
            for pack in manifest.packs:
                self._fds.append(fs.open_read(os.path.join(job.path, pack.path)))
                self._direct.append(pack.align == ALIGN and self._switch(self._fds[-1], True))
        except OSError as error:
            self.close()
            raise StorageFailed("open", os.path.join(job.path, pack.path), error) from error
        except BaseException:
            self.close()
            raise

    def _switch(self, fd: int, direct: bool) -> bool:
        try:
            self._fs.set_direct(fd, direct)
        except OSError:
            return not direct  # a file system without O_DIRECT: read through the cache
        return direct

    def close(self) -> None:
        """Close the packs. Idempotent."""
        while self._fds:
            close_quietly(self._fs, self._fds.pop())

    def read(self, block: BlockRef, target: Target, codec: Codec, staging: Staging) -> None:
        """Read, verify and unpack one block into `target`, whose length is that of the plain block.

        Raises:
            BlockDamaged: the block is cut short, or differs from its digest in the manifest.
            StorageFailed: the system refused.
        """
        pack = self._packs[block.pack]
        path = os.path.join(self._job.path, pack.path)
        end = block.offset + block.stored
        padding = min(-end % pack.align, max(0, pack.length - end))
        in_place = block.codec == RAW and block.stored == len(target.view) and not padding
        if in_place and (target.aligned or not self._direct[block.pack]):
            memory = target.view
        else:
            in_place = False
            memory = staging.take(block.stored + padding)
        try:
            whole = self._fill(memory, block.pack, block.offset)
        except OSError as error:
            raise StorageFailed("read", path, error) from error
        if not whole:
            raise BlockDamaged(f"a pack ends inside the block at byte {block.offset}", path=path, hint=HINT)
        stored = memory[: block.stored]
        if digest(stored) != block.stored_digest or memory[block.stored :] != bytes(padding):
            raise BlockDamaged(f"the block at byte {block.offset} was changed", path=path, hint=HINT)
        if not in_place:
            try:
                codec.unpack(block.codec, block.item, stored, target.view)
            except BlockDamaged as error:
                error.path = path
                raise

    def _fill(self, memory: memoryview, pack: int, offset: int) -> bool:
        """Fill `memory` from `offset` of a pack; False: the file ends before."""
        while len(memory):
            direct = self._direct[pack]  # another thread may switch it off meanwhile
            try:
                got = self._fs.preadv(self._fds[pack], [memory], offset)
            except OSError as error:
                if error.errno != errno.EINVAL or not direct or self._switch(self._fds[pack], False):
                    raise
                self._direct[pack] = False
                continue
            if got <= 0:
                return False
            memory = memory[got:]
            offset += got
        return True


HINT: Final = "Nothing of this image was used; go on from another epoch (`ckpt ls`, `ckpt verify`)."
