"""Standard input of a rank: the file that rank 0 has been given, or nothing. (driver)"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

from ckpt.errors import NoInput

__all__ = ["no_input", "open_at", "open_input"]


def open_input(spec: Mapping[str, Any], *, is_first: bool) -> Mapping[str, Any] | None:
    """Open fd 0: the file that rank 0 (``is_first``) has been given, or /dev/null. Returns what standard input is, for
    :func:`no_input`; None: nothing was given."""
    given: Mapping[str, Any] | None = None
    if is_first:
        given = spec.get("options", {}).get("stdin")
    if not given or given["kind"] != "file":
        open_at(0, os.devnull, os.O_RDONLY)
        return given
    try:
        open_at(0, given["path"], os.O_RDONLY)
    except OSError as failure:
        open_at(0, os.devnull, os.O_RDONLY)
        text = f"a file that cannot be opened any more: {given['path']}: {failure.strerror}"
        return {"kind": "lost", "text": text}
    os.lseek(0, given["offset"], os.SEEK_SET)
    return given


def open_at(fd: int, path: str, flags: int) -> None:
    opened = os.open(path, flags, 0o600)
    if opened != fd:
        os.dup2(opened, fd)
        os.close(opened)


def no_input(standard_input: Mapping[str, Any]) -> _NoInput:
    if standard_input["kind"] == "lost":
        return _NoInput(f"standard input is {standard_input['text']}. Put it back, and start the job again")
    return _NoInput(
        f"standard input is {standard_input['kind']}: what is read from it could not be read again after a restart. "
        "Give a file (ckpt run APP.PY < FILE), or nothing (< /dev/null)"
    )


class _NoInput(io.RawIOBase):
    """Standard input that cannot be read, or not again after a restart. Each read raises NoInput, which gives the reason."""

    name = "<stdin>"

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def readinto(self, _: object) -> int:
        raise NoInput(self.reason)
