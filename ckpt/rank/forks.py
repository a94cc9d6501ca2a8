"""A program that forks is warned of its own threads, not of the library's.

``os.fork`` and ``os.forkpty`` give a DeprecationWarning when the process has several threads. The kernel counts them: the
port's helper and ZeroMQ's threads too, which every rank has. They do no harm to a child: none of them holds a lock that the
program knows, and the child is no rank.

So where plain Python would have one thread, an entry of ``warnings.filters`` hides the warning:

    before the fork       the entry is put first
    in the parent         removed by the warning itself, which Python 3.13 gives after the functions of ``register_at_fork``
    in the child          removed
    the fork fails        removed before the next one; an image does not hold it

In a program with threads of its own Python warns as always. The fork for an image calls none of these functions. Until
Python 3.11 there is nothing to do.
"""

from __future__ import annotations

import os

from ckpt.compat import interpreter, stdlib
from ckpt.transport.wires import owned

__all__ = ["install"]


def install() -> None:
    """From now on, no warning of the library's threads. Called once in a process."""
    if interpreter.FORK_COUNTS_THREADS:
        os.register_at_fork(before=_before, after_in_child=stdlib.stop_ignoring_threads)


def _before() -> None:
    others, ours = owned.other_threads()
    if others == 1 and ours:
        stdlib.ignore_threads_once()
