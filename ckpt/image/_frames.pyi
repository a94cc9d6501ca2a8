from collections.abc import Callable
from types import CodeType
from typing import Any, final

@final
class Sentinel: ...

NULL: Sentinel
DEAD: Sentinel
SUPPORTED: int
JIT: int
BUILT_FOR: str

Frame = tuple[
    int,
    CodeType,
    Any,
    int,
    int,
    Any,
    int,
    list[Any],
    list[Any] | None,
    Any,
    Any,
    Any,
    BaseException | None,
    Any,
]

def walk(
    bases: tuple[CodeType, ...], skip: tuple[CodeType, ...], at_check: bool, /
) -> tuple[list[Frame] | None, Frame | None, BaseException | None, int, int, int]: ...
def slots(address: int, count: int, safe: bool, /) -> list[Any]: ...
def generator_read(gen: Any, /) -> tuple[int, Any, int, list[Any], list[Any], BaseException | None]: ...
def generator_fill(
    gen: Any, state: int, locals: list[Any], stack: list[Any], lasti: int, exc: BaseException | None, /
) -> None: ...
def run(records: list[Any], depth: int, blocked: tuple[int, ...] | None, /) -> Any: ...
def request(callable: Callable[[], object], /) -> bool: ...
def fork(noted: bytes = b"", ours: tuple[int, ...] = (), /) -> int: ...
def unusual(values: list[Any], space: dict[str, Any], names: tuple[str, ...], /) -> list[Any]: ...
def born(fd: int, /) -> int: ...
def note_moment() -> bytes: ...
def pdeathsig(signal: int, /) -> None: ...
def allow_c_depth(levels: int, /) -> int: ...
def lookup(type: type, name: str, /) -> Any: ...
