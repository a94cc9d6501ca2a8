"""Records: what was signed is what is read, byte for byte, or it is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.store import Incompatible, Misplaced, RecordDamaged
from ckpt.store.records import authenticated

KEY = bytes(range(32))
JOB = "0123456789abcdef"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def encoded(**fields: object) -> bytes:
    return authenticated.encode(KEY, "thing", JOB, fields)


@given(values)
def test_what_is_encoded_is_decoded(value: object) -> None:
    assert authenticated.decode(KEY, "thing", JOB, encoded(x=value), "f")["x"] == value


def test_a_record_is_plain_json_with_the_mac_first() -> None:
    content = json.loads(encoded(a=1))
    assert list(content) == ["mac", "kind", "format", "job", "a"]
    assert content["job"] == JOB and content["format"] == authenticated.FORMAT


def test_a_file_name_that_is_no_unicode_survives() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert authenticated.decode(KEY, "thing", JOB, encoded(name=name), "f")["name"] == name


def test_every_flipped_bit_is_detected() -> None:
    data = encoded(a=[1, 2], b="x")
    for position in range(len(data) * 8):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(RecordDamaged):
            authenticated.decode(KEY, "thing", JOB, bytes(changed), "f")


def test_every_truncation_and_any_addition_is_detected() -> None:
    data = encoded(a=1)
    for length in range(len(data)):
        with pytest.raises(RecordDamaged):
            authenticated.decode(KEY, "thing", JOB, data[:length], "f")
    for more in (b"\n", b" ", b"}", data):
        with pytest.raises(RecordDamaged):
            authenticated.decode(KEY, "thing", JOB, data + more, "f")


def test_another_key_or_kind_does_not_verify() -> None:
    with pytest.raises(RecordDamaged, match="does not verify"):
        authenticated.decode(bytes(32), "thing", JOB, encoded(), "f")
    with pytest.raises(RecordDamaged, match="does not verify"):
        authenticated.decode(KEY, "other", JOB, encoded(), "f")


def test_a_genuine_record_of_another_job_is_misplaced() -> None:
    with pytest.raises(Misplaced, match=JOB):
        authenticated.decode(KEY, "thing", "f" * 16, encoded(), "f")


def test_a_genuine_record_of_another_format_is_incompatible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticated, "FORMAT", 2)
    data = encoded()
    monkeypatch.undo()
    with pytest.raises(Incompatible, match="format 2"):
        authenticated.decode(KEY, "thing", JOB, data, "f")


@pytest.mark.parametrize("name", ["mac", "kind", "format", "job"])
def test_the_envelope_cannot_be_overwritten(name: str) -> None:
    with pytest.raises(ValueError, match="may not be called"):
        encoded(**{name: 1})


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_a_genuine_record_that_is_no_json_is_damaged(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Signed, so its writer's own mistake: refused as well, and with no other exception."""
    monkeypatch.setattr(json, "dumps", lambda *_, **__: "{" + text)
    data = encoded()
    monkeypatch.undo()
    with pytest.raises(RecordDamaged, match="verifies, and is no JSON"):
        authenticated.decode(KEY, "thing", JOB, data, "f")


def test_the_claimed_format_of_anything_can_be_asked_for() -> None:
    assert authenticated.peek(encoded()) == (authenticated.FORMAT, JOB)
    assert authenticated.peek(b"\xff") == (None, "")
    assert authenticated.peek(b"[1]") == (None, "")
