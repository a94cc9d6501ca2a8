"""The control file: the record that makes a line of images the state of the job.

One per committed epoch, `control/epoch-%08d.json`, written last and by the controller only. A line exists if
and only if its control file verifies; images without one are leftovers of a round that was burnt.

    {mac, kind: "control", format, job, epoch, previous, incarnation, generation, size, committed_at, meta,
     ranks: [{rank, incarnation, previous, epoch, manifest, digest, bytes_raw, bytes_written,
              vectors: {peer: [tx, base, rx]}}, …]}

`RankEntry.digest` is the BLAKE3 digest of the manifest file, which in turn holds the digests of all blocks:
the MAC of the control file covers every byte of the line.

Pure: encoding, decoding and checks. Writing and finding control files is in `lines.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ckpt.store.errors import Misplaced, RecordDamaged
from ckpt.store.records import authenticated
from ckpt.transport.records import dataclass, field

__all__ = ["KIND", "ControlFile", "RankEntry", "control_name", "epoch_of_name"]

KIND: Final = "control"


def control_name(epoch: int) -> str:
    """File name of an epoch's control file."""
    return f"epoch-{epoch:08d}.json"


def epoch_of_name(name: str) -> int | None:
    """The epoch a file name in `control/` stands for, or None when it is no control file."""
    digits = name.removeprefix("epoch-").removesuffix(".json")
    if digits.isdecimal() and digits.isascii() and control_name(int(digits)) == name:
        return int(digits)
    return None


@dataclass(frozen=True)
class RankEntry:
    """One rank's vote. `manifest` is relative to the job directory, `vectors` is peer -> (tx, base, rx)."""

    rank: int
    incarnation: int
    label: tuple[int, int]
    manifest: str
    digest: str
    bytes_raw: int
    bytes_written: int
    vectors: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; also what a vote carries."""
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
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError on values of another shape."""
        vectors = {int(peer): (int(v[0]), int(v[1]), int(v[2])) for peer, v in value["vectors"].items()}
        return cls(
            rank=int(value["rank"]),
            incarnation=int(value["incarnation"]),
            label=(int(value["previous"]), int(value["epoch"])),
            manifest=str(value["manifest"]),
            digest=str(value["digest"]),
            bytes_raw=int(value["bytes_raw"]),
            bytes_written=int(value["bytes_written"]),
            vectors=vectors,
        )


@dataclass(frozen=True)
class ControlFile:
    """A committed line.

    Attributes:
        epoch: number of the line; only grows, burnt numbers are left out.
        previous: the committed epoch before it, 0 if it is the first.
        incarnation: of the ranks that wrote it.
        generation: of the controller that wrote it (see `JobDirectory.lock`).
        ranks: one entry per rank, in rank order, complete.
        committed_at: ISO 8601, for people.
        meta: free JSON of the controller (timings and so on).
    """

    epoch: int
    previous: int
    incarnation: int
    generation: int
    ranks: Sequence[RankEntry]
    committed_at: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def bytes_raw(self) -> int:
        """Plain size of the whole line."""
        return sum(entry.bytes_raw for entry in self.ranks)

    @property
    def bytes_written(self) -> int:
        """What this line added to the disk."""
        return sum(entry.bytes_written for entry in self.ranks)

    def check(self) -> None:
        """Raise ValueError unless it has every rank once, in order, each with the label of this epoch."""
        for position, entry in enumerate(self.ranks):
            if entry.rank != position:
                raise ValueError(f"control file lists rank {entry.rank} in place {position}")
            if not self.covers(entry):
                raise ValueError(f"rank {entry.rank} voted for {entry.label}, not for epoch {self.epoch}")
        if not self.ranks:
            raise ValueError("control file lists no rank")

    def covers(self, entry: RankEntry) -> bool:
        """Whether an image stands for this epoch: previous < epoch <= label."""
        return entry.label[0] < self.epoch <= entry.label[1]

    def encode(self, key: bytes, job_id: str) -> bytes:
        """The file's bytes; ValueError when incomplete."""
        self.check()
        return authenticated.encode(
            key,
            KIND,
            job_id,
            {
                "epoch": self.epoch,
                "previous": self.previous,
                "incarnation": self.incarnation,
                "generation": self.generation,
                "size": self.size,
                "committed_at": self.committed_at,
                "meta": self.meta,
                "ranks": [entry.to_json() for entry in self.ranks],
            },
        )

    @classmethod
    def decode(
        cls, key: bytes, job_id: str, data: bytes, path: str, *, epoch: int | None = None
    ) -> ControlFile:
        """Verify and parse; `epoch`, when given, must be the record's own (else Misplaced)."""
        content = authenticated.decode(key, KIND, job_id, data, path)
        try:
            control = cls(
                epoch=content["epoch"],
                previous=content["previous"],
                incarnation=content["incarnation"],
                generation=content["generation"],
                ranks=tuple(RankEntry.from_json(entry) for entry in content["ranks"]),
                committed_at=content["committed_at"],
                meta=content["meta"],
            )
            control.check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordDamaged(f"control file lacks or garbles a field ({error!r})", path=path) from error
        if epoch is not None and control.epoch != epoch:
            raise Misplaced(f"control file is of epoch {control.epoch}, wanted was {epoch}", path=path)
        return control
