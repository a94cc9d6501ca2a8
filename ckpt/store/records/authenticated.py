"""Authenticated JSON records: the envelope of job.json, manifests, control files and the generation.

A record is one JSON object in one file, whose first member is its MAC:

    {"mac":"<64 hex digits>","kind":"manifest","format":1,"job":"…",…}\\n

The MAC is keyed BLAKE3 over *every byte that follows the MAC's closing quote*, with a key derived from the job's key and
the record's kind. A canonical form is not needed: the bytes of the file are verified, so a change of any bit is detected
(also of a space, or of the case of a hex digit), and nothing is parsed as JSON before it is verified. Kind, job and format
are checked after the MAC, so a mismatch is certain: it does not come from damage.

Pure: bytes in, values out. The fields of each record and their meaning belong to the record's own module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from blake3 import blake3

from ckpt.compat.accelerators import compare_digest
from ckpt.store.errors import Incompatible, Misplaced, RecordDamaged
from ckpt.transport import jsontext

__all__ = ["FORMAT", "KEY_BYTES", "decode", "digest", "encode", "peek"]

FORMAT: Final = 1
"""Version of the whole job directory; raised whenever an older reader could misread it."""

KEY_BYTES: Final = 32

_HEAD: Final = b'{"mac":"'
_MAC_DIGITS: Final = 64
_BODY: Final = len(_HEAD) + _MAC_DIGITS


def digest(data: bytes | bytearray | memoryview) -> str:
    """BLAKE3-256 of `data`, 64 hex digits."""
    return blake3(data).hexdigest()


def _mac(key: bytes, kind: str, body: bytes) -> bytes:
    subkey = blake3(key, derive_key_context=f"checkpoint toolkit, record, {kind}").digest()
    return blake3(body, key=subkey).hexdigest().encode("ascii")


def encode(key: bytes, kind: str, job_id: str, fields: Mapping[str, object]) -> bytes:
    """Return the bytes of the file: a record of `kind` with `fields`, which are JSON values; mac, kind, format and job are
    added here. Raises ValueError if `fields` has one of these four.
    """
    content: dict[str, object] = {"kind": kind, "format": FORMAT, "job": job_id}
    if not content.keys().isdisjoint(fields) or "mac" in fields:
        raise ValueError("fields of a record may not be called mac, kind, format or job")
    content.update(fields)
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    body = b'",' + text[1:].encode("utf-8", "surrogateescape") + b"\n"
    return _HEAD + _mac(key, kind, body) + body


def decode(key: bytes, kind: str, job_id: str, data: bytes, path: str) -> dict[str, Any]:
    """Verify and parse a record.

    Args:
        path: only for messages.

    Raises:
        RecordDamaged: cut short, changed, or signed with another key.
        Misplaced: a genuine record of another job.
        Incompatible: a genuine record of another format.
    """
    body = data[_BODY:]
    if data[: len(_HEAD)] != _HEAD or len(data) <= _BODY:
        raise RecordDamaged(f"this is not a whole {kind}", path=path, hint=_REPLACE)
    if not compare_digest(_mac(key, kind, body), data[len(_HEAD) : _BODY]):
        raise RecordDamaged(
            f"{kind} does not verify: changed, damaged or not of this job", path=path, hint=_REPLACE
        )
    try:
        content: dict[str, Any] = jsontext.parse(data.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise RecordDamaged(f"{kind} verifies, and is no JSON ({error})", path=path) from error
    if content.get("format") != FORMAT or type(content["format"]) is not int:
        raise Incompatible(
            f"{kind} has format {content.get('format')}, this version reads format {FORMAT}",
            path=path,
            hint="Use the version of the toolkit that wrote it.",
        )
    if content.get("job") != job_id:
        raise Misplaced(f"{kind} belongs to job {content.get('job')}, not {job_id}", path=path, hint=_REPLACE)
    return content


_REPLACE: Final = "Restore the file from a backup, or go on from another epoch (`ckpt ls`)."


_CLAIMS: Final = re.compile(rb'"format":(\d{1,9}),"job":"([0-9a-f]{1,64})"')
_CLAIMED_WITHIN: Final = 1000


def peek(data: bytes) -> tuple[int | None, str]:
    """Return the format and the job that a record claims, not verified; (None, "") if they are not found.

    It is used for job.json, which itself names the job that it is verified for, and for a better error message. The two are
    searched in the bytes, where `encode` writes them; nothing is parsed.
    """
    found = _CLAIMS.search(data, 0, _CLAIMED_WITHIN)
    return (int(found[1]), found[2].decode("ascii")) if found else (None, "")
