from collections.abc import Callable
from typing import Any

def install(callback: Callable[[str, tuple[Any, ...], bool], None] | None, /) -> None: ...
