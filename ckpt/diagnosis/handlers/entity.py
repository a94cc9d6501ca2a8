"""Fans, power supplies and temperatures of a switch, from what its agent tells of its parts. Pure.

Sources: RFC 6933 (ENTITY-MIB: which parts there are, and what is inside of what), RFC 3433 (ENTITY-SENSOR-MIB: their
sensors), RFC 4268 (ENTITY-STATE-MIB: are they able to work).

    values     slowest_fan (RPM); fan_failed: "yes" or "no"; supply_failed: "yes" or "no"; hottest (degrees C)

A fan has failed if its state is disabled, which means: not able to work. A supply has failed if its state is that, or if
it has a voltage of 0. A sensor that is not operational is broken itself, and says nothing of its part; so does a part
whose state is not told.

Not here: asking (`snmp`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["PARTS", "SENSORS", "STATES", "from_mib"]

PARTS: Final = "1.3.6.1.2.1.47.1.1.1.1"
SENSORS: Final = "1.3.6.1.2.1.99.1.1.1"
STATES: Final = "1.3.6.1.2.1.131.1.1.1"
_INSIDE, _CLASS = "4", "5"
_SUPPLY, _FAN = "6", "7"
_TYPE, _SCALE, _PRECISION, _VALUE, _STATUS = "1", "2", "3", "4", "5"
_VOLTS, _RPM, _CELSIUS = ("3", "4"), "10", "8"
_UNITS, _OK = 9, "1"
_OPER, _DISABLED, _ENABLED = "3", "2", "3"


def from_mib(
    parts: Mapping[str, str], sensors: Mapping[str, str], states: Mapping[str, str]
) -> dict[str, float | str]:
    """The values, of the three tables: `COLUMN.INDEX` → text. Empty: nothing is told of fans and supplies."""
    found: dict[str, float | str] = {}
    speeds, volts, heats = [], [], []
    for index in (name.partition(".")[2] for name in sensors if name.startswith(f"{_TYPE}.")):
        kind, value = sensors[f"{_TYPE}.{index}"], _reading(sensors, index)
        if value is not None and kind == _RPM:
            speeds.append(value)
        elif value is not None and kind == _CELSIUS:
            heats.append(value)
        elif value is not None and kind in _VOLTS and _SUPPLY in _around(parts, index):
            volts.append(value)
    if speeds:
        found["slowest_fan"] = min(speeds)
    if heats:
        found["hottest"] = max(heats)
    for name, kind in (("fan_failed", _FAN), ("supply_failed", _SUPPLY)):
        told = [
            states.get(f"{_OPER}.{column.partition('.')[2]}")
            for column, text in parts.items()
            if column.startswith(f"{_CLASS}.") and text == kind
        ]
        bad = [each == _DISABLED for each in told if each in (_DISABLED, _ENABLED)]
        bad += [each == 0 for each in volts if kind == _SUPPLY]
        if bad:
            found[name] = "yes" if any(bad) else "no"
    return found


def _reading(sensors: Mapping[str, str], index: str) -> float | None:
    """The value of a sensor, in its unit; None: it has none."""
    texts = [sensors.get(f"{column}.{index}", "") for column in (_VALUE, _SCALE, _PRECISION)]
    if sensors.get(f"{_STATUS}.{index}") != _OK or not all(text.lstrip("-").isdecimal() for text in texts):
        return None
    value, scale, precision = map(int, texts)
    # each scale is a thousand times of the one before it; units are the ninth
    return float(value * 10.0 ** (3 * (scale - _UNITS) - precision))


def _around(parts: Mapping[str, str], index: str) -> Iterator[str]:
    """The class of a part, and of all in which it is."""
    seen: set[str] = set()
    while index not in seen and f"{_CLASS}.{index}" in parts:
        seen.add(index)
        yield parts[f"{_CLASS}.{index}"]
        index = parts.get(f"{_INSIDE}.{index}", "")
