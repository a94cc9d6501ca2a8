"""The records as pydantic models: the strict reading of what `manifest.py` and `control.py` read in a hurry.

`verify` and `inspect` use them, and they are where the format is documented field by field. Never imported
by the image child or by a rank: pydantic takes longer to import than a small image takes to commit.

Pure.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ckpt.store.errors import RecordDamaged

__all__ = ["ControlModel", "ManifestModel", "check_control", "check_manifest"]

Count = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Vector = tuple[Count, Count, Count]

Pack = tuple[Annotated[str, Field(pattern=r"^images/rank-\d{5,}/[^/]+\.pack$")], Count, Literal[1, 4096]]
Codec = Literal["raw", "zstd", "shuffle"]
Likeness = Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]
OldBlock = tuple[Digest, Count, Count, Count, Count, Codec, Count, Digest | Literal[""]]
Block = tuple[Digest, Count, Count, Count, Count, Codec, Count, Digest | Literal[""], Likeness]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)

    mac: Digest
    format: Literal[1]
    job: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class ManifestModel(_Record):
    """A rank's image, see `manifest.py`."""

    kind: Literal["manifest"]
    rank: Count
    epoch: Annotated[
        int, Field(ge=1, description="upper end of the label: the image stands for (previous, epoch]")
    ]
    previous: Count
    incarnation: Count
    bytes_raw: Annotated[int, Field(ge=0, description="plain size of stream and buffers")]
    bytes_written: Annotated[int, Field(ge=0, description="length of this image's own pack")]
    meta: Annotated[
        dict[str, Any], Field(description="the image layer's report: stack, sizes, versions, vectors")
    ]
    packs: Annotated[list[Pack], Field(description="path, length, alignment of the blocks")]
    blocks: Annotated[
        list[Block | OldBlock],
        Field(
            description="plain digest, pack, offset, stored length, plain length, codec, item, stored digest, likeness"
        ),
    ]
    stream: list[Count]
    small: list[Count]
    buffers: list[Count | Annotated[list[Count], Field(min_length=2)]]


class EntryModel(BaseModel):
    """One rank's vote in a control file."""

    model_config = ConfigDict(extra="forbid")

    rank: Count
    incarnation: Count
    previous: Count
    epoch: Count
    manifest: Annotated[str, Field(pattern=r"^images/rank-\d{5,}/[^/]+\.json$")]
    digest: Digest
    bytes_raw: Count
    bytes_written: Count
    vectors: Annotated[dict[str, Vector], Field(description="peer: [tx, base, rx] at the cut")]


class ControlModel(_Record):
    """A committed line, see `control.py`."""

    kind: Literal["control"]
    epoch: Annotated[int, Field(ge=1)]
    previous: Count
    incarnation: Count
    generation: Annotated[int, Field(ge=0, description="number of the controller's lock")]
    size: Annotated[int, Field(ge=1)]
    committed_at: str
    meta: dict[str, Any]
    ranks: list[EntryModel]


def check_manifest(data: bytes, path: str) -> ManifestModel:
    """Parse verified bytes of a manifest strictly; RecordDamaged names the first field that is wrong."""
    try:
        return ManifestModel.model_validate_json(data)
    except ValidationError as error:
        raise _wrong("manifest", error, path) from error


def check_control(data: bytes, path: str) -> ControlModel:
    """Parse verified bytes of a control file strictly; RecordDamaged names the first field that is wrong."""
    try:
        return ControlModel.model_validate_json(data)
    except ValidationError as error:
        raise _wrong("control file", error, path) from error


def _wrong(kind: str, error: ValidationError, path: str) -> RecordDamaged:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return RecordDamaged(f"{kind}: field {where}: {first['msg']}", path=path)
