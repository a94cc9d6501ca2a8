"""One definition of every record: both readings that are made of it, the ranks' and that of `verify`, decide alike, and what
is read is written again byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.store import ControlFile, Manifest, RecordDamaged
from ckpt.store.records import authenticated, formats, schema
from ckpt.store.records.shapes import (
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

KEY = bytes(32)
JOB = "0123456789abcdef"
DIGEST = "ab" * 32
ENVELOPE = ("mac", "kind", "format", "job")
RECORDS = {
    "manifest": formats.MANIFEST,
    "control": formats.CONTROL,
    "job": formats.JOB,
    "generation": formats.GENERATION,
}
PACK = "images/rank-00000/epoch-00000002.i0001.00.pack"
ENTRY = {
    "rank": 0, "incarnation": 1, "previous": 1, "epoch": 2, "manifest": PACK.replace("pack", "json"), "digest": DIGEST,
    "bytes_raw": 100, "bytes_written": 15, "vectors": {"0": [5, 2, 3], "12": [0, 0, 0]},
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    "manifest": {
        "rank": 0, "epoch": 2, "previous": 1, "incarnation": 1, "bytes_raw": 100, "bytes_written": 15,
        "meta": {"stack": [["app\udcff.py", 3]]}, "packs": [[PACK, 5000, 1]],
        "blocks": [[DIGEST, 0, 0, 10, 10, "raw", 1, "", ""], [DIGEST, 0, 10, 5, 90, "zstd", 1, "cd" * 32, "ef" * 16]],
        "stream": [0], "small": [1], "buffers": [7, [100, 0, 1]],
        "files": {
            "log": "epoch-00000001-00001/rank-00000", "bytes": 300, "mac": "ab" * 16, "boot": "x",
            "uncovered": [[1, "/tmp/\udcff", "No space left on device"], [2, "", ""]], "more": 0,
        },
    },
    "control": {
        "epoch": 2, "previous": 1, "incarnation": 1, "generation": 3, "size": 2, "committed_at": "2026-01-01",
        "meta": {}, "ranks": [ENTRY, ENTRY | {"rank": 1}],
    },
    "job": {
        "command": ["app\udcff.py"], "size": 2, "hash_seed": 5, "python": "3.11.7", "created": "2026-01-01",
        "cwd": "/tmp/\udcff", "options": {"every": 1.5}, "host": "h", "implementation": "cpython",
    },
    "generation": {
        "generation": 3,
        "seat": dict.fromkeys(("host", "machine", "boot", "namespace", "directory", "path", "runtime"), "x") | {"pid": 7},
        "branch": {"origin": 1, "lineage": [1], "above": 3},
        "life": {"incarnation": 2, "mark": "m"},
    },
}  # fmt: skip


def signed(kind: str, content: dict[str, Any]) -> bytes:
    """Any fields, also such as `formats.write` refuses."""
    fields = {name: value for name, value in content.items() if name not in ENVELOPE}
    return authenticated.encode(KEY, kind, JOB, fields)


def refused(read: Callable[[], object]) -> str | None:
    try:
        read()
    except RecordDamaged as error:
        return str(error)
    return None


def decided(kind: str, data: bytes) -> tuple[str | None, str | None]:
    """Why the ranks refuse a record, and why `verify` does."""
    record = RECORDS[kind]
    return (
        refused(lambda: formats.read(KEY, record, JOB, data, "f")),
        refused(lambda: schema.check(record, data, "f")),
    )


def told(kind: str, data: bytes) -> dict[str, Any]:
    """The fields that are defined."""
    content = formats.read(KEY, RECORDS[kind], JOB, data, "f")
    return {name: content[name] for name in RECORDS[kind].fields if name in content and name != "mac"}


def rewritten(kind: str, data: bytes) -> bytes:
    """Read as a rank reads it, and written again."""
    if kind == "manifest":
        return Manifest.decode(KEY, JOB, data, "f").encode(KEY)
    if kind == "control":
        return ControlFile.decode(KEY, JOB, data, "f").encode(KEY, JOB)
    content = formats.read(KEY, RECORDS[kind], JOB, data, "f")
    return formats.write(KEY, RECORDS[kind], JOB, {k: v for k, v in content.items() if k not in ENVELOPE})


# ---- values of every shape, and mistakes ---------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5) | st.just("\udcff")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def values_of(shape: Shape) -> st.SearchStrategy[Any]:
    match shape:
        case Integer():
            small = st.integers(shape.least, min(shape.most, shape.least + 2))
            return small | st.sampled_from([shape.least, shape.most])
        case Text(pattern=None):
            return TEXTS
        case Text(pattern=pattern) | Hex(pattern=pattern):
            return st.from_regex(pattern, fullmatch=True)
        case OneOf(values=values):
            return st.sampled_from(values)
        case Free():
            return st.dictionaries(TEXTS, JSON, max_size=3)
        case Nullable():
            return st.none() | values_of(shape.shape)
        case Rows():
            return st.lists(values_of(shape.shape), min_size=shape.least, max_size=shape.least + 2)
        case Row():
            places = [values_of(place) for place in shape.places.values()]
            return st.integers(shape.least, len(places)).flatmap(lambda n: st.tuples(*places[:n]).map(list))
        case Either():
            return values_of(shape.one) | values_of(shape.other)
        case Table():
            return st.dictionaries(values_of(shape.key), values_of(shape.shape), max_size=2)
        case Record():
            fields = {k: values_of(field) for k, field in shape.fields.items() if k not in ENVELOPE}
            return st.fixed_dictionaries(fields).map(lambda found: {name: found[name] for name in fields})
    raise AssertionError(shape)


WRONG = st.sampled_from(
    [
        *(None, True, False, 0, 1, -1, 2, 1.0, 1.5, 1 << 63, (1 << 63) - 1, 1 << 80, "1", "", "x", "\udcff", [], {}),
        *([1], [[]], {"a": 1}, DIGEST, DIGEST.upper(), DIGEST + "0", DIGEST[1:], DIGEST + "\n", "ef" * 16, "raw", "RAW"),
        *(PACK, PACK + "\n", "/etc/passwd", "images/../../x"),
        *(PACK.replace("0", "\u0660"), PACK.replace("epoch", "\xe9poch")),
        *("images/rank-00000/../x.pack", {"01": [0, 0, 0]}, {"\u0661": [0, 0, 0]}, {" 1": [0, 0, 0]}, {"-1": [0, 0, 0]}),
    ]
)  # fmt: skip


@st.composite
def mistaken(draw: st.DrawFn, content: Any) -> Any:
    """A JSON value with one place changed, removed or added."""
    copied = json.loads(json.dumps(content))
    place: Any = copied
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        inner = [key for key in keys if isinstance(place[key], dict | list)]
        if inner and draw(st.booleans()):
            place = place[draw(st.sampled_from(inner))]
            continue
        do = draw(st.sampled_from(["change", "change", "remove", "add"] if keys else ["add"]))
        if do == "add" and isinstance(place, dict):
            place[draw(st.sampled_from(["more", "1", "size", "mac2", "\xe9"]))] = draw(WRONG)
        elif do == "add":
            place.append(draw(WRONG))
        elif do == "remove":
            del place[draw(st.sampled_from(keys))]
        else:
            place[draw(st.sampled_from(keys))] = draw(WRONG | JSON)
        return copied


# ---- the properties ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RECORDS)
def test_a_good_record_is_taken_by_both_and_written_as_it_was(kind: str) -> None:
    """Names of files that are not UTF-8 included."""
    data = formats.write(KEY, RECORDS[kind], JOB, GOOD[kind])
    assert decided(kind, data) == (None, None)
    assert rewritten(kind, data) == data


@pytest.mark.parametrize("kind", RECORDS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_records_of_the_defined_shape_are_taken_by_both_or_by_none(kind: str, data: st.DataObject) -> None:
    content = data.draw(values_of(RECORDS[kind]))
    if kind == "control":  # so that most keep the rule, too
        for place, entry in enumerate(content["ranks"]):
            entry |= {"rank": place, "previous": 0, "epoch": content["epoch"]}
        content["size"] = max(1, len(content["ranks"]))
    record = signed(kind, content)
    ranks, verify = decided(kind, record)
    assert (ranks is None) == (verify is None), (ranks, verify)
    if kind in ("job", "generation"):
        assert ranks is None
    if ranks is None and not any(len(block) == 8 for block in content.get("blocks", [])):
        assert rewritten(kind, record) == record


@pytest.mark.parametrize("kind", RECORDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_record_with_a_mistake_is_refused_by_both_or_by_none(kind: str, data: st.DataObject) -> None:
    content = data.draw(mistaken(GOOD[kind]))
    record = signed(kind, content)
    ranks, verify = decided(kind, record)
    assert (ranks is None) == (verify is None), (content, ranks, verify)
    if ranks is None:
        if not any(len(block) == 8 for block in content.get("blocks", [])):
            assert told(kind, rewritten(kind, record)) == told(kind, record)
    else:
        with pytest.raises((ValueError, TypeError)):
            formats.write(KEY, RECORDS[kind], JOB, {k: v for k, v in content.items() if k not in ENVELOPE})


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("control", {"size": 3}),
        ("control", {"epoch": True}),
        ("control", {"generation": "3"}),
        ("control", {"committed_at": 5}),
        ("control", {"ranks": [ENTRY | {"bytes_raw": 1.0}, ENTRY | {"rank": 1}]}),
        ("control", {"ranks": [ENTRY | {"bytes_raw": "1"}, ENTRY | {"rank": 1}]}),
        ("control", {"ranks": [ENTRY, ENTRY | {"rank": 1, "vectors": {"x": [0, 0, 0]}}]}),
        ("control", {"ranks": [ENTRY, ENTRY | {"rank": 1, "vectors": {" 1": [0, 0, 0]}}]}),
        ("control", {"ranks": [ENTRY, ENTRY | {"rank": 1, "vectors": {"1": [0, 0, 0, 0]}}]}),
        ("control", {"ranks": [ENTRY, ENTRY | {"rank": 1, "more": 1}]}),
        ("control", {"more": 1}),
        ("manifest", {"more": 1}),
        ("manifest", {"rank": -1}),
        ("manifest", {"rank": 0.0}),
        ("manifest", {"previous": False}),
        ("manifest", {"meta": []}),
        ("manifest", {"buffers": [[100]]}),
        ("manifest", {"buffers": [True]}),
        ("manifest", {"stream": "00"}),
        ("manifest", {"packs": [[PACK, 5000, True]]}),
        ("manifest", {"packs": [[PACK.replace("0", "\u0660"), 5000, 1]]}),
        ("manifest", {"blocks": [[DIGEST, 0, 0, 10, 10, "raw", 1, "", "", ""]] * 2}),
        ("manifest", {"blocks": [[DIGEST.upper(), 0, 0, 10, 10, "raw", 1, "", ""]] * 2}),
        ("manifest", {"bytes_raw": 1 << 80}),
        ("job", {"size": "2"}),
        ("job", {"command": "app.py"}),
        ("job", {"hash_seed": 1 << 32}),
        ("generation", {"generation": 1.5}),
        ("generation", {"generation": "1"}),
        ("generation", {"life": {"incarnation": "2", "mark": 1}}),
    ],
)
def test_what_one_of_two_readings_once_took_is_refused_by_both(kind: str, changes: dict[str, Any]) -> None:
    ranks, verify = decided(kind, signed(kind, GOOD[kind] | changes))
    assert ranks is not None and verify is not None


def test_what_is_nested_too_deeply_is_refused_by_both() -> None:
    body = "[" * 100_000 + "]" * 100_000
    record = signed("manifest", GOOD["manifest"] | {"meta": {"deep": 0}})
    text = record[record.index(b'","kind"') :].replace(b'{"deep":0}', b'{"deep":' + body.encode() + b"}")
    data = b'{"mac":"' + authenticated._mac(KEY, "manifest", text) + text
    ranks, verify = decided("manifest", data)
    assert ranks is not None and verify is not None


@pytest.mark.parametrize("kind", ["job", "generation"])
def test_what_a_later_version_says_more_is_passed_over(kind: str) -> None:
    assert decided(kind, signed(kind, GOOD[kind] | {"of a later version": [1]})) == (None, None)


def test_a_manifest_of_an_earlier_version_is_read() -> None:
    """It says elsewhere where an undo log ends, or nothing at all."""
    old = {name: value for name, value in GOOD["manifest"].items() if name != "files"}
    data = formats.write(KEY, formats.MANIFEST, JOB, old)
    assert decided("manifest", data) == (None, None)
    assert Manifest.decode(KEY, JOB, data, "f").files is None
    assert rewritten("manifest", data) == data
    old["meta"] = {"undo_log": {"log": "epoch-00000001-00001/rank-00000", "bytes": 7, "mac": "ab"}}
    said = Manifest.decode(KEY, JOB, formats.write(KEY, formats.MANIFEST, JOB, old), "f").files
    assert said is not None
    formats.FILES.check([said])
    assert (said["bytes"], said["uncovered"], said["boot"]) == (7, [], "")


def test_a_number_is_one_of_those_that_are_defined() -> None:
    ranks, verify = decided("manifest", signed("manifest", GOOD["manifest"] | {"packs": [[PACK, 5000, 2]]}))
    assert ranks is not None and "none of 1, 4096" in ranks
    assert verify is not None and "none of 1, 4096" in verify


def test_every_shape_has_an_annotation_or_is_refused() -> None:
    with pytest.raises(TypeError, match="no annotation for Shape"):
        schema._annotation(Shape())
