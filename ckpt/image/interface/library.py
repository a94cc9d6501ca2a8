"""The base class :class:`Library`: a subclass says what is special for one library.

A subclass says only what differs from an ordinary library. An ordinary library is written in Python, and its objects are
saved like all others. The registry (:mod:`ckpt.image.interface.registry`) makes one instance in a process, once the program
has imported the library; no method is called before. So a subclass may use ``self.module`` in its methods, and need not
import the library at its own import. While a library is being imported, names may be missing from it: :func:`by_name` leaves
such names out.

============================  ==========================================  =============================================
attribute or method           when it is read or called                   in which process
============================  ==========================================  =============================================
``harmless_threads``          whenever an image could be taken            the rank
``answered_calls``,           likewise                                    the rank
``left_out_threads``
``transient_…``,              for objects of running functions, whenever  the rank
``reason_against``,           an image could be taken
``reason_now``
``when_imported``             just after the library has been imported    the rank, and the new process
``before_image``              just before each image                      the rank
``copy_out``                  likewise, when all threads stand still      the rank
``copied_maps``               when it is decided how an image is written  the rank
``has_to_read``               just before the fork                        the rank
``read_in_child``             when the child has been forked; all         the forked child
                              threads of the rank stand still
``let_copies_go``             when the child has been forked              the rank
``before_saving``,            before anything is saved                    the forked child (the rank without fork)
``note_settings``             before anything is saved                    likewise
``reducers``,                 while objects are saved                     likewise
``reducer_by_base``
``note_random``               likewise, and before an explicit image      likewise
``in_place``                  by explicit checkpoints (ckpt.replay)       the forked child, and the new process
``coming_back``               by ``ckpt doctor``                          the rank, and a forked child
``shape_of``                  for reports of sizes                        likewise
``apply_settings``,           when all objects have been loaded           the new process
``apply_random``
``after_restart``             last of all                                 the new process
============================  ==========================================  =============================================

Authors of libraries use this module as ``ckpt.libraries`` (docs/extending.md), so its public names do not change.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ckpt.transport.records import NamedTuple

__all__ = ["InPlace", "Library", "Reducer", "by_name", "later", "merged"]

Reducer = Callable[[Any, Any], Any]
"""``reduce(saver, obj)``: what ``obj.__reduce_ex__(5)`` should return, or ``NotImplemented`` for pickle's own way;
``saver``: a :class:`ckpt.image.reducers.saver.Saver`. It must not change the object, unless ``saver.is_disposable``."""


class InPlace(NamedTuple):
    """How the content of a registered object (:func:`ckpt.register`) is saved, and put into the object of a new run.

    ``kind``: a name for people, which no other type has. ``types``: the classes of such objects, with their subclasses.
    ``take(obj)``: returns the content, which is pickled. ``put(obj, content)``: puts the content into the object; raises
    :class:`ckpt.errors.StateError` if the content does not fit the object."""

    kind: str
    types: tuple[type, ...]
    take: Callable[[Any], Any]
    put: Callable[[Any, Any], None]


class Library:
    """One library, by the name of its top-level module. By default, nothing is special about it."""

    is_left_alone: ClassVar[bool] = False
    """Are the library's own variables no part of images? For libraries whose variables must agree with other state, for
    example with memory in C, and whose settings :meth:`note_settings` knows."""

    is_left_to_pickle: ClassVar[bool] = False
    """Does plain pickle save objects of the library's types too? If so, the reducers save more than pickle does, such as
    memory that objects share. They are used in process images only, not in the plain pickles of a program that saves
    itself (:mod:`ckpt.replay`)."""

    harmless_threads: ClassVar[tuple[str, ...]] = ()
    """Threads without which the library works as well after a restart, or which it starts anew when it needs them: dotted
    names of their class or, for plain threads, of the function that they run, or the beginning of such names (a module)."""

    transient_types: ClassVar[tuple[str, ...]] = ()
    """``"module"`` or ``"module:Class"``: types of objects that no image can hold, and that a program usually holds for a
    moment only. No image is taken while a running function holds such an object; see :meth:`reason_against`."""

    transient_functions: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of ``"module:function"`` or ``"module:Class.method"``, and what the function does ("a file is being opened"): no
    image is taken while it runs. Only functions written in Python."""

    object_limit_s: ClassVar[float] = 2.0
    moment_limit_s: ClassVar[float] = 2.0
    """If at every look for so many seconds an image has been refused because of an object of ``transient_types``, or because
    of one of ``transient_functions`` or for a reason of :meth:`reason_now`, it is tried all the same: a failure then names
    the object by its path."""

    hooked_limit_s: ClassVar[float | None] = None
    """The same, where the program has functions of ``ckpt.on_checkpoint``, which are called after that and may end it;
    ``None``: they make no difference."""

    answered_calls: ClassVar[tuple[tuple[str, object, str], ...]] = ()
    """``("module:function", value, "module:function" or "")``, of functions written in Python. A thread may
    be anywhere inside of a call of the first function when an image is taken, once it has entered the second one from there
    ("" stands for: at once). What it does there is no part of the image: in a new process the call returns the value, by
    which the thread looks again for what it has waited for."""

    left_out_threads: ClassVar[tuple[str, ...]] = ()
    """Threads of the library that stand still with the program's while an image is taken, but are no part of it: the library
    starts them anew. Names as for ``harmless_threads``. None is in a function of ``transient_functions`` meanwhile."""

    lock_types: ClassVar[tuple[str, ...]] = ()
    """``"module:Class"``: reentrant locks with ``acquire``, ``release`` and ``_is_owned``. Locks that the program holds are
    acquired again after a restart."""

    rebound_variables: ClassVar[tuple[tuple[str, str], ...]] = ()
    """``(module, variable)``: variables that the library binds to other objects while a program runs. Images hold these
    objects themselves, where they would name the variable, in which a new process has another object."""

    filled_types: ClassVar[tuple[str, ...]] = ()
    """``"module:Class"``: objects of these classes that an installed module has made are saved with their state, which is
    put into the module's own object of the new process. :func:`ckpt.image.frameworks.places.reduce_to_place` does that."""

    id_tables: ClassVar[tuple[str, ...]] = ()
    """Modules whose functions (in their variables, closures and default arguments) and objects (in their attributes) keep
    numbers that are the ``id()`` of objects, by themselves, in texts, or in dictionaries, sets and lists: after a restart
    these numbers are the new addresses."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def module(self) -> Any:
        """The module of the library; ``None`` if the program has not imported it."""
        return sys.modules.get(self.name)

    def reducers(self) -> Mapping[type, Reducer]:
        """Type → reducer, for objects of exactly this type. The functions that reducers return are called while an image is
        loaded. They are pickled by name, so they must be in a module that can be imported."""
        return {}

    def reducer_by_base(self, cls: type) -> Reducer | None:
        """The reducer for objects of this class, if its bases decide that; else ``None``. Called once in an image for every
        class that has no reducer of its own."""
        return None

    def value_types(self) -> tuple[type, ...]:
        """Types in C of objects of which images keep all, and who shares them, as of a list: arrays, random generators."""
        return ()

    def reason_against(self, obj: Any) -> str | None:
        """Why no image can be taken while a running function holds this object, of one of ``transient_types``; ``None``: an
        image can be taken. Called often; it must be quick and change nothing."""
        cls = type(obj)
        return f"a {cls.__module__}.{cls.__qualname__} is in use, which no image can hold"

    def reason_now(self, values: Iterable[Any]) -> str | None:
        """Why no image can be taken at this moment; ``None``: one can. ``values``: the objects in the variables and on the
        evaluation stacks of the main thread's running functions. Called often; it must be quick, change nothing, and call no
        code of the program."""
        return None

    def reason_against_leaving_out(self, thread: Any) -> str | None:
        """Why no image can be taken now without this thread, one of ``left_out_threads`` of any library; ``None``: it can be
        left out. Called often; it must be quick and change nothing."""
        return None

    def note_settings(self) -> Any:
        """The settings of the library that are in no variable of the program. They become part of the image, and may hold
        any objects. A false value: there are none."""
        return None

    def apply_settings(self, saved: Any) -> None:
        """Restore the settings that :meth:`note_settings` has returned. The library has been imported."""

    def note_random(self) -> Any:
        """The state of the library's global generators of random numbers; None: there are none."""
        return None

    def apply_random(self, saved: Any) -> None:
        """Restore the state that :meth:`note_random` has returned. The library has been imported."""

    def in_place(self) -> Sequence[InPlace]:
        """Types whose objects keep their identity, and get their content back, in a program that saves itself."""
        return ()

    def shape_of(self, obj: Any) -> str | None:
        """What reports say of an object of the library, besides the name of its class, such as ``float64 (1000, 3)``; or
        ``None``."""
        return None

    def when_imported(self) -> None:
        """Called when the library's module has been imported, before the program can use it."""

    def before_image(self) -> None:
        """Write to disk what must be there before an image is taken. Called in the program's process while the program
        stands still. If this raises, no image is taken."""

    def copy_out(self, *, is_writing: bool, available: Callable[[], int | None]) -> None:
        """Copy to memory of this process what a forked child could not read: memory of devices. Called in the program's
        process when :meth:`before_image` has been called and all of the program's threads stand still. ``is_writing``: a
        child still writes an earlier image, and may read what was copied for it. ``available()``: bytes of memory that
        this rank can still get; None: nobody knows. If this raises, no image is taken."""

    def copied_maps(self) -> Collection[int]:
        """Addresses of files mapped for shared writing whose content :meth:`copy_out` copies, so that they are no reason to
        write an image without a fork. Called before each image; it must be quick."""
        return ()

    def has_to_read(self) -> bool:
        """Is there something that :meth:`read_in_child` has to read? Called after :meth:`copy_out`, before the fork."""
        return False

    def read_in_child(self, is_in_time: Callable[[], bool]) -> None:
        """Read in the forked child what this process cannot read without changing it, and what the child can read only as
        long as the program stands still: the program waits for that, a second at most. What has been read is of use if
        ``is_in_time()`` is true afterwards; ask it between two pieces, too. It must not raise."""

    def let_copies_go(self) -> None:
        """The child that writes the image has been forked, or the image is written, or has failed: what :meth:`copy_out` has
        copied is not needed in this process any more. Called right after that."""

    def before_saving(self, *, is_disposable: bool) -> None:
        """Remove what must not be in an image, such as objects that the library has put into all modules. ``is_disposable``:
        this process is a forked child, which ends after the image. Otherwise the program goes on in this process: change
        nothing, or raise :class:`ckpt.image.errors.Unpicklable`."""

    def note_threads(self, threads: Sequence[Any], *, is_disposable: bool) -> None:
        """Before anything is saved: the program's other threads that are in the image, each a
        :class:`ckpt.image.frames.stack.CapturedThread`. ``is_disposable``: as for :meth:`before_saving`."""

    def coming_back(self) -> tuple[set[int], set[int]]:
        """The child processes, by their ids, and the descriptors that the library starts and opens anew after a restart:
        `ckpt doctor` does not report them as lost."""
        return set(), set()

    def after_restart(self) -> None:
        """Called in the new process when everything is restored, before the program goes on. If this raises, the restart
        fails with that exception."""

    def refuse(self) -> None:
        """Raise :class:`ckpt.image.errors.Unpicklable` if an image would lose state of the library without an error."""


def merged(found: Iterable[tuple[set[int], set[int]]]) -> tuple[set[int], set[int]]:
    """Several results of :meth:`Library.coming_back` as one."""
    processes: set[int] = set()
    descriptors: set[int] = set()
    for pids, fds in found:
        processes |= pids
        descriptors |= fds
    return processes, descriptors


def by_name(module: str, reducers: Mapping[str, Reducer]) -> dict[type, Reducer]:
    """Turn ``{name of a type: reducer}`` into ``{type: reducer}``. Names that are no type in the module are left out."""
    namespace = getattr(sys.modules.get(module), "__dict__", {})
    return {
        namespace[name]: reduce for name, reduce in reducers.items() if isinstance(namespace.get(name), type)
    }


def later(module: str, name: str) -> Reducer:
    """A reducer that calls the reducer ``name`` of ``module``; the module is imported when the first object is met."""

    def reduce(saver: Any, obj: Any) -> Any:
        return getattr(importlib.import_module(module), name)(saver, obj)

    return reduce
