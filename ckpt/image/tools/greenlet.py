"""Greenlets, by themselves or gevent's: their stacks live in C.

What holds a suspended one may be C, as gevent's loop does, or a variable of a package: so they are looked for among all
objects. A main greenlet is the thread itself, and gevent's hub without any other is made anew when it is needed.
"""

from __future__ import annotations

import gc
from typing import Any

from ckpt.image.errors import Unpicklable
from ckpt.image.interface.library import Library

__all__ = ["Greenlet"]


class Greenlet(Library):
    def refuse(self) -> None:
        greenlet_type = self.module.greenlet
        if self.module.getcurrent().parent is not None:
            raise Unpicklable(
                "the program", "it is running in a greenlet, whose stack lives in C and cannot be saved"
            )
        for obj in gc.get_objects():
            if issubclass(type(obj), greenlet_type) and _is_alive(obj):
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
