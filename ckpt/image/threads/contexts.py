"""The contexts (PEP 567) that a thread has entered by ``Context.run``, as the step of every task of ``asyncio`` does.

A new process makes these calls again, so they enter the contexts again. Until then the current context of the thread is the
one outside of them: its *base*. An image is written in the base context of the main thread.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence

from ckpt.compat.memory import enter_context, leave_context
from ckpt.compat.referents import previous_context
from ckpt.image.errors import Refused
from ckpt.image.frames.suspended import ContextRun

__all__ = ["base_context", "outside_of"]


def base_context(
    present: contextvars.Context | None, runs: Sequence[ContextRun]
) -> contextvars.Context | None:
    """The context of a thread outside of these calls, outermost first; None: it has none. ``present``: the current context.
    Raises Refused: another context has been entered."""
    for run in reversed(runs):
        context: contextvars.Context = run.context
        if context is not present:
            raise Refused("a context is entered that no known call has entered")
        present = previous_context(context)
    return present


@contextlib.contextmanager
def outside_of(runs: Sequence[ContextRun]) -> Iterator[None]:
    """A context manager of this thread: it leaves the contexts of these calls, outermost first, and enters them again
    afterwards. Raises RuntimeError: they are not the ones that are entered."""
    for run in reversed(runs):
        leave_context(run.context)
    try:
        yield
    finally:
        for run in runs:
            enter_context(run.context)
