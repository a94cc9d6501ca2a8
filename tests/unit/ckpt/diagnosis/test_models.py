"""Files of fault models: what is accepted, and every bad input with its line and its remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckpt.diagnosis.errors import BadModel
from ckpt.diagnosis.handlers import face
from ckpt.diagnosis.handlers.face import HandlerFace
from ckpt.diagnosis.models import Model, check, parse, reference

HANDLERS = {
    "ipmi": HandlerFace(
        needs=frozenset({"sensor"}),
        gives={"lowest": "sensor", "highest": "sensor"},
        patterns=frozenset({"sensor"}),
    ),
    "tcp": HandlerFace(
        needs=frozenset({"address"}), takes=frozenset({"port"}), gives={"answer": "", "open": "port"}
    ),
    "run": HandlerFace(
        needs=frozenset({"run"}),
        takes=frozenset({"pattern"}),
        lists=frozenset({"run"}),
        gives={"exit": "", "number": "pattern"},
        patterns=frozenset({"pattern"}),
    ),
}
FAN = """\
name = "fan"
text = "the fans of {host}"
place = "host"
errors = ["silent"]

[[element]]
name = "speed"
text = "turns too slowly"
queries = [{ handler = "ipmi", value = "lowest", sensor = "Fan" }]
low = 2000
unit = "RPM"
"""
CPU = """\
name = "cpu"
text = "the processors of {host}"
place = "host"
errors = ["silent"]

