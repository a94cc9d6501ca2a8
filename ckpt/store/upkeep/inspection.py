"""`ckpt inspect`: the content of a committed line, from its control file and manifests alone.

Nothing is unpickled and no block is read. Control file and manifests are authenticated (MAC, digest, job, rank, epoch,
incarnation, as before a restart), and their fields are arranged. If a manifest does not verify, its error takes the place
of its content. Whether the blocks are undamaged, `verify` checks.

The result is plain JSON. `SCHEMA` grows when a field changes its meaning or is removed; new fields may be added at any
time. A field that an image of an older version does not have is ``None``.

    {"schema", "job", "id", "command", "epoch", "previous", "incarnation", "committed_at", "size", "bytes", "bytes_written",
     "absent": ranks that were dead for good, and have no image (left out where there are none),
     "ranks": [{"rank", "good": false, "error", "reason", "exit_code"} or
               {"rank", "good": true, "epoch", "previous", "incarnation", "finished",
                "stack":     [{"file", "line", "function"}, …]  outermost first
                "variables": {"modules": […], "frames": […], "rest": […]}   see `ckpt.image.pickling.sizes`
                "left_out":  [{"kind", "package", "variables", "reason"}]   see `ckpt.image.modules.package_changes`
                "messages":  {…}                                            see `ckpt.capture.description`
                "versions":  {"python", "implementation", "ckpt", "packages": {…}, …}
                "modules":   names of the modules saved by value
                "bytes":     {"raw", "written", "stream", "buffers"}, "buffers": number of large ones
                "blocks":    {"new", "shared", "new_bytes", "shared_bytes", "packs", "codecs": {codec: blocks}}
                "timings_ns": {…}                                           of the image's parts
                "not_covered": [[epoch, path, reason]]  changes of files that a restart from lines up to this epoch
                    does not put back ("": of all files), "not_covered_more": such changes that are not listed
                "manifest":  path}]}
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from ckpt.store.errors import Damaged, RankMissing, StoreError
from ckpt.store.job.directory import JobDirectory, image_directory
from ckpt.store.job.lines import entry_of, load_control, load_manifest, newest_good_epoch
from ckpt.store.records.control import RankEntry
from ckpt.store.records.manifest import BlockRef, Manifest

__all__ = ["SCHEMA", "inspect"]

SCHEMA: Final = 1


def inspect(job: JobDirectory, epoch: int | None = None, rank: int | None = None) -> dict[str, Any]:
    """Return the content of the line of ``epoch`` (default: the newest), of all ranks or of one; see the module's header.

    Raises:
        EpochMissing: no line was committed, or none of that epoch.
        RankMissing: the line has no such rank.
        Damaged: the control file does not verify; or the manifest, when ``rank`` is given. `fallback_epoch` names a
            line that can be inspected instead.
        Incompatible: a record has another format.
        StorageFailed: the system refused.
    """
    control = load_control(job, epoch)
    if rank is not None and not 0 <= rank < control.size:
        raise RankMissing(
            f"epoch {control.epoch} has no rank {rank}",
            path=job.path,
            hint=f"Its ranks are 0 to {control.size - 1}." if control.size > 1 else "Its only rank is 0.",
        )
    entries = control.ranks if rank is None else [entry_of(job, control, rank)]
    return {
        "schema": SCHEMA,
        "job": job.path,
        "id": job.job_id,
        "command": job.command,
        "epoch": control.epoch,
        "previous": control.previous,
        "incarnation": control.incarnation,
        "committed_at": control.committed_at,
        "size": control.size,
        **({"absent": list(control.absent)} if control.absent else {}),
        "bytes": control.bytes_raw,
        "bytes_written": control.bytes_written,
        "ranks": [_rank(job, entry, strict=rank is not None) for entry in entries],
    }


def _rank(job: JobDirectory, entry: RankEntry, *, strict: bool) -> dict[str, Any]:
    try:
        manifest = load_manifest(job, entry)
    except StoreError as error:
        if isinstance(error, Damaged):
            error.fallback_epoch = newest_good_epoch(job, without=entry.label[1])
        if strict:
            raise
        return {
            "rank": entry.rank,
            "good": False,
            "error": type(error).__name__,
            "reason": str(error),
            "exit_code": error.exit_code,
        }
    return describe(manifest, entry)


def describe(manifest: Manifest, entry: RankEntry) -> dict[str, Any]:
    """Arrange the fields of one verified manifest; see the module's header."""
    meta = manifest.meta
    image = meta.get("image") or {}
    return {
        "rank": manifest.rank,
        "good": True,
        "epoch": manifest.epoch,
        "previous": manifest.label[0],
        "incarnation": manifest.incarnation,
        "finished": meta.get("finished"),
        "stack": image.get("stack") or [],
        "variables": image.get("variables"),
        "left_out": image.get("left_out") or [],
        "messages": meta.get("messages") or _messages_of_vectors(manifest, entry),
        "versions": image.get("versions"),
        "modules": image.get("modules"),
        "bytes": {
            "raw": manifest.bytes_raw,
            "written": entry.bytes_written,
            "stream": image.get("stream_bytes"),
            "buffers": image.get("buffer_bytes"),
        },
        "buffers": image.get("buffers"),
        "blocks": _blocks(manifest, entry),
        "timings_ns": {**(image.get("timings_ns") or {}), **(meta.get("timings_ns") or {})},
        "not_covered": (manifest.files or {}).get("uncovered", []),
        "not_covered_more": (manifest.files or {}).get("more", 0),
        "manifest": entry.manifest,
    }


def _messages_of_vectors(manifest: Manifest, entry: RankEntry) -> dict[str, Any]:
    """Return the message counts (tx, base, rx) in the control file, for an image that does not describe its messages."""
    peers = {
        str(peer): {"tx": tx, "base": base, "rx": rx, "unacked": tx - base, "unacked_bytes": None}
        for peer, (tx, base, rx) in sorted(entry.vectors.items())
    }
    unacked = sum(row["unacked"] or 0 for row in peers.values())
    return {
        "epoch": manifest.epoch,
        "incarnation": manifest.incarnation,
        "peers": peers,
        "unacked": {"messages": unacked, "bytes": None},
        "pending": None,
        "receives": None,
        "synchronous_sends": None,
    }


def _blocks(manifest: Manifest, entry: RankEntry) -> dict[str, Any]:
    """Count the blocks: new ones lie in the image's own pack, shared ones in packs of earlier images."""
    stem = entry.manifest.removesuffix(".json")
    own = {i for i, pack in enumerate(manifest.packs) if pack.path == f"{stem}.pack"}
    assert stem.startswith(image_directory(entry.rank))
    new: list[BlockRef] = []
    shared: list[BlockRef] = []
    for block in manifest.blocks:
        (new if block.pack in own else shared).append(block)
    return {
        "new": len(new),
        "shared": len(shared),
        "new_bytes": sum(block.length for block in new),
        "shared_bytes": sum(block.length for block in shared),
        "packs": len(manifest.packs),
        "codecs": dict(Counter(block.codec for block in manifest.blocks)),
    }
