"""psygnal: signals with their listeners.

Its signals leave listeners out when they are pickled, if they hold them weakly, and a listener is found again by a text with
the address of what it calls. As plain Python (``psygnal.utils.decompile()``), signals are saved raw, and the texts become
new. Compiled by mypyc, as it is installed, most of its objects cannot be made without what their constructors take: a signal
that has listeners is refused, where it would lose them in silence.
"""

from __future__ import annotations

import sys
from pickle import PicklingError
from typing import Any

from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.raw_instances import leave_to_pickle, reduce_raw

__all__ = ["Psygnal"]

_COMPILED = "__mypyc_attrs__"
_REFUSED = (
    "a signal of psygnal with listeners, which psygnal does not let be saved where it is compiled (by mypyc); call "
    "psygnal.utils.decompile() once, in another process: the package then runs as plain Python, and is part of images"
)


class Psygnal(Library):
    id_tables = ("psygnal._weak_callback",)

    def reducer_by_base(self, cls: type) -> Reducer | None:
        signals = getattr(sys.modules.get("psygnal"), "SignalInstance", None)
        callbacks = getattr(sys.modules.get("psygnal._weak_callback"), "WeakCallback", None)
        is_compiled = hasattr(cls, _COMPILED)
        if signals is not None and issubclass(cls, signals):
            return reduce_compiled if is_compiled else reduce_raw
        if callbacks is not None and issubclass(cls, callbacks):
            return refuse if is_compiled else reduce_raw
        return None


def reduce_compiled(saver: Any, signal: Any) -> Any:
    return (
        refuse(saver, signal)
        if len(signal) or not _can_be_made(type(signal))
        else leave_to_pickle(saver, signal)
    )


def _can_be_made(cls: Any) -> bool:
    try:
        cls.__new__(cls)
    except TypeError:
        return False
    return True


def refuse(saver: Any, obj: Any) -> Any:
    raise PicklingError(_REFUSED)
