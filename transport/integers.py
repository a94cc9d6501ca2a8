"""Slots of a class that hold integers of 64 bits instead of objects.

    @integers("first", "end")
    class Piece:
        __slots__ = ("data", "end", "first")

The C modules of ckpt.transport.driver read and write such numbers where they lie: no object is made for a change, and
nothing can fail. To Python they are attributes as before. They begin as 0; to set one to a value that does not fit raises
OverflowError, to what is not an integer TypeError. Where the C module is missing the slots stay slots of objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

try:
    from ckpt.transport._integers import hold_integers
except ImportError:

    def hold_integers(_cls: type, _names: tuple[str, ...], /) -> None:
        """Without the C module: nothing."""


Class = TypeVar("Class", bound=type)

END_OF_NUMBERS = 1 << 62
"""Epochs, sequence numbers, charges and times stay below this, so that a sum of two fits into 64 bits."""


def integers(*names: str) -> Callable[[Class], Class]:
    """A decorator: the slots of these names, which the class itself has, hold integers of 64 bits.

    It is for a class that has no instances yet. Raises TypeError for a name that is no slot of the class.
    """

    def decorate(cls: Class) -> Class:
        hold_integers(cls, names)
        return cls

    return decorate
