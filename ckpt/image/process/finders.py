"""Finders of modules that the program itself has put into ``sys.meta_path`` and ``sys.path_hooks``.

Each comes back at its place: before the entry of others that followed it. Entries of others (the interpreter's, those of
installed packages) are what they are in the new process, where these packages have been imported again.

Not here: ``sys.path`` (:mod:`ckpt.image.modules.search_path`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

__all__ = ["note", "put_back"]

_LISTS = ("meta_path", "path_hooks")
_DEEPEST = 3


_Entry = tuple[Any, "str | None", bool]
"""The finder; the name of the next entry of others; is it the first of all?"""


def note(is_of_program: Callable[[Any], bool]) -> dict[str, list[_Entry]]:
    """The program's own entries of each list, in their order."""
    found: dict[str, list[_Entry]] = {}
    for name in _LISTS:
        following: str | None = None
        for number, entry in reversed(list(enumerate(getattr(sys, name)))):
            if _is_own(entry, is_of_program, _DEEPEST):
                found.setdefault(name, []).insert(0, (entry, following, number == 0))
            else:
                following = _name(entry)
    return found


def put_back(saved: dict[str, list[_Entry]]) -> None:
    """Put them into the lists of this process."""
    for name, entries in saved.items():
        present: list[Any] = getattr(sys, name)
        names = [_name(each) for each in present]
        for finder, followed_by, is_first in entries:
            if not any(each is finder for each in present):
                place = 0 if is_first else len(present)
                place = names.index(followed_by) if followed_by in names else place
                present.insert(place, finder)
                names.insert(place, "")
    if "path_hooks" in saved:
        sys.path_importer_cache.clear()


def _is_own(entry: Any, is_of_program: Callable[[Any], bool], depth: int) -> bool:
    """Is it of the program, or a function of the library that was made for something of the program, as that of
    ``FileFinder.path_hook((Loader, [".txt"]))`` is?"""
    if type(entry) in (tuple, list):
        return depth > 0 and any(_is_own(each, is_of_program, depth - 1) for each in entry)
    if is_of_program(entry):
        return True
    if not isinstance(entry, types.FunctionType) or depth < _DEEPEST:
        return False
    return any(_is_own(each.cell_contents, is_of_program, depth - 1) for each in entry.__closure__ or ())


def _name(entry: Any) -> str:
    named = entry if isinstance(entry, (type, types.FunctionType)) else type(entry)
    return f"{named.__module__}.{named.__qualname__}"
