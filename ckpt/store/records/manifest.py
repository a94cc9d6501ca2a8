"""The manifest: what one rank's image consists of, in one JSON file per rank and epoch.

An image is a pickle stream and a list of out-of-band buffers. Both are cut into blocks. A block has two digests: the BLAKE3
digest of its *plain* content is its name, by which unchanged data is recognised; a reader verifies the digest of its
*stored* bytes before it decompresses them, and long before anything is unpickled. Blocks lie in packs; a manifest may refer
to packs that earlier epochs of the same job wrote.

    file = {mac, kind, format, job, rank, epoch, previous, incarnation, packs, blocks, stream, buffers, …}
    packs    [[path relative to the job, length in bytes, alignment in bytes], …]
    blocks   [[plain digest, pack index, offset, stored length, plain length, codec, item size,
               stored digest, likeness], …]
                                         stored digest: "" for codec raw: the plain digest is the same
                                         likeness: "" for small blocks (`likeness.py`); absent in old manifests
    stream   [block index, …]            the pickle stream
    small    [block index, …]            all small buffers, each start rounded up to SMALL_ALIGN
    buffers  [length, or [length, block index, …], …]    a length alone: the next part of `small`

The MAC covers job, rank, epoch, label and incarnation together with all digests: an image cannot pass for another one. The
control file contains the digest of the manifest's bytes.

`formats.py` defines the fields and the values that they may have; this module converts them to Python objects and back.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ckpt.store.errors import Misplaced
from ckpt.store.records import formats
from ckpt.transport.records import NamedTuple, dataclass, field

__all__ = ["SMALL_ALIGN", "BlockRef", "BufferRef", "Manifest", "PackRef"]

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
    """One rank's image of one epoch. `label` is (previous epoch, epoch]; `meta` is the image's report; `files`: what is
    known of the program's files (`formats.FILES`); None: they do not go back with the program.
    """

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
    files: Mapping[str, Any] | None = None

    @property
    def epoch(self) -> int:
        return self.label[1]

    def encode(self, key: bytes) -> bytes:
        """Return the bytes of the file. Raises ValueError if `decode` would refuse them."""
        fields = {
            "rank": self.rank,
            "epoch": self.label[1],
            "previous": self.label[0],
            "incarnation": self.incarnation,
            "bytes_raw": self.bytes_raw,
            "bytes_written": self.bytes_written,
            "meta": dict(self.meta),
            "packs": list(map(list, self.packs)),
            "blocks": list(map(list, self.blocks)),
            "stream": list(self.stream),
            "small": list(self.small),
            "buffers": [b.length if b.blocks is None else [b.length, *b.blocks] for b in self.buffers],
        }
        if self.files is not None:
            fields["files"] = dict(self.files)
        return formats.write(key, formats.MANIFEST, self.job, fields)

    @classmethod
    def decode(cls, key: bytes, job_id: str, data: bytes, path: str) -> Manifest:
        """Verify and parse. Raises what `formats.read` raises."""
        content = formats.read(key, formats.MANIFEST, job_id, data, path)
        return cls(
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
            files=content["files"] if "files" in content else _files_of_old(content["meta"]),
        )

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


def _files_of_old(meta: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Earlier versions had a part of it elsewhere."""
    log = meta.get("undo_log")
    return None if log is None else {**log, "boot": "", "uncovered": [], "more": 0}
