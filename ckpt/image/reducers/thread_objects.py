"""Thread objects: a thread that was started is a thread that has ended after a restart.

The stack of a thread is not part of the image, so ``is_alive()`` is False and ``join()`` returns at once; target, name and
the attributes of a subclass are kept. A thread that was not started yet can be started after the restart.

Not here: which threads may run while an image is taken (:mod:`ckpt.capture.threads`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["reduce_thread"]

_STATE_OF_THE_INTERPRETER = ("_handle", "_tstate_lock", "_os_thread_handle")


def reduce_thread(pickler: Saver, thread: threading.Thread) -> Any:
    """The reducer for threads: saves the attributes without the interpreter's handle."""
    attributes = dict(thread.__dict__)
    for name in _STATE_OF_THE_INTERPRETER:
        attributes.pop(name, None)
    started = thread.ident is not None
    return make_thread, (type(thread),), (attributes, started), None, None, fill_thread


def make_thread(cls: type) -> Any:
    return object.__new__(cls)


def fill_thread(thread: Any, state: tuple[dict[str, Any], bool]) -> None:
    attributes, started = state
    fresh = threading.Thread(name="ckpt")
    thread.__dict__.update(
        {name: fresh.__dict__[name] for name in _STATE_OF_THE_INTERPRETER if name in fresh.__dict__}
    )
    thread.__dict__.update(attributes)
    if not started:
        return
    thread._started.set()
    if "_handle" in thread.__dict__:
        # A handle of a thread that was never started cannot be set to done. So a handle for the thread with this ident is
        # made, as threading does for dummy threads.
        thread._handle = threading._make_thread_handle(thread._ident)  # type: ignore[attr-defined]
        thread._handle._set_done()
    else:
        thread._tstate_lock = None
        thread._is_stopped = True
