"""Signatures first; the body follows."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .fsio import Buffer, FileSystem
from .job import JobDirectory

__all__ = ["ImageReceipt", "ImageWriter"]


@dataclass(frozen=True)
class ImageReceipt:
    """What a vote carries; the image is durable. `manifest_path` is relative to the job."""

    manifest_path: str
    digest: str
    bytes_raw: int
    bytes_written: int
    timings_ns: dict[str, int]


class ImageWriter:
    """Writes one rank's image of one epoch."""

    def __init__(
        self,
        job: JobDirectory,
        *,
        rank: int,
        incarnation: int,
        label: tuple[int, int],
        threads: int | None = None,
        incremental: bool = True,
        fs: FileSystem | None = None,
    ) -> None:
        raise NotImplementedError

    def write(self, data: Buffer) -> None:
        raise NotImplementedError

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        raise NotImplementedError

    def finish(self, meta: Mapping[str, Any]) -> ImageReceipt:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError
