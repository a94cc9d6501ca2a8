"""What belongs to the process and to no communicator: keys of attributes, error codes of the program's own.

MPI makes these global, so there is one `ProcessState` per process. Its content travels in the process image
with the engine's; loading an image puts it into the one of the new process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckpt.transport.records import dataclass, field

KEYVAL_FIRST = 1 << 16
"""Keys of the program's own attributes start here; predefined ones are below."""

ERROR_FIRST = 0x3FFFFFFF + 1
"""Error classes and codes of the program's own start here (ERR_LASTCODE + 1)."""


@dataclass(slots=True)
class Keyval:
    """One attribute key: `kind` is the class of objects it is for."""

    kind: str
    copy: Callable[..., Any] | bool | None
    delete: Callable[..., Any] | None
    nopython: bool


@dataclass(slots=True)
class ProcessState:
    """Keys by number; error classes and codes by number (a class is its own class)."""

    keyvals: dict[int, Keyval] = field(default_factory=dict)
    next_keyval: int = KEYVAL_FIRST
    error_classes: dict[int, int] = field(default_factory=dict)
    error_texts: dict[int, str] = field(default_factory=dict)
    next_error: int = ERROR_FIRST
    attached: Any = None
    """The buffer the program attached for buffered sends: kept, never used."""
    codec: Any = None
    """Settings of `MPI.pickle` (functions, protocol, threshold), when the program changed them."""
    interned: dict[Any, Any] = field(default_factory=dict)
    """Objects that a program may ask for again and expects to be the same."""

    def content(self) -> dict[str, Any]:
        """Everything, for an image."""
        return {name: getattr(self, name) for name in self.__slots__}

    def adopt(self, content: dict[str, Any]) -> None:
        """Become what an image held."""
        for name, value in content.items():
            setattr(self, name, value)


_STATE = ProcessState()


def process_state() -> ProcessState:
    """The one of this process."""
    return _STATE
