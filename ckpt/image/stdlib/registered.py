"""What the program has registered in tables of the standard library: ``copyreg``, ``abc``, names of XML, types of SQLite,
dialects of ``csv``.

The first two classes here serve modules that are always imported, and are used by every image; so this module is small.
"""

from __future__ import annotations

import abc
import copyreg
from abc import ABCMeta
from typing import Any, ClassVar

from ckpt.compat.stdlib import virtual_subclasses, xml_prefixes
from ckpt.compat.typeobjects import is_heap
from ckpt.image.interface.library import Library
from ckpt.image.modules.references import process_references
from ckpt.image.stdlib.c_objects import DIALECT_FIELDS

__all__ = ["CopyReg", "Csv", "Namespaces", "VirtualSubclasses", "is_function_of_program"]


class CopyReg(Library):
    """Functions that pickle classes of the program, and functions of the program that pickle other ones."""

    def note_settings(self) -> dict[Any, Any]:
        return {
            cls: function
            for cls, function in copyreg.dispatch_table.items()
            if _is_programs_entry(cls, function)
        }

    def apply_settings(self, saved: dict[Any, Any]) -> None:
        copyreg.dispatch_table.update(saved)


class VirtualSubclasses(Library):
    """Classes of the program that are registered with abstract classes of libraries.

    ``state_without``: of the registrations of this process (``abc.get_cache_token()``) when a search found none of the
    program. The search looks at every class, so a forked child would copy many pages of memory.
    """

    state_without: ClassVar[object] = None

    def note_settings(self) -> list[tuple[type, list[type]]]:
        if abc.get_cache_token() == VirtualSubclasses.state_without:
            return []
        return _virtual_subclasses()

    @staticmethod
    def refresh(*, is_search_needed: bool = True) -> None:
        """Look whether the program has registered a class. ``is_search_needed``: False before the program begins."""
        state = abc.get_cache_token()
        if state != VirtualSubclasses.state_without and not (is_search_needed and _virtual_subclasses()):
            VirtualSubclasses.state_without = state

    def apply_settings(self, saved: list[tuple[Any, list[type]]]) -> None:
        for cls, subclasses in saved:
            for subclass in subclasses:
                ABCMeta.register(cls, subclass)


class Namespaces(Library):
    """``xml.etree.ElementTree``: prefixes, by ``register_namespace``."""

    def note_settings(self) -> dict[str, str]:
        return xml_prefixes(self.module)

    def apply_settings(self, saved: dict[str, str]) -> None:
        present = xml_prefixes(self.module)
        for uri, prefix in saved.items():
            if present.get(uri) != prefix:
                self.module.register_namespace(prefix, uri)


def is_function_of_program(function: Any) -> bool:
    """Is it a function, or an object that can be called, of a module of the program?"""
    home = getattr(function, "__module__", None)
    return home in process_references.by_value or process_references.is_user_type(type(function))


def _is_programs_entry(cls: Any, function: Any) -> bool:
    """Has the program made this entry of ``copyreg.dispatch_table``? It is for a class of the program, or for a class that
    another one replaces for a while (freezegun replaces ``datetime.date``)."""
    if process_references.is_user_type(cls):
        return True
    if is_function_of_program(function):
        return process_references.is_importable(cls)
    return (
        not is_heap(cls)
        and process_references.replaced_name(cls) is not None
        and process_references.is_importable(function)
    )


def _virtual_subclasses() -> list[tuple[type, list[type]]]:
    found = []
    for cls in _abstract_classes():
        if process_references.is_user_type(cls):
            continue  # its subclasses are saved with the class itself
        own = [subclass for subclass in virtual_subclasses(cls) if process_references.is_user_type(subclass)]
        if own and process_references.is_importable(cls):
            found.append((cls, own))
    return found


def _abstract_classes() -> list[type]:
    """Every class whose metaclass is ABCMeta. A metaclass may make its classes unhashable (``pyomo.environ.Set.End``)."""
    found: list[type] = []
    seen: dict[int, type] = {id(object): object}
    waiting: list[type] = [object]
    cls: type
    while waiting:
        for cls in type.__subclasses__(waiting.pop()):
            if id(cls) not in seen:
                seen[id(cls)] = cls
                waiting.append(cls)
                if isinstance(cls, ABCMeta):
                    found.append(cls)
    return found


class Csv(Library):
    """csv: the dialects registered by name, and the limit of a field's size."""

    _DIALECTS = ("excel", "excel-tab", "unix")

    def note_settings(self) -> tuple[dict[str, dict[str, Any]], int]:
        csv, fields = self.module, DIALECT_FIELDS
        own = [name for name in csv.list_dialects() if name not in self._DIALECTS]
        dialects = {name: {key: getattr(csv.get_dialect(name), key) for key in fields} for name in own}
        return dialects, csv.field_size_limit()

    def apply_settings(self, saved: tuple[dict[str, dict[str, Any]], int]) -> None:
        for name, dialect in saved[0].items():
            self.module.register_dialect(name, **dialect)
        self.module.field_size_limit(saved[1])
