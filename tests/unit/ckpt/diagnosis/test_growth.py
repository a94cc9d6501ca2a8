"""What a counter says, beside what it was at the start of the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt.diagnosis import library
from ckpt.diagnosis.errors import BadModel
from ckpt.diagnosis.growth import grown, only_counters, without_counters
from ckpt.diagnosis.handlers.face import HANDLERS
from ckpt.diagnosis.models import Query, parse

SHARE = Query(handler="netlink", value="bad", per="all", grown=True)
COUNT = Query(handler="netlink", value="bad", grown=True)


@pytest.mark.parametrize(
    ("now", "then", "share", "count"),
    [
        ({"bad": 0.0, "all": 9.0}, {"bad": 0.0, "all": 0.0}, 0, 0),
        ({"bad": 9.0, "all": 9.0}, {"bad": 0.0, "all": 0.0}, 0, 9),
        ({"bad": 30.0, "all": 10_100.0}, {"bad": 20.0, "all": 100.0}, 1000, 10),
        ({"bad": 30.0, "all": 100.0}, {"bad": 20.0, "all": 100.0}, 1_000_000, 10),
        ({"bad": 30.0, "all": 105.0}, {"bad": 20.0, "all": 100.0}, 1_000_000, 10),
        ({"bad": 3.0, "all": 10.0}, {"bad": 20.0, "all": 100.0}, "bad has begun anew since the start of the job", None),
        ({"bad": 30.0, "all": 10.0}, {"bad": 20.0, "all": 100.0}, "all has begun anew since the start of the job", 10),
        ({"bad": 30.0}, {"bad": 20.0, "all": 100.0}, "does not tell all", 10),
        ({"bad": "x", "all": 1.0}, {"bad": 20.0, "all": 1.0}, "does not tell bad", None),
        ({"bad": 30.0, "all": 200.0}, {}, "did not tell bad at the start of the job", None),
    ],
)  # fmt: skip
def test_by_how_much_it_has_grown(
    now: dict[str, float], then: dict[str, float], share: float | str, count: float | None
) -> None:
    answer = grown(SHARE, "n1", now, then)
    assert (answer.reason if answer.value is None else answer.value) == share
    assert not answer.silent or answer.value is not None
    assert grown(COUNT, "n1", now, then).value == count


def test_models_with_and_without() -> None:
    models = library.load()
    every, some, others = (
        {f"{m.name}.{e.name}" for m in found for e in m.element}
        for found in (models, only_counters(models), without_counters(models))
    )
    assert some | others == every and not some & others
    assert {"link.damages-to-host", "interface.drops", "port.fails-to-send", "trunk.damages"} <= some
    assert {"link.speeds-differ", "interface.shut", "trunk.dark"} <= others


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    assert library.counters(str(path)) is None
    for text in ("[1]", "{", '{"a": 1}', '{"a": {"b": "x"}}'):
        path.write_text(text)
        assert library.counters(str(path)) is None
    path.write_text('{"a": {"b": 1}}')
    assert library.counters(str(path)) == {"a": {"b": 1.0}}


TRUNK = """\
name = "x"
text = "x"
place = "cable"
errors = ["silent"]
[[element]]
name = "y"
text = "y"
queries = [
    { handler = "netlink", on = "switch", value = "speed", device = "a" },
    { handler = "netlink", on = "far", value = "speed", device = "b" },
]
ends_agree = true
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("ends_agree = true", 'ends_agree = true\nequal = "x"', "1:5: ends_agree is in place of a threshold"),
        ('on = "far"', 'on = "switch"', "1:5: ends_agree needs queries of two ends: add on"),
        ('value = "speed", device = "a"', 'value = "speed", per = "x", device = "a"', "1:5: per is for counters: add grown"),
    ],
)  # fmt: skip
def test_bad_models(old: str, new: str, complaint: str) -> None:
    parse(TRUNK, "1", HANDLERS)
    with pytest.raises(BadModel, match=complaint):
        parse(TRUNK.replace(old, new), "1", HANDLERS)
