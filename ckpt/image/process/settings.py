"""What a program has set in libraries, which keep it in tables of their own: no variable of the program holds it.

Noted in the child, as values that may hold objects of the program; put back when all modules are loaded. Only
libraries that the program has imported are looked at. What it is, each library says
(:meth:`ckpt.image.interface.library.Library.note_settings`). Two tables are of none in particular:

    ``copyreg``    ways to pickle classes of the program
    ``abc``        classes of the program registered with abstract classes of libraries

Not here: state that belongs to the process (:mod:`ckpt.image.process.resources`), loggers (:mod:`ckpt.image.reducers.logs`).
"""

from __future__ import annotations

import contextlib
import copyreg
import importlib
import sys
import warnings
from abc import ABCMeta
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ckpt.compat.stdlib import virtual_subclasses
from ckpt.compat.typeobjects import is_heap
from ckpt.image.errors import RestoreError
from ckpt.image.interface.registry import libraries

if TYPE_CHECKING:
    from ckpt.image.modules.references import References

__all__ = ["apply_ambient", "note_ambient", "quiet"]


def note_ambient(references: References) -> dict[str, Any]:
    """Library → what is set in it; libraries in which nothing can be set, or nothing is, are left out."""
    noted: dict[str, Any] = {
        "copyreg": {c: f for c, f in copyreg.dispatch_table.items() if _is_put_there(c, f, references)},
        "abc": _virtual_subclasses(references),
    }
    for library in libraries.loaded():
        noted[library.name] = library.note_settings()
    return {name: value for name, value in noted.items() if value}


def _is_put_there(cls: Any, function: Any, references: References) -> bool:
    """For a class of the program, or for one that is replaced for a while (freezegun does so for ``datetime.date``)."""
    if references.is_user_type(cls):
        return True
    return not is_heap(cls) and references.replaced_name(cls) is not None and references.names(function)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings meanwhile: the program may be collecting them, and would find ours among its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def apply_ambient(saved: dict[str, Any]) -> None:
    """Raises RestoreError where what has noted a library's settings is not installed here."""
    copyreg.dispatch_table.update(saved.pop("copyreg", {}))
    for cls, subclasses in saved.pop("abc", []):
        for subclass in subclasses:
            ABCMeta.register(cls, subclass)
    for name, value in saved.items():
        if name not in sys.modules:
            importlib.import_module(name)
        library = libraries.find(name)
        if library is None:
            raise RestoreError(
                f"the image has settings of {name!r}, noted by a distribution that is not installed here "
                "(an entry point of ckpt.libraries)"
            )
        library.apply_settings(value)


def _virtual_subclasses(references: References) -> list[tuple[type, list[type]]]:
    found = []
    for cls in _abstract_classes():
        if references.is_user_type(cls):
            continue  # its own state has them
        own = [subclass for subclass in virtual_subclasses(cls) if references.is_user_type(subclass)]
        if own and references.names(cls):
            found.append((cls, own))
    return found


def _abstract_classes() -> list[type]:
    """Every class whose metaclass is ABCMeta."""
    found, seen, waiting = [], {object}, [object]
    while waiting:
        for cls in type.__subclasses__(waiting.pop()):
            if cls not in seen:
                seen.add(cls)
                waiting.append(cls)
                if isinstance(cls, ABCMeta):
                    found.append(cls)
    return found
