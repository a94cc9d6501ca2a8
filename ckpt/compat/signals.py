"""The functions of ``signal``, and those in C below them (``_signal``).

For a new minor version: do the functions of ``Lib/signal.py`` still call those of ``_signal`` by its global of that name?
"""

from __future__ import annotations

import signal
import types
from collections.abc import Callable
from typing import Any

from ckpt.compat import accelerators

__all__ = ["hide", "is_hidden", "replace_signal_functions", "signal_handlers"]

_hidden: list[Any] = []
"""Handlers of ckpt that programs and images do not see."""


def hide(handler: Any) -> None:
    """From now on programs and images do not see this handler."""
    if not is_hidden(handler):
        _hidden.append(handler)


def is_hidden(handler: Any) -> bool:
    return any(handler is each for each in _hidden)


def replace_signal_functions(**functions: Callable[..., Any]) -> None:
    """Have the functions of ``signal`` call these functions instead of those of the same name in C. Without arguments: the
    functions in C again.

    ``Lib/signal.py`` calls ``_signal.signal`` and ``_signal.getsignal`` by its global ``_signal``; all versions.
    """
    in_c = accelerators.signal
    if functions:
        stand_in = types.ModuleType(in_c.__name__, "Functions of ckpt before those of this module.")
        vars(stand_in).update(vars(in_c), **functions)
        in_c = stand_in
    vars(signal)["_signal"] = in_c


def signal_handlers() -> dict[int, Any]:
    """Number of each signal → 0 (SIG_DFL), 1 (SIG_IGN), an object of the program, or None: it was not set from Python.
    :mod:`signal` makes members of enumerations of all that, which takes a hundred times longer; all versions."""
    in_c = accelerators.signal
    found = {number: in_c.getsignal(number) for number in in_c.valid_signals()}
    # What ckpt has set itself is not what the program sees.
    return {
        number: handler if handler is None or type(handler) is int else signal.getsignal(number)
        for number, handler in found.items()
        if not is_hidden(handler)
    }
