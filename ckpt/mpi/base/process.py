"""MPI state of the process that belongs to no communicator: keys of attributes, the program's error codes.

MPI makes this state global, so there is one `ProcessState` per process. A process image holds its content, next to the
engine's state. A restart puts the content into the `ProcessState` of the new process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckpt.transport.records import dataclass, field

KEYVAL_FIRST = 1 << 16
"""The first key number for the program's attributes; predefined attributes have smaller numbers."""

ERROR_FIRST = 0x3FFFFFFF + 1
"""The first number for error classes and codes that the program adds (ERR_LASTCODE + 1)."""


@dataclass(slots=True)
class Keyval:
    """An attribute key. `kind` is the kind of object the key is for ("Comm", "Datatype", "Win")."""

    kind: str
    copy: Callable[..., Any] | bool | None
    delete: Callable[..., Any] | None
    nopython: bool


@dataclass(slots=True)
class ProcessState:
    """Attribute keys by number; the class of each error code by code (a class is its own class); their texts."""

    keyvals: dict[int, Keyval] = field(default_factory=dict)
    next_keyval: int = KEYVAL_FIRST
    error_classes: dict[int, int] = field(default_factory=dict)
    error_texts: dict[int, str] = field(default_factory=dict)
    next_error: int = ERROR_FIRST
    attached: Any = None
    """The buffer that the program attached for buffered sends. Detach_buffer returns it; sends do not use it."""
    codec: Any = None
    """Settings of `MPI.pickle` (dumps, loads, protocol, threshold); None unless the program changed them."""
    interned: dict[Any, Any] = field(default_factory=dict)
    """Objects of which the process has one, by key: calls that ask again must get the same object."""

    def content(self) -> dict[str, Any]:
        """All fields by name, for the process image."""
        return {name: getattr(self, name) for name in self.__slots__}

    def adopt(self, content: dict[str, Any]) -> None:
        """Set the fields from `content` of an image."""
        for name, value in content.items():
            setattr(self, name, value)


_STATE = ProcessState()


def process_state() -> ProcessState:
    """The ProcessState of this process."""
    return _STATE
