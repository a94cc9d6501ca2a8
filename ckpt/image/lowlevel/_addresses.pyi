from collections.abc import Callable
from typing import Any

def numbers(
    roots: list[object],
    ids: dict[int, Any],
    more: dict[int, Any],
    check: Callable[[Any, object], Any],
    by_value: dict[str, Any],
    /,
) -> tuple[dict[int, object], int, int]: ...
