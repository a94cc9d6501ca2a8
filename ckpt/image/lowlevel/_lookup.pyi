from collections.abc import Callable
from typing import Any, final

MISFIT: str  # the struct of the interpreter whose layout differs from the one this module was compiled for; "": none

@final
class Finder:
    def __new__(
        cls,
        ids: dict[int, Any],
        more: dict[int, Any],
        check: Callable[[Any, object], Any],
        special: Callable[[Any], Any],
        table: Callable[[Any], Any],
        /,
    ) -> Finder: ...
    def __call__(self, obj: object, /) -> Any: ...

@final
class ModuleStates:
    def changed(self, modules: dict[str, Any], /) -> list[str]: ...

def untrack_constants(objects: list[Any], /) -> None: ...
def owners(
    attributes: dict[str, Any], name: str, only_functions: bool, /
) -> list[tuple[str, Any, dict[str, Any] | None]]: ...
def same(noted: dict[str, Any], owner: dict[str, Any] | type, /) -> bool: ...
def patches(modules: dict[str, Any], by_value: dict[str, Any], /) -> list[tuple[str, str, Any]]: ...
def layout(obj: set[Any] | frozenset[Any], /) -> tuple[list[Any], bytes, bytes, int, int]: ...
def restore(
    obj: set[Any] | frozenset[Any],
    members: list[Any],
    places: bytes,
    hashes: bytes,
    mask: int,
    finger: int,
    /,
) -> bool: ...
def forget_hashes(keys: list[Any], /) -> None: ...
def new_frozenset() -> frozenset[Any]: ...
