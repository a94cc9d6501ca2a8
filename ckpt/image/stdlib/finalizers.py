"""``weakref.finalize``: functions that are called when an object dies. The class keeps them in a table of its own.

A finalizer is saved only if its object is part of the image for another reason. Otherwise the object would die as soon as it
was loaded, and its finalizer would run (and remove, for example, a directory that is still in use). So a :class:`Finalizers`
object is among the last objects that are pickled: it looks which objects the pickler has met. At load its finalizers are
registered again when everything else is loaded.

Not saved either: finalizers that a library registers for objects with a ``__reduce__`` of their own. What makes such an
object again also makes its finalizer.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from ckpt.compat import stdlib
from ckpt.image.reducers.installed_classes import has_own_reduce

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["Finalizers", "reduce_finalizers", "register_finalizers"]


class Finalizers:
    """Stands for the finalizers of all objects pickled before it."""

    @staticmethod
    def are_there() -> bool:
        return bool(stdlib.finalizers())


def reduce_finalizers(pickler: Saver, obj: Finalizers) -> Any:
    return list, (note_finalizers(pickler.copy_of_memo, pickler.references.by_value),)


def note_finalizers(
    met: Callable[[], Container[int]], by_value: Container[str] = ()
) -> list[stdlib.Finalizer]:
    """The finalizers of objects whose ``id`` is in ``met()``. ``by_value``: names of the program's modules."""
    known, entries = met(), []
    for finalizer, info in list(stdlib.finalizers().items()):
        target = info.weakref()
        if target is None or id(target) not in known:
            continue
        if (
            _is_made_by_reduce(type(target), by_value)
            and getattr(info.func, "__module__", None) not in by_value
        ):
            continue
        entries.append(
            (finalizer, target, info.func, info.args, info.kwargs or {}, bool(info.atexit), info.index)
        )
    return entries


def _is_made_by_reduce(cls: type, by_value: Container[str]) -> bool:
    return cls.__module__ not in by_value and has_own_reduce(cls)


def register_finalizers(entries: list[stdlib.Finalizer]) -> None:
    stdlib.register_finalizers(entries)
