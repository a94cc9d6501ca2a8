"""The Python call stack as data: capture it, describe it, resume it.

Skeleton with the final signatures; the theory of operation comes with the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Literal

from ckpt.image.errors import Refused

__all__ = [
    "FrameRecord",
    "Refused",
    "Stack",
    "available",
    "capture",
    "describe_main",
    "resume",
    "run_base",
]

Mode = Literal["L", "V", "R", "I"]


@dataclass(slots=True)
class FrameRecord:
    """One frame as picklable content. Lists may hold `_frames.NULL` (an empty slot), a singleton pickled by reference.

    func is None exactly for module-level code, which is given by code, globals_ and locals_ns instead.
    """

    func: FunctionType | None
    code: CodeType | None
    globals_: dict[str, Any] | None
    locals_ns: Any
    locals: list[Any]
    stack: list[Any]
    lasti: int
    mode: Mode
    value: Any
    gen: Any
    exc: BaseException | None
    until: int = 0


@dataclass(slots=True)
class Stack:
    """A captured call stack, outermost frame first, and the exception being handled below the outermost frame."""

    frames: list[FrameRecord] = field(default_factory=list)
    exc: BaseException | None = None
    recursion_depth: int = 0
    recursion_limit: int = 1000

    def describe(self) -> list[dict[str, Any]]:
        """[{"file", "line", "function"}], outermost first."""
        raise NotImplementedError


def available() -> tuple[bool, str]:
    """Whether this interpreter's frames can be captured, and if not, why."""
    raise NotImplementedError


def capture(
    *, at: Literal["call", "check"], skip: Collection[CodeType] = (), value: object = None
) -> Stack:
    """The stack of the calling thread, innermost library frames left out. Raises Refused."""
    raise NotImplementedError


def describe_main(thread_id: int) -> str:
    """ "file:line function" of the innermost frame of that thread."""
    raise NotImplementedError


def resume(stack: Stack) -> object:
    """Rebuild the frames and run them to the end; the result of the outermost frame. Empties `stack`."""
    raise NotImplementedError


def run_base(fn: Callable[..., Any], *args: Any) -> Any:
    """Call fn(*args) as the outermost frame that is captured; use run_base(exec, code, namespace) for a script."""
    return fn(*args)
