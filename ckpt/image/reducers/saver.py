"""What a reducer may ask of the pickler that calls it, and what a reducer is.

A *reducer* takes one object apart: ``reduce(saver, obj)`` returns what ``__reduce_ex__`` returns (the documentation of
:mod:`pickle` has the tuple), or ``NotImplemented`` for the C pickler's own way. It never changes the object. The contract in
full is that of :mod:`ckpt.image.reducers.by_value`; :class:`ckpt.image.pickling.pickler.ImagePickler` is what really calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ckpt.image.frames.call_paths import CachedCall
    from ckpt.image.modules.definitions import Definitions
    from ckpt.image.modules.references import References

__all__ = ["Reducer", "Saver"]


class Saver(Protocol):
    """One pickling of one image."""

    references: References
    """Which modules and objects are saved by reference."""

    definitions: Definitions
    """Classes and functions of installed packages that no name leads to."""

    is_disposable: bool
    """This process is a forked child, whose objects may be used up to see what is in them."""

    main_thread_id: int | None

    running_generators: list[Any] | None
    """Generators on the captured stack."""

    running: set[int]
    """Ids of the objects of which a method is on the captured stack."""

    cached_calls: list[CachedCall]
    """The calls of caches on the stack that will be made again."""

    is_raw: dict[type, bool]
    """Classes of installed packages with a ``__reduce__``: are instances, also of their subclasses, saved past it?"""

    slots: dict[type, list[tuple[type, str, Any]]]
    """``(owner, name, descriptor)`` of the slots of each class that was met."""

    owned: set[object]
    """Descriptors of what libraries have opened, and open again: numbers, or device and inode of the file."""

    shared: dict[object, Any]
    """What several reducers of a library have in common, by a key of theirs."""

    memory: dict[int, Any]
    """Address of memory: the array or storage that was met there first."""

    def copy_of_memo(self) -> dict[int, tuple[int, Any]]:
        """Id of each object that has been saved so far → its number, and the object."""

    def defer(self, function: Callable[..., object], *args: Any) -> None:
        """``function(*args)`` is pickled last, and called when everything has been loaded."""

    def settle(self, cls: type, kind: Reducer) -> None:
        """From now on, instances of exactly this type are saved by ``kind``."""

    def can_be_raw(self, obj: object, author: type) -> bool:
        """Can it be saved past the ``__reduce__`` of that class, with all that is in it?"""


Reducer = Callable[[Saver, Any], Any]
