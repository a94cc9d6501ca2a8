"""Thread objects: a thread that was started is a thread that has ended after a restart.

The stack of a thread is not part of the image, so ``is_alive()`` is False and ``join()`` returns at once; target, name and
the attributes of a subclass are kept. A thread that was not started yet can be started after the restart.

Not here: which threads may run while an image is taken (:mod:`ckpt.capture.threads`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ckpt.compat import stdlib

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["reduce_thread"]


def reduce_thread(pickler: Saver, thread: threading.Thread) -> Any:
    """The reducer for threads: saves the attributes without the interpreter's handle."""
    attributes = stdlib.thread_attributes(thread)
    started = thread.ident is not None
    return make_thread, (type(thread),), (attributes, started), None, None, fill_thread


def make_thread(cls: type) -> Any:
    return object.__new__(cls)


def fill_thread(thread: Any, state: tuple[dict[str, Any], bool]) -> None:
    attributes, started = state
    stdlib.fill_thread(thread, attributes, has_ended=started)
