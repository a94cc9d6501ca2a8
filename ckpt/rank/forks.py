"""A program that forks gets Python's warning about threads for its own threads only, not for the threads of ckpt.

``os.fork`` and ``os.forkpty`` give a DeprecationWarning when the process has several threads. The kernel counts all of them,
also the port's helper and ZeroMQ's threads, which every rank has. These do no harm to a child process: none of them holds a
lock that the program uses, and the child is no rank.

So if the program itself has one thread only, an entry of ``warnings.filters`` hides the warning. The entry

    before the fork       is inserted as the first one
    in the parent         is removed by the warning itself, which Python 3.13 gives after the functions of
                          ``register_at_fork``
    in the child          is removed
    if the fork fails     is removed before the next fork; an image does not hold it

In a program with threads of its own, Python warns as always. The fork for an image calls none of these functions. Python
3.11 gives no such warning, so there is nothing to do.
"""

from __future__ import annotations

import os

from ckpt.compat import interpreter, stdlib
from ckpt.transport.wires import owned

__all__ = ["install"]


def install() -> None:
    """From now on, no warning is given for the threads of ckpt. Called once in a process."""
    if interpreter.FORK_COUNTS_THREADS:
        os.register_at_fork(before=_before, after_in_child=stdlib.stop_ignoring_threads)


def _before() -> None:
    others, are_own = owned.other_threads()
    if others == 1 and are_own:
        stdlib.ignore_threads_once()
