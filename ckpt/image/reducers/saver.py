"""The type of a reducer, and the interface of the pickler that a reducer may use.

A *reducer* takes one object apart: ``reduce(saver, obj)`` returns what ``__reduce_ex__`` returns (see the documentation of
:mod:`pickle`), or ``NotImplemented`` for the C pickler's own way. It never changes the object. The full contract is in
:mod:`ckpt.image.reducers.by_value`. :class:`ckpt.image.pickling.pickler.ImagePickler` implements :class:`Saver`.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import FunctionType

    from ckpt.image.frames.suspended import CachedCall
    from ckpt.image.modules.definitions import Definitions
    from ckpt.image.modules.references import References

__all__ = ["NamesUsed", "Reducer", "Saver", "Tables"]


class NamesUsed:
    """The names to which the objects of one image refer. ``label``: of the pair that is being written."""

    def __init__(self) -> None:
        self.label: tuple[Any, ...] = ()
        self._found: dict[tuple[str, ...], tuple[Any, ...]] = {}

    def note_reference(self, pid: tuple[Any, ...]) -> None:
        """An object is saved as this persistent id (:data:`ckpt.image.modules.references.Pid`)."""
        if pid[0] in ("module", "dict", "attr"):
            self._found.setdefault(pid, self.label)

    def note_definition(self, obj: Any) -> None:
        """A function or class is left to pickle, which saves the names of its module and of itself."""
        if isinstance(obj.__module__, str):
            self._found.setdefault(("definition", obj.__module__, obj.__qualname__), self.label)

    def as_bytes(self) -> bytes:
        """For :func:`ckpt.image.modules.names.look_up`."""
        return pickle.dumps(list(self._found.items()), 5)


class Tables(Protocol):
    """Tables by ``id()`` (:mod:`ckpt.image.pickling.id_tables`), as reducers see them."""

    def note_variables(self, module: str | None, values: list[Any]) -> None:
        """Note the tables among the variables of a function of that module."""

    def note_items(self, container: Any, items: list[Any]) -> bool:
        """Note a list of items of a set, if there are numbers in the set that may be addresses. Are there?"""

    def note_function(self, function: FunctionType) -> None:
        """Note what a function that no name leads to keeps in its closure and default arguments."""


class Saver(Protocol):
    """The pickler of one image, as reducers see it."""

    references: References
    """Which modules and objects are saved by reference."""

    definitions: Definitions
    """Classes and functions of installed packages that cannot be found by name."""

    names: NamesUsed
    """What the image refers to by name."""

    is_disposable: bool
    """This process is a forked child, whose objects may be used up to find their state."""

    has_restart_hooks: bool
    """The program has ``ckpt.on_restart`` functions: they may put back what no image has."""

    main_thread_id: int | None
    """``threading.main_thread().ident``."""

    threads: Mapping[int, tuple[threading.Thread, Any]]
    """Identifier → (thread, its key for :func:`ckpt.compat.threads.values_of`), of the other threads in the image."""

    running_generators: list[Any] | None
    """Generators on the captured stack."""

    running: set[int]
    """Ids of the objects of which a method is on the captured stack."""

    cached_calls: list[CachedCall]
    """Calls through caches (``functools.lru_cache``) on the captured stack, which are made again after the restart."""

    stepping_tasks: list[Any]
    """Tasks of asyncio, in C, whose step is on the captured stack: it is begun again after the restart."""

    is_raw: dict[type, bool]
    """Class of an installed package with a ``__reduce__`` → are its instances, and those of subclasses, saved raw?"""

    slots: dict[type, list[tuple[type, str, Any]]]
    """Class → ``(class that defines the slot, name, descriptor)`` for each slot; filled when a class is met."""

    owned: set[object]
    """Files that libraries have opened, and open again at load, each by descriptor or by (device, inode)."""

    shared: dict[object, Any]
    """Objects that several reducers of one library share, by a key that they choose."""

    memory: dict[int, Any]
    """Address of memory → the first array or storage met at this address."""

    @property
    def id_tables(self) -> Tables:
        """The tables of which the keys become the new addresses of the objects."""

    def copy_of_memo(self) -> dict[int, tuple[int, Any]]:
        """Id of each object that has been saved so far → (its number in the memo, the object)."""

    def defer(self, function: Callable[..., object], *args: Any) -> None:
        """Pickle the call ``function(*args)`` last; it is made when everything has been loaded."""

    def use_reducer(self, cls: type, reducer: Reducer) -> None:
        """From now on, save instances of exactly this type with ``reducer``."""

    def can_be_raw(self, obj: object, author: type) -> bool:
        """Can the object, with all that it refers to, be saved raw, without the ``__reduce__`` of the class ``author``?"""


Reducer = Callable[[Saver, Any], Any]
