"""Parses JSON that another process has written: the result is a value or a ValueError, whatever the text holds. Pure.

The parser of the standard library also raises RecursionError, for text that is nested a thousand times. Files, packets
and log lines are read with `parse`, so that a reader has to handle one exception only.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse"]


def parse(text: str | bytes | bytearray) -> Any:
    """Return the value of the JSON `text`. Raises ValueError if the text is not JSON, not UTF-8, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
