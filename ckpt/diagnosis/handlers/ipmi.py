"""A management controller by IPMI: power and sensors. `ipmitool` as a child, since it can be killed.

    address    HOST or HOST:PORT of the controller
    sensor     a regular expression for the names of sensors, small and capital letters alike

    values     power: "on" or "off"
               of the sensors that match: highest, lowest, count (those with a number);
               failed: "yes" or "no" (those with a state instead of a number)

Sensors that say "na" or nothing count as not there, and so does a fan at 0 while the power is off. The password
goes by a pipe. Only commands that read are sent.
"""

from __future__ import annotations

import csv
import math
import os
import re
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from ckpt.diagnosis.errors import NoAnswer
from ckpt.diagnosis.handlers.shared import Once, host_and_port

__all__ = ["Reading", "ask", "parse", "select"]

_PORT = 623
_STATES = ("ok", "ns", "nc", "cr", "nr", "us", "uc", "lnc", "lcr", "lnr", "unc", "ucr", "unr")
_FAILED = re.compile(
    r"fail|fault|uncorrectable|ierr|thermal trip|config(uration)? error|(ac|input) lost|(?<!non-)critical",
    re.I,
)
_NOTHING = re.compile(r"^(na|no reading|disabled|not readable|ns|event-only|)$", re.I)
_once = Once()


@dataclass(frozen=True, slots=True)
class Reading:
    """One sensor: a number with its unit, or a state in words."""

    name: str
    number: float | None
    unit: str
    state: str


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """One session for the power, one for the sensors, however many questions. Raises NoAnswer."""
    address = str(arguments["address"])
    if secret is None:
        raise NoAnswer(f"{address}: no credentials for ipmi")
    deadline = time.monotonic() + within_s
    power = _once((address, "power"), lambda: _power(address, secret, deadline))
    values: dict[str, float | str] = {"power": power}
    if pattern := arguments.get("sensor"):
        readings = _once((address, "sensors"), lambda: _sensors(address, secret, deadline))
        values |= select(readings, str(pattern), power)
    return values


def _power(address: str, secret: dict[str, str], deadline: float) -> str:
    said = _run(address, secret, ["chassis", "power", "status"], deadline)
    found = re.search(r"Chassis Power is (on|off)", said)
    if found is None:
        raise NoAnswer(f"{address} tells no power state")
    return found[1]


def _sensors(address: str, secret: dict[str, str], deadline: float) -> list[Reading]:
    return parse(_run(address, secret, ["-c", "sdr", "elist", "all"], deadline))


def _run(address: str, secret: dict[str, str], words: list[str], deadline: float) -> str:
    host, port = host_and_port(address, _PORT)
    reading, writing = os.pipe()
    try:
        os.write(writing, secret.get("password", "").encode() + b"\n")
        os.close(writing)
        command = ["ipmitool", "-I", "lanplus", "-R", "1", "-N", "1", "-H", host, "-p", str(port)]
        command += ["-U", secret.get("user", ""), "-f", f"/dev/fd/{reading}"]
        command += ["-C", secret["cipher"]] if "cipher" in secret else []
        left_s = deadline - time.monotonic()
        done = subprocess.run(
            [*command, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max(left_s, 0.01),
            pass_fds=[reading],
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{address} does not answer in time", silent=True) from None
    except OSError as error:
        raise NoAnswer(f"ipmitool cannot be started: {error.strerror}") from None
    finally:
        os.close(reading)
    if done.returncode:
        first = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise NoAnswer(f"{address}: {first or f'ipmitool ended with {done.returncode}'}", silent=True)
    return done.stdout


def parse(printed: str) -> list[Reading]:
    """The sensors in `ipmitool -c sdr elist all`; lines that are none of them are left out."""
    found = []
    for row in csv.reader(printed.splitlines()):
        if len(row) < 3:
            continue
        name = row[0].strip()
        try:
            number = float(row[1])
            if not math.isfinite(number) or row[3:4] == ["ns"]:  # "ns": there is no such part
                continue
        except ValueError:
            state = next((text for text in reversed(row[1:]) if text.strip().lower() not in _STATES), "")
            if not _NOTHING.match(row[1].strip()) and not _NOTHING.match(state.strip()):
                found.append(Reading(name, None, "", state.strip()))
            continue
        found.append(Reading(name, number, row[2].strip(), ""))
    return found


def select(readings: list[Reading], pattern: str, power: str) -> dict[str, float | str]:
    """What the sensors say whose names match."""
    chosen = [reading for reading in readings if re.search(pattern, reading.name, re.IGNORECASE)]
    numbers = [
        reading.number
        for reading in chosen
        if reading.number is not None and not (power == "off" and reading.number == 0)
    ]
    states = [reading.state for reading in chosen if reading.number is None]
    values: dict[str, float | str] = {}
    if numbers:
        values |= {"highest": max(numbers), "lowest": min(numbers), "count": float(len(numbers))}
    if states:
        values["failed"] = "yes" if any(_FAILED.search(state) for state in states) else "no"
    return values
