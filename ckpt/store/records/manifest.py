"""What one rank's image consists of: the manifest, one JSON file per rank and epoch.

An image is a pickle stream and a list of out-of-band buffers. Both are cut into blocks; a block is named by
the BLAKE3 digest of its *plain* content (that is how unchanged data is recognised) and guarded by the digest
of its *stored* bytes (that is what a reader verifies, before it decompresses and long before anything is
unpickled). Blocks lie in packs; a manifest may point into packs that earlier epochs of the same job wrote.

    file = {mac, kind, format, job, rank, epoch, previous, incarnation, packs, blocks, stream, buffers, …}
    packs    [[path relative to the job, length in bytes, alignment in bytes], …]
    blocks   [[plain digest, pack index, offset, stored length, plain length, codec, item size,
               stored digest, likeness], …]
                                         stored digest: "" for codec raw, where it would equal the plain one
                                         likeness: "" for small blocks (`likeness.py`); absent in old manifests
    stream   [block index, …]            the pickle stream
    small    [block index, …]            all small buffers, each start rounded up to SMALL_ALIGN
    buffers  [length, or [length, block index, …], …]    a bare length: the next part of `small`

Job, rank, epoch, label and incarnation are under the MAC together with all digests: an image cannot be given
out for another one. The control file holds the digest of the manifest's bytes.

Written by hand instead of by a schema library, because the image child writes it and a restarting rank reads
it, and both are in a hurry; `schema.py` has the same as pydantic models for `verify`, `inspect` and the
documentation.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ckpt.store.errors import Misplaced, RecordDamaged
from ckpt.store.records import authenticated
from ckpt.transport.records import dataclass, field

__all__ = ["KIND", "SMALL_ALIGN", "BlockRef", "BufferRef", "Manifest", "PackRef"]

KIND: Final = "manifest"
SMALL_ALIGN: Final = 64


class PackRef(NamedTuple):
    """A pack file: path relative to the job directory, its length, and the alignment of its blocks
    (bytes)."""

    path: str
    length: int
    align: int


class BlockRef(NamedTuple):
    """Where a block lies and how it is stored. Lengths and offset in bytes; `item`: item size."""

    digest: str
    pack: int
    offset: int
    stored: int
    length: int
    codec: str
    item: int
    check: str
    likeness: str = ""

    @property
    def stored_digest(self) -> str:
        """Digest of the bytes in the pack."""
        return self.check or self.digest


class BufferRef(NamedTuple):
    """An out-of-band buffer: `blocks` None means the next `length` bytes of the small ones."""

    length: int
    blocks: tuple[int, ...] | None


@dataclass(frozen=True)
class Manifest:
    """One rank's image of one epoch. `label` is (previous epoch, epoch]; `meta` is the image's report."""

    job: str
    rank: int
    incarnation: int
    label: tuple[int, int]
    packs: tuple[PackRef, ...]
    blocks: tuple[BlockRef, ...]
    stream: tuple[int, ...]
    small: tuple[int, ...]
    buffers: tuple[BufferRef, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)
    bytes_raw: int = 0
    bytes_written: int = 0

    @property
    def epoch(self) -> int:
        return self.label[1]

    def encode(self, key: bytes) -> bytes:
        """The file's bytes."""
        return authenticated.encode(
            key,
            KIND,
            self.job,
            {
                "rank": self.rank,
                "epoch": self.label[1],
                "previous": self.label[0],
                "incarnation": self.incarnation,
                "bytes_raw": self.bytes_raw,
                "bytes_written": self.bytes_written,
                "meta": self.meta,
                "packs": self.packs,
                "blocks": self.blocks,
                "stream": self.stream,
                "small": self.small,
                "buffers": [b.length if b.blocks is None else [b.length, *b.blocks] for b in self.buffers],
            },
        )

    @classmethod
    def decode(cls, key: bytes, job_id: str, data: bytes, path: str) -> Manifest:
        """Verify and parse. Raises what `records.decode` raises; RecordDamaged: senseless fields."""
        content = authenticated.decode(key, KIND, job_id, data, path)
        try:
            manifest = cls(
                job=content["job"],
                rank=content["rank"],
                incarnation=content["incarnation"],
                label=(content["previous"], content["epoch"]),
                packs=tuple(PackRef(*pack) for pack in content["packs"]),
                blocks=tuple(BlockRef(*block) for block in content["blocks"]),
                stream=tuple(content["stream"]),
                small=tuple(content["small"]),
                buffers=tuple(
                    BufferRef(b, None) if isinstance(b, int) else BufferRef(b[0], tuple(b[1:]))
                    for b in content["buffers"]
                ),
                meta=content["meta"],
                bytes_raw=content["bytes_raw"],
                bytes_written=content["bytes_written"],
            )
        except (KeyError, TypeError, IndexError) as error:
            raise RecordDamaged(f"manifest lacks or garbles a field ({error!r})", path=path) from error
        manifest._check_inside(path)
        return manifest

    def _check_inside(self, path: str) -> None:
        """Indices and paths stay inside: a signed manifest is trusted, a bug in its writer is not."""
        blocks = len(self.blocks)
        used = [*self.stream, *self.small]
        for buffer in self.buffers:
            used.extend(buffer.blocks or ())
        if any(not 0 <= index < blocks for index in used):
            raise RecordDamaged("manifest refers to a block it does not list", path=path)
        if any(not 0 <= block.pack < len(self.packs) for block in self.blocks):
            raise RecordDamaged("manifest refers to a pack it does not list", path=path)
        if any(pack.path.startswith("/") or ".." in pack.path.split("/") for pack in self.packs):
            raise RecordDamaged("manifest names a pack outside of the job", path=path)

    def expect(self, *, rank: int, epoch: int, incarnation: int, path: str) -> None:
        """Raise Misplaced unless this is the image of that rank, epoch and incarnation."""
        for name, wanted, found in (
            ("rank", rank, self.rank),
            ("epoch", epoch, self.epoch),
            ("incarnation", incarnation, self.incarnation),
        ):
            if wanted != found:
                raise Misplaced(
                    f"manifest is of {name} {found}, wanted was {wanted}",
                    path=path,
                    hint="Files were swapped: restore them, or go on from another epoch (`ckpt ls`).",
                )
