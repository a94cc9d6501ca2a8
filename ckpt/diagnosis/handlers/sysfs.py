"""Numbers in files of the kernel: EDAC, thermal zones, fans and temperatures of hwmon, InfiniBand.

files     a pattern, such as /sys/devices/system/edac/mc/mc*/ue_count; several in a list
scale     the numbers are multiplied with it; default 1

values    highest, lowest, sum, count (of files with a number); text: of the first file
          worst: the first text in the order of the alphabet, as of "1: DOWN" and "4: ACTIVE"
"""

from __future__ import annotations

import glob
import re
from typing import Any

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["ask"]

_MOST_FILES = 20_000


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Read them all. Raises NoAnswer if there is none, or none that can be read."""
    patterns = arguments["files"]
    patterns = [patterns] if isinstance(patterns, str) else patterns
    scale = float(arguments.get("scale", 1))
    paths = sorted({path for pattern in patterns for path in glob.iglob(str(pattern))})[:_MOST_FILES]
    if not paths:
        raise NoAnswer(f"this kernel has no {' or '.join(map(str, patterns))}")
    texts: list[str] = []
    why = ""
    for path in paths:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                texts.append(file.read(4096).strip())
        except OSError as error:
            why = f"{path}: {error.strerror}"
    if not texts:
        raise NoAnswer(why)
    values: dict[str, float | str] = {"text": texts[0]}
    numbers = [float(each) * scale for each in texts if re.fullmatch(r"-?\d+(\.\d+)?", each)]
    if numbers:
        values |= {
            "highest": max(numbers),
            "lowest": min(numbers),
            "sum": sum(numbers),
            "count": float(len(numbers)),
        }
    values["worst"] = min(texts)
    return values
