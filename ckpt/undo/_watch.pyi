from collections.abc import Callable
from typing import Any

LEFT_ALONE: tuple[str, ...]
LEADS: int

class LogEnd:
    mac: str
    nbytes: int
    records: int
    reserved_bytes: int
    fd: int
    is_torn: bool
    def __init__(self, key: bytes, spare_bytes: int) -> None: ...

class FastPath:
    def __init__(self) -> None: ...
    def begin(
        self,
        end: LogEnd,
        new_after_ns: int,
        names: dict[str, Any],
        contents: dict[Any, bool],
        old: set[Any],
        linked: set[Any],
        written_as: set[Any],
        mixed: set[Any],
        changes: dict[str, int],
        /,
    ) -> None: ...
    def settle(self, new_after_ns: int, /) -> None: ...
    def forget(self) -> None: ...
    def note(self, path: str, canonical: str, standing: int, is_unsteady: bool, /) -> None: ...

def install(
    callback: Callable[[str, tuple[Any, ...], bool], None] | None, fast_path: FastPath | None, /
) -> None: ...
def before_opening(function: Callable[[str, Any], object] | None, /) -> None: ...
def mac(key: bytes, before: str, text: bytes, /) -> str: ...
def set_ends(rows: list[tuple[int, int, int]], /) -> None: ...
def set_patience(ns: int, /) -> None: ...
