"""State that no image can hold, and that would be lost without an error: the image is refused, and the error names the
state.

:func:`check` is called in the child before anything is saved. Each library refuses its own state
(:meth:`ckpt.image.interface.library.Library.refuse`). State of no certain library: objects that stand in ``sys.modules`` in
the place of modules of the standard library. A tool that puts such objects there also puts them into other modules, default
arguments and the import system. A library's class may remove them before
(:meth:`ckpt.image.interface.library.Library.before_saving`).
"""

from __future__ import annotations

import sys
import types

from ckpt.image.errors import Unpicklable
from ckpt.image.interface.library import Library
from ckpt.image.interface.registry import libraries

__all__ = ["check"]

_MODULES = ("os", "io", "pathlib", "shutil")


def check() -> None:
    """Raise Unpicklable, with a name, if the program has such state."""
    for name in _MODULES:
        found = sys.modules.get(name)
        if found is not None and not isinstance(found, types.ModuleType):
            type_name = f"{type(found).__module__}.{type(found).__qualname__}"
            raise Unpicklable(
                f"sys.modules[{name!r}]",
                f"a {type_name} stands in the place of the module: no image can be taken meanwhile",
            )
    for refuse in libraries.implementations(Library.refuse):
        refuse()
