"""django: connections to databases, and tables by ``id()``.

Signals keep receivers and senders by their ids. A connection remembers the identifier of the thread that has made it, and
answers no other one. After a restart each thread has another identifier, so the connections of the main thread are told.
Those of other threads say themselves that they are of another thread.

A query that has not been made yet would be made when it is pickled, with the rows of that moment. So it is saved part by
part.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Django"]


class Django(Library):
    id_tables = ("django.dispatch",)
    _made_in: int | None = None  # the identifier of the main thread in the process before

    def reducer_by_base(self, cls: type) -> Reducer | None:
        base = getattr(sys.modules.get("django.db.models.query"), "QuerySet", None)
        return reduce_raw if base is not None and issubclass(cls, base) else None

    def note_settings(self) -> Any:
        if "django.db" not in sys.modules:
            return None
        return {"main thread": threading.main_thread().ident}

    def apply_settings(self, saved: Any) -> None:
        self._made_in = saved["main thread"]

    def after_restart(self) -> None:
        """Now django has the program's settings again, which say what connections there are."""
        made_in, self._made_in = self._made_in, None
        if made_in is None or not sys.modules["django.conf"].settings.configured:
            return
        for connection in sys.modules["django.db"].connections.all(initialized_only=True):
            if connection._thread_ident == made_in:
                connection._thread_ident = threading.main_thread().ident
