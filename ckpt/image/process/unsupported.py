"""What no image can hold, and would be lost in silence: said by name, before anything is saved. Called in the child.

Each library says so of itself (:meth:`ckpt.image.interface.library.Library.refuse`). Of none in particular:
objects in the place of whole modules of the standard library. What puts them there puts them into all modules, into default
arguments and into the import system, too; a library's class may take them away before
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
    """Raises Unpicklable, with a name."""
    for name in _MODULES:
        found = sys.modules.get(name)
        if found is not None and not isinstance(found, types.ModuleType):
            kind = f"{type(found).__module__}.{type(found).__qualname__}"
            raise Unpicklable(
                f"sys.modules[{name!r}]",
                f"a {kind} stands in the place of the module: no image can be taken meanwhile",
            )
    for refuse in libraries.implementations(Library.refuse):
        refuse()
