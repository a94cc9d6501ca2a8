"""The control file: the record that makes a line of images the state of the job.

There is one for each committed epoch, `control/epoch-%08d.json`; the controller writes it, after all images. A line exists
if and only if its control file verifies; images without one are left over from a round that was aborted (burnt).

    {mac, kind: "control", format, job, epoch, previous, incarnation, generation, size, committed_at, meta,
     ranks: [{rank, incarnation, previous, epoch, manifest, digest, bytes_raw, bytes_written,
              vectors: {peer: [tx, base, rx]}}, …], absent, record}

A rank that was dead for good when the images were taken (``--on-failure continue``) has no image: it is in `absent`.

Where there is a journal (`record` is then the number of a record in it), a line exists if that record names this very file.

`RankEntry.digest` is the BLAKE3 digest of the manifest file, which in turn holds the digests of all blocks:
the MAC of the control file covers every byte of the line.

`formats.py` defines the fields and the values that they may have; this module converts them to Python objects and back.

Pure. Writing and finding control files is in `lines.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ckpt.store.errors import Misplaced
from ckpt.store.records import formats
from ckpt.transport.records import dataclass, field

__all__ = ["ControlFile", "RankEntry", "control_name", "epoch_of_name"]


def control_name(epoch: int) -> str:
    """File name of an epoch's control file."""
    return f"epoch-{epoch:08d}.json"


def epoch_of_name(name: str) -> int | None:
    """Return the epoch of the control file with this name, or None if it is not the name of a control file."""
    digits = name.removeprefix("epoch-").removesuffix(".json")
    if digits.isdecimal() and digits.isascii() and control_name(int(digits)) == name:
        return int(digits)
    return None


@dataclass(frozen=True)
class RankEntry:
    """One rank's vote. `manifest` is a path relative to the job directory; `vectors` maps a peer to (tx, base, rx)."""

    rank: int
    incarnation: int
    label: tuple[int, int]
    manifest: str
    digest: str
    bytes_raw: int
    bytes_written: int
    vectors: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a vote carries the same."""
        return {
            "rank": self.rank,
            "incarnation": self.incarnation,
            "previous": self.label[0],
            "epoch": self.label[1],
            "manifest": self.manifest,
            "digest": self.digest,
            "bytes_raw": self.bytes_raw,
            "bytes_written": self.bytes_written,
            "vectors": {str(peer): list(vector) for peer, vector in self.vectors.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RankEntry:
        """The inverse of `to_json`, for values that `formats.ENTRY` has checked."""
        return cls(
            rank=value["rank"],
            incarnation=value["incarnation"],
            label=(value["previous"], value["epoch"]),
            manifest=value["manifest"],
            digest=value["digest"],
            bytes_raw=value["bytes_raw"],
            bytes_written=value["bytes_written"],
            vectors={int(peer): (tx, base, rx) for peer, (tx, base, rx) in value["vectors"].items()},
        )


@dataclass(frozen=True)
class ControlFile:
    """A committed line.

    Attributes:
        epoch: number of the line; it only grows, and the numbers of aborted rounds are not used again.
        previous: the committed epoch before it, 0 if it is the first.
        incarnation: of the ranks that wrote it.
        generation: of the controller that wrote it (see `JobDirectory.lock`).
        ranks: one entry for each rank that is not absent, in rank order.
        committed_at: ISO 8601, for people.
        meta: free JSON of the controller (timings and so on).
        record: number of the journal's record that commits the line; 0: none is needed.
        absent: the ranks that were dead for good when the images were taken, ascending; see `--on-failure continue`.
    """

    epoch: int
    previous: int
    incarnation: int
    generation: int
    ranks: Sequence[RankEntry]
    committed_at: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    record: int = 0
    absent: Sequence[int] = ()

    @property
    def size(self) -> int:
        """Number of ranks of the job, absent ones too."""
        return len(self.ranks) + len(self.absent)

    def entry(self, rank: int) -> RankEntry | None:
        """The vote of `rank`; None: it was dead for good, or the job has no such rank."""
        return next((entry for entry in self.ranks if entry.rank == rank), None)

    @property
    def bytes_raw(self) -> int:
        """Plain size of the whole line."""
        return sum(entry.bytes_raw for entry in self.ranks)

    @property
    def bytes_written(self) -> int:
        """The bytes that this line added to the disk."""
        return sum(entry.bytes_written for entry in self.ranks)

    def encode(self, key: bytes, job_id: str) -> bytes:
        """Return the bytes of the file. Raises ValueError if `decode` would refuse them: a rank is missing, for example."""
        return formats.write(
            key,
            formats.CONTROL,
            job_id,
            {
                "epoch": self.epoch,
                "previous": self.previous,
                "incarnation": self.incarnation,
                "generation": self.generation,
                "size": self.size,
                "committed_at": self.committed_at,
                "meta": dict(self.meta),
                "ranks": [entry.to_json() for entry in self.ranks],
                **({"absent": list(self.absent)} if self.absent else {}),
                **({"record": self.record} if self.record else {}),
            },
        )

    @classmethod
    def decode(
        cls, key: bytes, job_id: str, data: bytes, path: str, *, epoch: int | None = None
    ) -> ControlFile:
        """Verify and parse. Raises what `formats.read` raises, and Misplaced if `epoch` is given and is not the record's."""
        content = formats.read(key, formats.CONTROL, job_id, data, path)
        control = cls(
            epoch=content["epoch"],
            previous=content["previous"],
            incarnation=content["incarnation"],
            generation=content["generation"],
            ranks=tuple(RankEntry.from_json(entry) for entry in content["ranks"]),
            committed_at=content["committed_at"],
            meta=content["meta"],
            record=content.get("record", 0),
            absent=tuple(content.get("absent", ())),
        )
        if epoch is not None and control.epoch != epoch:
            raise Misplaced(f"control file is of epoch {control.epoch}, wanted was {epoch}", path=path)
        return control
