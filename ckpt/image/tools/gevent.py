"""gevent: images of a program that ``gevent.monkey`` has patched are refused.

``monkey.patch_all`` gives the main thread another identifier, and replaces functions in C and in Python; nothing would do
that again in a new process. Greenlets: :mod:`ckpt.image.tools.greenlet`.
"""

from __future__ import annotations

import sys

from ckpt.image.errors import Unpicklable
from ckpt.image.interface.library import Library

__all__ = ["Gevent"]


class Gevent(Library):
    def refuse(self) -> None:
        if getattr(sys.modules.get("gevent.monkey"), "saved", None):
            raise Unpicklable(
                "gevent.monkey",
                "it has patched the standard library, and its loop and its greenlets live in C: no image can be taken",
            )
