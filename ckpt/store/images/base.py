"""Chooses the base of an incremental image: blocks of a committed image that a new image may refer to.

Rules, each with its reason:

1. A new image refers only to blocks of *one committed line*, the base: packs of that line are durable, while files of an
   aborted round may be removed at any time.
2. The base is the newest line that the same incarnation of this rank wrote, or the line from which this incarnation was
   restored (its blocks were verified then). A damaged line, from which a restart had to fall back to an older
   one, is neither: so a new image never inherits that damage.
3. `prune` keeps at least the two newest lines, and all images newer than the newest line. While an image is
   being written, only its own line can become the newest, so the base is not removed before the image is committed. The
   commit checks every pack again.
4. If the base uses less than a quarter of a pack, the new image does not refer to this pack: the blocks are written again,
   so that the pack can be removed. The packs of one image therefore take at most four times the image's size.

What does not belong here: writing (`writer.py`), removal of packs (`upkeep/pruning.py`).
"""

from __future__ import annotations

from typing import Final

from ckpt.store.errors import StorageFailed, StoreError
from ckpt.store.job.directory import JobDirectory
from ckpt.store.job.epochs import list_epochs
from ckpt.store.job.lines import check_packs, load_control, load_manifest
from ckpt.store.records.manifest import BlockRef, Manifest, PackRef
from ckpt.transport.records import NamedTuple

__all__ = ["NO_KNOWN_BLOCKS", "KnownBlocks", "find_base", "known_blocks"]


class Place(NamedTuple):
    """Position of a block of the base: its pack, and its entry in the base's manifest."""

    pack: PackRef
    block: BlockRef


class KnownBlocks(NamedTuple):
    """The blocks that a new image may refer to, by the digest of their plain bytes, and by their likeness if they have
    one."""

    by_digest: dict[str, Place]
    by_likeness: dict[str, Place]


NO_KNOWN_BLOCKS: Final = KnownBlocks({}, {})

LEAST_USE: Final = 0.25


def find_base(job: JobDirectory, *, rank: int, incarnation: int, resumed_from: int | None) -> Manifest | None:
    """Return the manifest of the base, or None. A line that cannot be read is passed over; nothing is raised for it."""
    try:
        epochs = list_epochs(job)
    except StorageFailed:
        return None
    for epoch in reversed(epochs):
        try:
            control = load_control(job, epoch)
            entry = control.entry(rank)
            if entry is None:
                continue
            if entry.incarnation != incarnation and epoch != resumed_from:
                continue
            manifest = load_manifest(job, entry)
            check_packs(job, manifest)
        except StoreError:
            continue
        return manifest
    return None


def known_blocks(manifest: Manifest) -> KnownBlocks:
    """Return the blocks of the base's manifest, without those in packs of which the base uses less than LEAST_USE."""
    used = [0] * len(manifest.packs)
    for block in manifest.blocks:
        used[block.pack] += block.stored
    worth = [used[index] >= LEAST_USE * pack.length for index, pack in enumerate(manifest.packs)]
    places = [Place(manifest.packs[block.pack], block) for block in manifest.blocks if worth[block.pack]]
    return KnownBlocks(
        {place.block.digest: place for place in places},
        {place.block.likeness: place for place in places if place.block.likeness},
    )
