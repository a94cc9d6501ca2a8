"""Standard input of a rank: the file that rank 0 has been given, or nothing. (driver)

The file may be one that a restart puts back, which it does when all ranks have loaded their images. So a rank that waits for
that opens the file then (:func:`open_again`); what it had opened before was a file of that path, or an empty one.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

from ckpt.errors import NoInput

__all__ = ["open_again", "open_at", "open_input", "raw_input"]


def open_input(spec: Mapping[str, Any], *, is_first: bool) -> Mapping[str, Any] | None:
    """Open fd 0: the file that rank 0 (``is_first``) has been given, or /dev/null. Returns what standard input is, for
    :func:`raw_input`; None: nothing was given."""
    given: Mapping[str, Any] | None = None
    if is_first:
        given = spec.get("options", {}).get("stdin")
    if not given or given["kind"] != "file":
        open_at(0, os.devnull, os.O_RDONLY)
        return given
    try:
        open_at(0, given["path"], os.O_RDONLY)
    except OSError as failure:
        if not _waits(spec):
            open_at(0, os.devnull, os.O_RDONLY)
            return _lost(given, failure)
        _put(os.memfd_create("input", os.MFD_CLOEXEC), 0)
    os.lseek(0, given["offset"], os.SEEK_SET)
    return given


def raw_input(spec: Mapping[str, Any], standard_input: Mapping[str, Any] | None) -> io.RawIOBase:
    """The raw file of ``sys.stdin``, over fd 0. ``standard_input``: what :func:`open_input` has returned."""
    if not standard_input:
        return io.FileIO(0, closefd=False)
    if standard_input["kind"] == "file":
        return _LateInput(standard_input) if _waits(spec) else io.FileIO(0, closefd=False)
    return _NoInput(_reason(standard_input))


def open_again(stream: Any) -> None:
    """Files have been put back. ``stream``: ``sys.__stdin__`` over what :func:`raw_input` has made, or any other file."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    if isinstance(raw, _LateInput):
        raw.open_again()


def _waits(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("options", {}).get("files_wait"))


def _lost(given: Mapping[str, Any], failure: OSError) -> Mapping[str, Any]:
    text = f"a file that cannot be opened any more: {given['path']}: {failure.strerror}"
    return {"kind": "lost", "text": text}


def open_at(fd: int, path: str, flags: int) -> None:
    _put(os.open(path, flags, 0o600), fd)


def _put(opened: int, fd: int) -> None:
    if opened != fd:
        os.dup2(opened, fd)
        os.close(opened)


def _reason(standard_input: Mapping[str, Any]) -> str:
    if standard_input["kind"] == "lost":
        return f"standard input is {standard_input['text']}. Put it back, and start the job again"
    return (
        f"standard input is {standard_input['kind']}: what is read from it could not be read again after a restart. "
        "Give a file (ckpt run APP.PY < FILE), or nothing (< /dev/null)"
    )


class _LateInput(io.FileIO):
    """Standard input that is opened again when files have been put back. Where that cannot be done, it is as
    :class:`_NoInput` from then on."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(0, "r", closefd=False)
        self._given = given
        self.reason = ""

    def open_again(self) -> None:
        try:
            open_at(0, self._given["path"], os.O_RDONLY)
        except OSError as failure:
            open_at(0, os.devnull, os.O_RDONLY)
            self.reason = _reason(_lost(self._given, failure))
            return
        os.lseek(0, self._given["offset"], os.SEEK_SET)

    def seekable(self) -> bool:
        return not self.reason and super().seekable()

    def readinto(self, buffer: Any, /) -> int:
        self._check()
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self._check()
        return super().readall()

    def read(self, size: int | None = -1, /) -> Any:
        self._check()
        return super().read(-1 if size is None else size)

    def _check(self) -> None:
        if self.reason:
            raise NoInput(self.reason)


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
