"""Signatures first; the body follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

from .control import RankEntry
from .fsio import FileSystem
from .job import JobDirectory

__all__ = ["ImageReader"]


class ImageReader:
    """One rank's image, all of it verified before the first byte is handed out."""

    meta: Mapping[str, Any]

    def __init__(
        self,
        job: JobDirectory,
        entry: RankEntry | None = None,
        *,
        epoch: int | None = None,
        rank: int | None = None,
        threads: int | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        raise NotImplementedError

    def stream(self) -> BinaryIO:
        raise NotImplementedError

    def buffers(self) -> list[memoryview]:
        raise NotImplementedError
