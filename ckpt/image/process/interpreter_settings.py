"""Settings of the interpreter and its modules in C that a program changes by a call or an assignment, and that no table of a
module shows: where bytecode goes, flags of `dlopen`, what the collector prints and whom it calls, the time limit of sockets,
the directory for temporary files.

Not here: ``sys.path`` and other state of the process (:mod:`ckpt.image.process.resources`), what libraries in Python keep
(:mod:`ckpt.image.process.settings`).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["note", "put_back"]

_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
_USUAL = ("/tmp", "/var/tmp", "/usr/tmp")


def note(is_of_program: Callable[[Any], bool]) -> dict[str, Any]:
    """What the settings are now. Of the functions that the collector calls, those of the program."""
    found: dict[str, Any] = {
        "bytecode": (sys.dont_write_bytecode, sys.pycache_prefix),
        "dlopen": sys.getdlopenflags(),
        "collector": (gc.get_debug(), [each for each in gc.callbacks if is_of_program(each)]),
    }
    if "socket" in sys.modules:
        found["sockets"] = sys.modules["socket"].getdefaulttimeout()
    if "tempfile" in sys.modules and _is_chosen(sys.modules["tempfile"].tempdir):
        found["temporary"] = sys.modules["tempfile"].tempdir
    return found


def _is_chosen(directory: object) -> bool:
    """Has the program chosen it? Else ``tempfile`` has found it, and finds that of the new process there."""
    return directory is not None and directory not in (*map(os.environ.get, _TEMPORARY), *_USUAL)


def put_back(saved: dict[str, Any]) -> None:
    """Set them in this process."""
    sys.dont_write_bytecode, sys.pycache_prefix = saved["bytecode"]
    sys.setdlopenflags(saved["dlopen"])
    debug, callbacks = saved["collector"]
    gc.set_debug(debug)
    gc.callbacks.extend(each for each in callbacks if each not in gc.callbacks)
    if "sockets" in saved:
        import socket

        socket.setdefaulttimeout(saved["sockets"])
    if "temporary" in saved:
        import tempfile

        tempfile.tempdir = saved["temporary"]
