"""pyfakefs: while a ``Patcher`` is active, all modules use a file system in memory instead of ``os``, ``open`` and so on.

The patcher is paused in the forked child before anything is saved. So an image holds the original modules, and the objects
of the file system in memory. After a restart the patcher is resumed.

Many classes of pyfakefs forward unknown attributes to one of their attributes (``__getattr__``). Pickle would ask an
instance for ``__setstate__`` when it has no attributes yet, which causes an endless recursion. So instances are filled
without that.
"""

from __future__ import annotations

import sys
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import Unpicklable
from ckpt.image.files.buffered_data import newline_found
from ckpt.image.interface.library import Library, Reducer, by_name

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["PyFakeFs", "make_text"]


class PyFakeFs(Library):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._is_paused = False

    def reducers(self) -> dict[type, Reducer]:
        return by_name("pyfakefs.helpers", {"TextBufferIO": reduce_text})

    def reducer_by_base(self, cls: type) -> Reducer | None:
        forwards_attributes = any("__getattr__" in base.__dict__ for base in cls.__mro__)
        return reduce_instance if forwards_attributes and cls.__module__.startswith("pyfakefs.") else None

    @staticmethod
    def _active() -> Any:
        """The active patcher; None: there is none."""
        module = sys.modules.get("pyfakefs.fake_filesystem_unittest")
        patcher = getattr(getattr(module, "Patcher", None), "PATCHER", None)
        return patcher if patcher is not None and patcher.is_patching else None

    def before_saving(self, *, is_disposable: bool) -> None:
        patcher = self._active()
        if patcher is None:
            return
        if not is_disposable:
            raise Unpicklable("pyfakefs", "its patcher is active: an image needs a fork")
        patcher.pause()
        self._is_paused = True

    def note_settings(self) -> bool:
        return self._is_paused

    def apply_settings(self, saved: bool) -> None:
        self._is_paused = saved

    def after_restart(self) -> None:
        if self._is_paused:
            self._is_paused = False
            sys.modules["pyfakefs.fake_filesystem_unittest"].Patcher.PATCHER.resume()


def reduce_text(pickler: Saver, text: Any) -> Any:
    """A text file that is open in the file system in memory: a text layer over bytes of its own."""
    try:
        position = text.tell()  # which also writes the pending text
    except OSError as failure:
        raise PicklingError("a text file of pyfakefs is being read by a for loop") from failure
    attributes = dict(text.__dict__)
    memory = attributes.pop("_bytestream")
    content = memory.getvalue()
    newline = newline_found(text)
    text.seek(position)
    return make_text, (type(text), (content, newline, text.encoding, text.errors), position, attributes)


def make_text(cls: Any, arguments: tuple[Any, ...], position: int, attributes: dict[str, Any]) -> Any:
    made = cls(*arguments)
    made.seek(position)
    made.__dict__.update(attributes)
    return made


def reduce_instance(pickler: Saver, obj: Any) -> Any:
    return make_empty, (type(obj),), object.__getattribute__(obj, "__dict__"), None, None, fill


def make_empty(cls: Any) -> Any:
    return cls.__new__(cls)


def fill(obj: Any, attributes: dict[str, Any]) -> None:
    object.__getattribute__(obj, "__dict__").update(attributes)
