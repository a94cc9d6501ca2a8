"""The one definition of the records in a job directory: the fields of each record, and the values that they may have.

All readers and writers use it. `write` puts the fields in this order and refuses to sign a record that does not match;
`read`, for ranks and for the controller, accepts no other record; `schema.py` makes pydantic models of it, with which
`verify` reads; and a rank's vote (`ckpt.controller.supervision.messages`) is checked against the fields of the control file
that it becomes a part of.

A manifest, a control file and a journal's record have these fields and no others. `job.json` and `generation.json` are
open: earlier versions wrote fewer fields, and later ones may write more.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ckpt.store.errors import RecordDamaged
from ckpt.store.records import authenticated
from ckpt.store.records.shapes import (
    DoesNotFit,
    Either,
    Free,
    Hex,
    Integer,
    Nullable,
    OneOf,
    Record,
    Row,
    Rows,
    Shape,
    Table,
    Text,
)

__all__ = [
    "CONTROL",
    "ENTRY",
    "FILES",
    "GENERATION",
    "JOB",
    "JOURNAL",
    "MANIFEST",
    "VECTORS",
    "compile_patterns",
    "read",
    "write",
]

COUNT: Final = Integer()
EPOCH: Final = Integer(1)
DIGEST: Final = Hex(64)

VECTORS: Final = Table(Text("0|[1-9][0-9]{0,8}"), Row(tx=COUNT, base=COUNT, rx=COUNT))
"""{peer: [tx, base, rx]} at the cut of the checkpoint."""


def _in_image_directory(suffix: str) -> Text:
    return Text(rf"images/rank-[0-9]{{5,9}}/[!-.0-~]+\.{suffix}")


_PACK: Final = _in_image_directory("pack")
_MANIFEST_FILE: Final = _in_image_directory("json")


def compile_patterns() -> None:
    """Compile the patterns that ranks need for manifests and control files: once, before ranks are forked."""
    for text in (VECTORS.key, _PACK, _MANIFEST_FILE):
        text.matches("")


def _check_indices(content: Mapping[str, Any]) -> None:
    """The indices in a manifest refer to blocks and packs that it lists. The MAC shows only who wrote it: a bug in the
    writer is possible.
    """
    used = [*content["stream"], *content["small"]]
    for buffer in content["buffers"]:
        if type(buffer) is list:
            used.extend(buffer[1:])
    if used and max(used) >= len(content["blocks"]):
        raise DoesNotFit("manifest refers to a block it does not list")
    if any(block[1] >= len(content["packs"]) for block in content["blocks"]):
        raise DoesNotFit("manifest refers to a pack it does not list")


def _check_ranks(content: Mapping[str, Any]) -> None:
    """A control file lists every rank once, in order, each with an image whose label contains this epoch, or as absent."""
    ranks, absent, epoch = content["ranks"], content.get("absent", ()), content["epoch"]
    if content["size"] != len(ranks) + len(absent):
        raise DoesNotFit(f"control file of {content['size']} ranks lists {len(ranks) + len(absent)}")
    if not ranks:
        raise DoesNotFit("control file without an image")
    if list(absent) != sorted(set(absent)) or any(rank >= content["size"] for rank in absent):
        raise DoesNotFit(f"control file of {content['size']} ranks has the absent ones {absent}")
    present = [rank for rank in range(content["size"]) if rank not in absent]
    for place, entry in zip(present, ranks, strict=True):
        if entry["rank"] != place:
            raise DoesNotFit(f"control file lists rank {entry['rank']} in place {place}")
        if not entry["previous"] < epoch <= entry["epoch"]:
            label = (entry["previous"], entry["epoch"])
            raise DoesNotFit(f"rank {place} voted for {label}, not for epoch {epoch}")


def _envelope(kind: str) -> dict[str, Shape]:
    """The fields of every record. `authenticated.decode` has compared format and job before."""
    return {"mac": DIGEST, "kind": OneOf(kind), "format": Integer(1), "job": Hex(16)}


_FILE: Final = Text("[0-9]+:[0-9]+:-?[0-9]+")  # device, inode, when it was made in ns

FILES: Final = Record(
    "files",
    {
        "log": Text(),  # the undo log that ended with this image
        "bytes": COUNT,  # where it ended
        "mac": Text(),  # of its last line
        "boot": Text(),  # boot id of the machine
        # What a restart cannot put back: from lines up to this epoch on, the path ("": all), and why
        "uncovered": Rows(Row(epoch=COUNT, path=Text(), reason=Text())),
        "more": COUNT,  # such changes that are not listed
        # The rank's last changes before the image: the path, when, when the image was, and what the path was then
        "changes": Rows(
            Row(
                path=Text(),
                time_ns=COUNT,
                image_ns=COUNT,
                file=_FILE,
                nbytes=COUNT,
                mtime_ns=Integer(-(1 << 62)),
            )
        ),
    },
    optional=("changes",),  # missing in manifests of earlier versions
)

MANIFEST: Final = Record(
    "manifest",
    {
        **_envelope("manifest"),
        "rank": COUNT,
        "epoch": EPOCH,  # upper end of the label: the image stands for (previous, epoch]
        "previous": COUNT,
        "incarnation": COUNT,
        "bytes_raw": COUNT,  # plain size of stream and buffers
        "bytes_written": COUNT,  # length of this image's own pack
        "meta": Free(),  # the image layer's report: stack, sizes, versions
        "packs": Rows(Row(path=_PACK, length=COUNT, alignment=OneOf(1, 4096))),
        "blocks": Rows(
            Row(
                digest=DIGEST,
                pack=COUNT,
                offset=COUNT,
                stored=COUNT,
                length=COUNT,
                codec=OneOf("raw", "zstd", "shuffle"),
                item=COUNT,
                check=Hex(64, or_empty=True),
                likeness=Hex(32, or_empty=True),
                optional=1,
            )
        ),
        "stream": Rows(COUNT),
        "small": Rows(COUNT),
        "buffers": Rows(Either(COUNT, Rows(COUNT, least=2))),
        "files": FILES,  # missing where files do not go back with the program, and in manifests of earlier versions
    },
    optional=("files",),
    rule=_check_indices,
)

ENTRY: Final = Record(
    "vote",
    {
        "rank": COUNT,
        "incarnation": COUNT,
        "previous": COUNT,
        "epoch": EPOCH,
        "manifest": _MANIFEST_FILE,
        "digest": DIGEST,  # of the manifest file
        "bytes_raw": COUNT,
        "bytes_written": COUNT,
        "vectors": VECTORS,
    },
)

CONTROL: Final = Record(
    "control file",
    {
        **_envelope("control"),
        "epoch": EPOCH,
        "previous": COUNT,
        "incarnation": COUNT,
        "generation": COUNT,  # number of the controller's lock
        "size": Integer(1),
        "committed_at": Text(),
        "meta": Free(),
        "ranks": Rows(ENTRY),
        # Ranks that were dead for good when the images were taken, ascending; missing: none
        "absent": Rows(COUNT, least=1),
        # Of the journal: this file counts if that record names it; missing: it counts by itself
        "record": Integer(1),
    },
    optional=("absent", "record"),
    rule=_check_ranks,
)

JOURNAL: Final = Record(
    "journal record",
    {
        **_envelope("journal"),
        "number": Integer(1),
        "previous": Hex(64, or_empty=True),  # digest of the record before
        "generation": Integer(1),
        "what": OneOf("takeover", "commit", "contact", "restart"),
        "epoch": COUNT,  # the highest that is committed
        "digest": Hex(64, or_empty=True),  # of that epoch's control file
        "contact": Text(),
        "incarnation": COUNT,  # of the ranks that are to be started again
        "hosts": Rows(Text()),  # of which these may not run any more
    },
    optional=("incarnation", "hosts"),
)

JOB: Final = Record(
    "job.json",
    {
        **_envelope("job"),
        "command": Rows(Text()),
        "size": Integer(1),
        "hash_seed": Integer(0, (1 << 32) - 1),
        "python": Text(),
        "created": Text(),
        "cwd": Text(),
        "options": Free(),
        "host": Text(),
        "implementation": Text(),
    },
    optional=("host", "implementation"),
    open=True,
)

_LOCATION: Final = ("host", "machine", "boot", "namespace", "directory", "path", "runtime")
GENERATION: Final = Record(
    "generation.json",
    {
        **_envelope("generation"),
        "generation": COUNT,
        "seat": Nullable(
            Record(
                "seat",
                {**dict.fromkeys(_LOCATION, Text()), "pid": COUNT, "contact": Text()},
                optional=("contact",),
                open=True,
            )
        ),
        "branch": Nullable(
            Record("branch", {"origin": COUNT, "lineage": Rows(EPOCH), "above": COUNT}, open=True)
        ),
        "life": Nullable(Record("life", {"incarnation": COUNT, "mark": Text()}, open=True)),
    },
    optional=("seat", "branch", "life"),
    open=True,
)


def _kind(record: Record) -> str:
    shape = record.fields["kind"]
    assert isinstance(shape, OneOf)
    return str(shape.values[0])


def write(key: bytes, record: Record, job_id: str, fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of the file. Raises ValueError if `read` would refuse the fields."""
    kind = _kind(record)
    envelope = {"mac": "0" * 64, "kind": kind, "format": authenticated.FORMAT, "job": job_id}
    try:
        record.check([envelope | dict(fields)])
    except DoesNotFit as error:
        raise ValueError(f"{record.title} would not be read again: {error}") from None
    ordered = {name: fields[name] for name in record.fields if name in fields}
    return authenticated.encode(key, kind, job_id, ordered)


def read(key: bytes, record: Record, job_id: str, data: bytes, path: str) -> dict[str, Any]:
    """Verify, parse and check. Raises what `authenticated.decode` raises, and RecordDamaged for a wrong field or value."""
    content = authenticated.decode(key, _kind(record), job_id, data, path)
    try:
        record.check([content])
    except DoesNotFit as error:
        raise RecordDamaged(f"{record.title} lacks or garbles a field ({error})", path=path) from None
    return content
