"""What is special for one library: :class:`Library`, of which each library that needs it has a subclass.

A subclass says only what differs from an ordinary library, which is one written in Python whose objects are saved as any
others. The registry (:mod:`ckpt.image.interface.registry`) makes one instance in a process, once the program has imported
the library; no method is called before. So a subclass may look at ``self.module`` in its methods, and need not import the
library at its own import. While a library is being imported, names may be missing from it: :func:`by_name` bears that.

============================  ==========================================  =============================================
what                          called, or looked at                        in which process
============================  ==========================================  =============================================
``harmless_threads``          whenever an image could be taken            the rank
``transient_…``,              for what running functions hold, whenever   the rank
``reason_against``            an image could be taken
``before_image``              just before each image                      the rank
``before_saving``, ``refuse`` before anything is saved                    the forked child (the rank without fork)
``note_settings``             before anything is saved                    likewise
``reducers``,                 while objects are saved                     likewise
``reducer_by_base``
``note_random``               likewise, and before an explicit image      likewise
``in_place``                  by explicit checkpoints (ckpt.replay)       the forked child, and the new process
``shape_of``                  for reports of sizes                        likewise
``apply_settings``,           when all objects have been loaded           the new process
``apply_random``
``after_restart``             last of all                                 the new process
============================  ==========================================  =============================================

Public for authors as ``ckpt.libraries`` (docs/extending.md): names here stay.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

__all__ = ["InPlace", "Library", "Reducer", "by_name", "later"]

Reducer = Callable[[Any, Any], Any]
"""``reduce(saver, obj)``: what ``obj.__reduce_ex__(5)`` should return, or ``NotImplemented`` for pickle's own way;
``saver``: a :class:`ckpt.image.reducers.saver.Saver`. It must not change the object, unless ``saver.is_disposable``."""


class InPlace(NamedTuple):
    """How the content of a registered object (:func:`ckpt.register`) is saved, and put into the object of a new run.

    ``kind``: a name for people, other than those of other types. ``types``: the classes of such objects; subclasses count.
    ``take(obj)``: the content, which is pickled. ``put(obj, content)``: raises :class:`ckpt.errors.StateError` where the
    content does not fit the object."""

    kind: str
    types: tuple[type, ...]
    take: Callable[[Any], Any]
    put: Callable[[Any, Any], None]


class Library:
    """One library, by the name of its top-level module. Everything has a default: nothing is special."""

    is_left_alone: ClassVar[bool] = False
    """Are its own variables no part of images? For libraries that keep them consistent with something else, say with memory
    in C, and whose settings :meth:`note_settings` knows."""

    is_left_to_pickle: ClassVar[bool] = False
    """Does plain pickle save objects of these types as well? The reducers then keep what it does not keep, such as memory
    that objects share, and are used in process images only, not in the plain pickles of a program that saves itself
    (:mod:`ckpt.replay`)."""

    harmless_threads: ClassVar[tuple[str, ...]] = ()
    """Threads without which the library works as well after a restart, or which it starts anew when it needs them: dotted
    names of their class or, for plain threads, of the function that they run, or the beginning of such names (a module)."""

    transient_types: ClassVar[tuple[str, ...]] = ()
    """``"module"`` or ``"module:Class"``: objects that no image can hold, and that a program holds only for a moment,
    usually. No image is taken while a running function holds one; see :meth:`reason_against`."""

    transient_functions: ClassVar[tuple[tuple[str, str], ...]] = ()
    """``"module:function"`` or ``"module:Class.method"``, and what is going on then ("a file is being opened"): no image is
    taken while it runs. Only those written in Python."""

    lock_types: ClassVar[tuple[str, ...]] = ()
    """``"module:Class"``: reentrant locks with ``acquire``, ``release`` and ``_is_owned``: held again after a restart."""

    id_tables: ClassVar[tuple[str, ...]] = ()
    """Modules whose functions (in their variables) and objects (in their attributes) keep dictionaries, sets and lists of
    numbers that are the ``id()`` of objects: after a restart these numbers are the new addresses."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def module(self) -> Any:
        """The library itself; ``None`` if the program has not imported it."""
        return sys.modules.get(self.name)

    def reducers(self) -> Mapping[type, Reducer]:
        """How objects of exactly these types are saved. Functions that the reducers name are called while loading: they are
        pickled by name, so they belong to a module that can be imported."""
        return {}

    def reducer_by_base(self, cls: type) -> Reducer | None:
        """How objects of this class are saved, if that follows from its bases. Asked once in an image for every class that
        has no reducer of its own."""
        return None

    def reason_against(self, obj: Any) -> str | None:
        """Why no image can be taken while a running function holds this object, of one of ``transient_types``; ``None``: one
        can. Called often; it must be quick and change nothing."""
        kind = type(obj)
        return f"a {kind.__module__}.{kind.__qualname__} is in use, which no image can hold"

    def note_settings(self) -> Any:
        """What the program has set in the library that is in no variable of its own: part of the image; it may hold
        any objects. Nothing is noted where this is false."""
        return None

    def apply_settings(self, saved: Any) -> None:
        """Put back what :meth:`note_settings` has noted. The library has been imported."""

    def note_random(self) -> Any:
        """The state of the library's global generators of random numbers. Nothing is noted where this is None."""
        return None

    def apply_random(self, saved: Any) -> None:
        """Put back what :meth:`note_random` has noted. The library has been imported."""

    def in_place(self) -> Sequence[InPlace]:
        """Types whose objects keep their identity, and get their content back, in a program that saves itself."""
        return ()

    def shape_of(self, obj: Any) -> str | None:
        """What reports say of an object of a class of the library, besides the name of the class: ``float64 (1000, 3)``."""
        return None

    def before_image(self) -> None:
        """In the program's process, which stands still: what must reach the disk first. When it raises, no image is
        taken."""

    def before_saving(self, *, is_disposable: bool) -> None:
        """Take away what must not be in an image, such as what the library has put into all modules. ``is_disposable``: this
        process is a forked child, and ends after the image. Otherwise the program goes on here: change nothing, or raise
        :class:`ckpt.image.errors.Unpicklable`."""

    def after_restart(self) -> None:
        """All that the image held is in force; the program is about to go on. When it raises, the restart fails with it."""

    def refuse(self) -> None:
        """Raise :class:`ckpt.image.errors.Unpicklable` where an image would lose something in silence."""


def by_name(module: str, reducers: Mapping[str, Reducer]) -> dict[type, Reducer]:
    """Reducers by the names of types in a module: those that are there."""
    space = getattr(sys.modules.get(module), "__dict__", {})
    return {space[name]: reduce for name, reduce in reducers.items() if isinstance(space.get(name), type)}


def later(module: str, name: str) -> Reducer:
    """The reducer of that name; its module is imported when the first object is met."""

    def reduce(saver: Any, obj: Any) -> Any:
        return getattr(importlib.import_module(module), name)(saver, obj)

    return reduce
