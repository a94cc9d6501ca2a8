"""Which blocks a new image may point to instead of writing them again.

Rules, each with its reason:

1. Only blocks of *one committed line*, the base: leftovers of burnt rounds may vanish at any time,
   committed packs are durable.
2. The base is the newest line that the same incarnation of this rank wrote, or the line it was resumed
   from (read and verified then). A line that somebody had to step back from, because it turned out to be
   damaged, is neither: a new image never inherits that damage.
3. `prune` keeps the two newest lines at least, and all that is newer than the newest. While an image is
   being written no line but its own can become the newest, so the base outlives it. The commit looks at
   every pack again.
4. A pack of which the base uses less than a quarter is not pointed to: its blocks are written anew, the
   pack becomes free. The packs of one image therefore take at most four times the image's size.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ckpt.store.errors import StorageFailed, StoreError
from ckpt.store.job.directory import JobDirectory
from ckpt.store.job.lines import check_packs, list_epochs, load_control, load_manifest
from ckpt.store.records.manifest import BlockRef, Manifest, PackRef

__all__ = ["NOTHING_KNOWN", "KnownBlocks", "find_base", "known_blocks"]


class Place(NamedTuple):
    """Where a block of the base lies."""

    pack: PackRef
    block: BlockRef


class KnownBlocks(NamedTuple):
    """The blocks that may be pointed to, by their plain digests, and by their likenesses as far as they have any."""

    by_digest: dict[str, Place]
    by_likeness: dict[str, Place]


NOTHING_KNOWN: Final = KnownBlocks({}, {})

LEAST_USE: Final = 0.25


def find_base(job: JobDirectory, *, rank: int, incarnation: int, resumed_from: int | None) -> Manifest | None:
    """The manifest to build on, or None. Unreadable lines are no reason to fail."""
    try:
        epochs = list_epochs(job)
    except StorageFailed:
        return None
    for epoch in reversed(epochs):
        try:
            control = load_control(job, epoch)
            entry = control.ranks[rank]
            if entry.incarnation != incarnation and epoch != resumed_from:
                continue
            manifest = load_manifest(job, entry)
            check_packs(job, manifest)
        except (StoreError, IndexError):
            continue
        return manifest
    return None


def known_blocks(manifest: Manifest) -> KnownBlocks:
    """The blocks of a manifest, in the packs that are used well enough."""
    used = [0] * len(manifest.packs)
    for block in manifest.blocks:
        used[block.pack] += block.stored
    worth = [used[index] >= LEAST_USE * pack.length for index, pack in enumerate(manifest.packs)]
    places = [Place(manifest.packs[block.pack], block) for block in manifest.blocks if worth[block.pack]]
    return KnownBlocks(
        {place.block.digest: place for place in places},
        {place.block.likeness: place for place in places if place.block.likeness},
    )
