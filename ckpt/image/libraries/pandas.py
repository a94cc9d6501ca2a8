"""pandas: options, and tables that its parser in C reads in pieces (``read_csv(..., chunksize=n)`` and ``iterator=True``).

The parser does not tell where in the file it is, but pandas counts the rows it has returned. So a restart makes a new parser
at the beginning of the file, which reads that many rows again; this takes as long as the first reading did.

Rules
- Only files that pandas itself has opened: only then is it known that the parser began at the beginning of the file.
- While rows are being read the count is not current, so no image is taken at that moment.

Readers with a parser written in Python (``engine="python"``) are ordinary objects.
"""

from __future__ import annotations

import sys
from pickle import PicklingError
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.files.reopen import make_reader
from ckpt.image.frames import _frames
from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Pandas"]

_AT_ONCE_ROWS = 100_000


class Pandas(Library):
    is_left_alone = True
    transient_functions = (("pandas.io.parsers.readers:TextFileReader.read", "a table is being read"),)

    def reducers(self) -> dict[type, Reducer]:
        return by_name("pandas.io.parsers.readers", {"TextFileReader": reduce_reader})

    def when_imported(self) -> None:
        """Images may be taken while `Series.map` and `apply` call a function of the program for each value."""
        compiled = sys.modules.get("pandas._libs.lib")
        for name in ("map_infer", "map_infer_mask"):
            function = getattr(compiled, name, None)
            if _frames.SUPPORTED and function is not None:
                _frames.follow_function(function, 1)

    def note_settings(self) -> dict[str, Any]:
        config = sys.modules.get("pandas._config.config")
        return _flat(getattr(config, "_global_config", {}), "")

    def apply_settings(self, saved: dict[str, Any]) -> None:
        """Set the options that differ from the saved ones. Callbacks of options run, as when the program set them."""
        present = self.note_settings()
        for key, value in saved.items():
            if key in present and present[key] is not value and present[key] != value:
                self.module.set_option(key, value)


def _flat(options: dict[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def reduce_reader(pickler: Any, reader: Any) -> Any:
    """The reducer for ``TextFileReader``. Raises PicklingError: the file is not one that pandas has opened."""
    parser = reader.__dict__.get("_engine")
    if type(parser).__name__ != "CParserWrapper":
        return NotImplemented
    handles = reader.handles
    is_closed = handles is None or getattr(handles.handle, "closed", True)
    if not is_closed:
        is_opened_by_pandas = any(handles.handle is handle for handle in handles.created_handles)
        if not is_opened_by_pandas or handles.is_wrapped or reader.options.get("memory_map"):
            raise PicklingError(
                "a table is read in pieces from a file object of the program's own, or a mapped one; "
                "give pandas the file's name, or read with engine='python'"
            )
    attributes = {name: value for name, value in reader.__dict__.items() if name != "_engine"}
    return make_reader, (type(reader),), (attributes, is_closed), None, None, fill_reader


def fill_reader(reader: Any, saved: tuple[dict[str, Any], bool]) -> None:
    """Make a new parser, and read the rows that had been read before. Raises RestoreError: the file has fewer rows."""
    attributes, is_closed = saved
    reader.__dict__.update(attributes)
    if is_closed:
        reader._engine = _Closed()
        return
    from pandas.io.parsers.c_parser_wrapper import CParserWrapper

    file = reader.handles.handle
    file.seek(0)
    reader._engine = parser = CParserWrapper(file, **reader.options)
    left = reader._currow
    while left:
        try:
            index, _, columns = parser.read(min(left, _AT_ONCE_ROWS))
        except StopIteration:
            index, columns = None, {}
        found = len(index) if index is not None else len(next(iter(columns.values()), ()))
        if not found:
            raise RestoreError(
                f"the table in {getattr(file, 'name', '?')!r} has fewer rows than had been read of it: it has changed"
            )
        left -= found


class _Closed:
    """Stands for the parser of a closed reader."""

    def close(self) -> None:
        """Do nothing: the parser is closed already."""

    def read(self, nrows: int | None = None) -> Any:
        raise ValueError("I/O operation on closed file.")
