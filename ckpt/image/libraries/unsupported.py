"""What no image can hold, and would be lost in silence: said by name, before anything is saved. Called in the child.

Greenlets, by themselves or gevent's: their stacks live in C. What holds a suspended one may be C, as gevent's loop does, or
a variable of a package: so they are looked for among all objects. A main greenlet is the thread itself, and gevent's hub
without any other is made anew when it is needed.

gevent's ``monkey.patch_all``: it gives the main thread another number and takes functions away, in C and in Python, which
nothing would do again in a new process.

Objects in the place of whole modules of the standard library (pyfakefs, inside its ``Patcher``): they are put into all
modules, into default arguments and into the import system.
"""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

from ckpt.image.errors import Unpicklable

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
    if getattr(sys.modules.get("gevent.monkey"), "saved", None):
        raise Unpicklable(
            "gevent.monkey",
            "it has patched the standard library, and its loop and its greenlets live in C: no image can be taken",
        )
    library = sys.modules.get("greenlet")
    if library is None:
        return
    kind = library.greenlet
    if library.getcurrent().parent is not None:
        raise Unpicklable(
            "the program", "it is running in a greenlet, whose stack lives in C and cannot be saved"
        )
    for obj in gc.get_objects():
        if issubclass(type(obj), kind) and _is_alive(obj):
            raise Unpicklable(_name(obj), "it is alive, and its stack lives in C and cannot be saved")


def _is_alive(greenlet: Any) -> bool:
    is_hub = type(greenlet).__module__ == "gevent.hub"
    if greenlet.parent is None or is_hub:
        return False
    return bool(greenlet) or bool(getattr(greenlet, "started", False))


def _name(greenlet: Any) -> str:
    frame = greenlet.gr_frame
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    run = getattr(greenlet, "_run", None)
    name = frame.f_code.co_qualname if frame is not None else getattr(run, "__qualname__", "")
    return f"a greenlet ({name})" if name else "a greenlet"
