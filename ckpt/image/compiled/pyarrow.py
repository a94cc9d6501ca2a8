"""pyarrow: open Parquet files are refused by name. Tables, arrays, schemas, data sets are pickled by pyarrow itself.

Of a file that is being written (``ParquetWriter``) the places and statistics of its row groups are in C++ until it is
closed. One that is being read (``ParquetFile``) does not tell its path.
"""

from __future__ import annotations

from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["PyArrow"]


class PyArrow(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("pyarrow.parquet.core", {"ParquetFile": refuse_reader, "ParquetWriter": refuse_writer})


def refuse_reader(pickler: Any, file: Any) -> Any:
    raise ObjectRefused(
        file,
        "a Parquet file that is open for reading (ParquetFile): pyarrow does not tell its path; read it by "
        "pyarrow.dataset, or open it again in ckpt.on_restart",
    )


def refuse_writer(pickler: Any, writer: Any) -> Any:
    raise ObjectRefused(
        writer,
        f"a Parquet file that is being written ({writer.where!r}): what pyarrow knows of it is in C++ until it is "
        "closed; write a file for each part, and close it before a checkpoint (an on_checkpoint hook can do both)",
    )