[[element]]
name = "heat"
text = "too hot"
queries = [
    { handler = "ipmi", value = "highest", sensor = "CPU Temp" },
]
high = 85
unit = "°C"
caused_by = ["fan.speed"]
"""


def read(text: str, source: str = "fan.toml") -> Model:
    return parse(text, source, HANDLERS)


def refusal(*texts: str) -> str:
    with pytest.raises(BadModel) as caught:
        check([read(text, f"{number}.toml") for number, text in enumerate(texts, 1)])
    return str(caught.value)


def test_a_model_says_what_it_says() -> None:
    fan, cpu = read(FAN), read(CPU)
    check([fan, cpu])
    [speed] = fan.element
    assert (fan.name, fan.place, fan.side, speed.low, speed.unit) == ("fan", "host", "both", 2000, "RPM")
    assert speed.queries[0].arguments == {"sensor": "Fan"}
    assert fan.errors_of(speed) == ("silent",)
    assert fan.errors_of(speed.model_copy(update={"errors": ("reset",)})) == ("reset",)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            'handler = "ipmi"',
            'handler = "ipni"',
            "1.toml:9: speed: unknown handler 'ipni'; there are ipmi, run, tcp",
        ),
        ('unit = "RPM"\n', "", '1.toml:6: a threshold without a unit: add, for example, unit = "RPM"'),
        ("low = 2000\n", "", "1.toml:6: no threshold: give high, low or equal"),
        ("low = 2000", "low = inf", "1.toml:6: a threshold that is no finite number: give one"),
        ("low = 2000", "low = 2\nhigh = 1", "1.toml:6: low is above high"),
        ("low = 2000", 'low = "slow"', "1.toml:10: low: Input should be a valid number"),
        ("low = 2000", "low 2000", "1.toml:10: this is no TOML: "),
        ("low = 2000", "lowest = 2000", "1.toml:10: lowest: unknown key; did you mean low?"),
        ('text = "turns too slowly"\n', "", "1.toml:6: text is missing; add it"),
        ('place = "host"', 'place = "room"', "1.toml:3: place: Input should be 'interface', 'host'"),
        ('name = "fan"', 'name = "Fan 1"', "1.toml:1: name: String should match pattern"),
        ('name = "fan"', 'name = "fan"\nsource = "x"', "1.toml:2: source: unknown key; remove it"),
        (
            'errors = ["silent"]',
            'errors = ["ETIMEDOUT"]',
            "1.toml:4: errors: 'ETIMEDOUT' is unknown; known are local,",
        ),
        ('errors = ["silent"]', "errors = []", "1.toml:4: errors: Tuple should have at least 1 item"),
        (', sensor = "Fan"', "", "1.toml:9: speed: ipmi needs sensor; add it"),
        ('"lowest"', '"lowst"', "1.toml:9: speed: ipmi has no value 'lowst'; did you mean lowest?"),
        ('"lowest"', '"x"', "1.toml:9: speed: ipmi has no value 'x'; there are highest, lowest"),
        (
            'sensor = "Fan"',
            'sensor = "Fan", grown = true, per = "hours"',
            "1.toml:9: speed: ipmi has no value 'hours'; there are highest, lowest",
        ),
        (
            '"ipmi", value = "lowest", sensor = "Fan"',
            '"run", value = "number", run = ["fans"]',
            "1.toml:9: speed: run has number only with pattern; add pattern = …",
        ),
        (
            'sensor = "Fan"',
            'sensor = "*Fan*"',
            "1.toml:9: speed: sensor is no regular expression: nothing to repeat",
        ),
        (
            ', sensor = "Fan"',
            ', sensor = "x", bus = 1',
            "1.toml:9: speed: ipmi does not take bus; it takes sensor",
        ),
        (
            '"ipmi", value = "lowest", sensor = "Fan"',
            '"run", value = "exit", run = "fans --speed"',
            '1.toml:9: speed: run is a list of words: write run = ["COMMAND", "WORD"]',
        ),
        (
            '"ipmi", value = "lowest", sensor = "Fan"',
            '"run", value = "exit", run = []',
            "1.toml:9: speed: run is a list of words",
        ),
        (
            '"ipmi", value = "lowest", sensor = "Fan"',
            '"run", value = "number", run = ["fans"], pattern = "speed: ([0-9]+"',
            "1.toml:9: speed: pattern is no regular expression: missing )",
        ),
        ("low = 2000", "low = 2000\nsymptom = true\nproves = true", "1.toml:6: a symptom proves nothing"),
        (
            "low = 2000",
            'low = 2000\ncaused_by = ["speed"]',
            "1.toml:11: speed is caused by 'speed', which is unknown;",
        ),
        ("low = 2000", 'low = 2000\ncaused_by = ["fan.sped"]', "which is unknown; did you mean fan.speed?"),
        (
            "low = 2000",
            'low = 2000\nhides = ["switch"]',
            "1.toml:11: speed hides 'switch', which is unknown; remove it",
        ),
        (
            "low = 2000",
            'low = 2000\nhides = ["fan@behind"]',
            "1.toml:11: hides: 'fan@behind' is no name of a fault; write",
        ),
        ("low = 2000", 'low = 2000\nhides = ["*.speed"]', "'*.speed' is no name of a fault"),
        (
            "low = 2000",
            'low = 2000\ncaused_by = ["fan.speed"]',
            "1.toml:11: causes go round in a circle: fan.speed ← fan.speed;",
        ),
    ],
)
def test_an_error_has_a_line_and_a_remedy(old: str, new: str, complaint: str) -> None:
    assert FAN.count(old) == 1
    assert complaint in refusal(FAN.replace(old, new))


def test_two_elements_of_one_name() -> None:
    again = FAN + FAN[FAN.index("[[element]]") :]
    assert "1.toml:12: two elements are called speed; rename one of them" in refusal(again)


def test_two_models_of_one_name() -> None:
    assert "2.toml:1: there is a model fan in 1.toml, too; rename or remove one of them" in refusal(FAN, FAN)


def test_causes_in_a_circle_over_several_files() -> None:
    fan = FAN.replace("low = 2000", 'low = 2000\ncaused_by = ["power"]')
    power = FAN.replace('"fan"', '"power"').replace("low = 2000", 'low = 2000\ncaused_by = ["cpu.heat@any"]')
    said = refusal(fan, CPU, power)
    assert (
        "causes go round in a circle: fan.speed ← power.speed ← cpu.heat ← fan.speed; take one of these out"
        in said
    )
    assert said.startswith("1.toml:11:")


def test_lines_are_counted_past_long_texts() -> None:
    text = FAN.replace('"the fans of {host}"', '"""\n[[element]]\nlow = 1\n"""').replace(
        "low = 2000", 'low = "x"'
    )
    assert "1.toml:13: low: " in refusal(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fan", ("fan", None, "same")),
        ("fan.speed", ("fan", "speed", "same")),
        ("*@beyond", ("*", None, "beyond")),
        ("fan.speed@any", ("fan", "speed", "any")),
    ],
)
def test_names_of_faults(text: str, expected: tuple[str, str | None, str]) -> None:
    found = reference(text)
    assert found is not None
    assert (found.model, found.element, found.where) == expected


@pytest.mark.parametrize(
    "text", ["", "Fan", "fan.", ".speed", "*.speed", "fan@", "fan@near", "fan speed", "fan.a.b"]
)
def test_what_is_no_name(text: str) -> None:
    assert reference(text) is None


@pytest.mark.parametrize("name", face.HANDLERS)
def test_the_document_has_all_values_of_a_handler(name: str) -> None:
    document = (Path(__file__).parents[4] / "docs/diagnosis.md").read_text()
    [row] = re.findall(rf"^\| `{name}` \|.*\|([^|]*)\|$", document, re.MULTILINE)
    assert set(re.findall(r"`([a-z_]+)`", row)) == set(face.HANDLERS[name].gives)
