"""JSON that somebody else has written: whatever the text holds, it is a value or a ValueError. Pure.

The standard parser also raises RecursionError, for text that is nested a thousand times. Files, packets and lines are
read with this one, so that a reader has one exception to think of.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse"]


def parse(text: str | bytes | bytearray) -> Any:
    """The value. Raises ValueError for anything that is no JSON, is nested too deeply or is no UTF-8."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
