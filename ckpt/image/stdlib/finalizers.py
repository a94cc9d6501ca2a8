"""``weakref.finalize``: what is to be called when an object dies, which the class keeps in a table of its own.

Only finalizers of objects that are in the image otherwise are saved: any other object would die as soon as it was
loaded, and its finalizer would run (and remove, say, a directory that is still in use). So a :class:`Finalizers` is among
what is pickled last, looks then which objects the pickler has met, and is registered again when everything is loaded.

Nor are those that a library registers for objects of its own which take themselves apart by ``__reduce__``: what makes
such an object again makes its finalizer, too.
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
    """Finalizer, object, function, arguments, keywords, ``atexit``, number; of objects whose ``id`` is in ``met()``.

    ``by_value``: the modules that are the program's own.
    """
    known, entries = met(), []
    for finalizer, info in list(stdlib.finalizers().items()):
        target = info.weakref()
        if target is None or id(target) not in known:
            continue
        if _is_made_anew(type(target), by_value) and getattr(info.func, "__module__", None) not in by_value:
            continue
        entries.append(
            (finalizer, target, info.func, info.args, info.kwargs or {}, bool(info.atexit), info.index)
        )
    return entries


def _is_made_anew(cls: type, by_value: Container[str]) -> bool:
    return cls.__module__ not in by_value and has_own_reduce(cls)


def register_finalizers(entries: list[stdlib.Finalizer]) -> None:
    stdlib.register_finalizers(entries)
