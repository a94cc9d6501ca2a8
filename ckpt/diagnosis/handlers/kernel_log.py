"""How often the kernel has said something lately, from /dev/kmsg.

pattern    a regular expression
seconds    how far to look back; default 300

values     matches (number), last (the newest line that matches; not there without one)
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["ask", "count"]

_SECONDS = 300.0
_RECORD = 8192  # of one read, at most


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Read all of the log. Raises NoAnswer where it cannot be read (it needs root, or kernel.dmesg_restrict=0)."""
    deadline = time.monotonic() + within_s
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise NoAnswer(f"/dev/kmsg: {error.strerror}") from None
    records = []
    try:
        while time.monotonic() < deadline:
            try:
                records.append(os.read(log, _RECORD).decode("utf-8", "replace"))
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # overwritten meanwhile; the next read goes on with the oldest that is there
            except OSError as error:
                raise NoAnswer(f"/dev/kmsg: {error.strerror}") from None
    finally:
        os.close(log)
    since_us = (time.clock_gettime(time.CLOCK_MONOTONIC) - float(arguments.get("seconds", _SECONDS))) * 1e6
    return count(records, str(arguments["pattern"]), since_us)


def count(records: list[str], pattern: str, since_us: float) -> dict[str, float | str]:
    """`records`: "priority,number,microseconds since the boot,flags;text", continued in lines that begin with a blank.
    Raises re.error for a senseless pattern."""
    search = re.compile(
        pattern
    ).search  # also where the log has nothing: else a senseless pattern was "clear"
    matches, last = 0, ""
    for record in records:
        head, _, text = record.partition(";")
        fields = head.split(",")
        if len(fields) < 3 or not fields[2].isdecimal() or int(fields[2]) < since_us:
            continue
        line = text.partition("\n")[0]
        if search(line):
            matches, last = matches + 1, line
    values: dict[str, float | str] = {"matches": float(matches)}
    return values | ({"last": last} if matches else {})
