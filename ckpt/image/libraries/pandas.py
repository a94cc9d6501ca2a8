"""pandas: options, and tables that its parser in C reads in pieces (``read_csv(..., chunksize=n)`` and ``iterator=True``).

The parser does not tell where in the file it is, but pandas counts the rows it has returned. So a restart makes a new parser
at the beginning of the file, which reads that many rows again; this takes as long as the first reading did.

Rules
- Only files that pandas itself has opened: only then is it known that the parser began at the beginning of the file.
- While rows are being read the count is not current, so no image is taken at that moment.

Readers with a parser written in Python (``engine="python"``) are ordinary objects.

Copy on write: tables, series and indexes may share memory until one of them is written to. Which ones do is in the objects
``BlockValuesRefs`` of their blocks, which pandas' own pickling leaves out, since plain pickle copies the memory. An image
keeps shared memory shared, so it keeps these objects, too: otherwise, after a restart, writing to one table would change
the others.
"""

from __future__ import annotations

import importlib
import sys
from pickle import PicklingError
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.files.reopen import make_reader
from ckpt.image.frames import _frames
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Pandas"]

_AT_ONCE_ROWS = 100_000
_STORES = "pandas.io.pytables"
_HAS_TABLES = f"{_STORES}:tables"
"""Not the name of an option. An ``HDFStore`` that comes back is not opened by pandas, which imports PyTables for its stores,
in a variable of its own, when it opens the first one."""


class Pandas(Library):
    is_left_alone = True
    transient_types = ("pandas._libs.hashtable",)
    transient_functions = (("pandas.io.parsers.readers:TextFileReader.read", "a table is being read"),)

    def reducers(self) -> dict[type, Reducer]:
        return by_name("pandas.io.parsers.readers", {"TextFileReader": reduce_reader})

    def reducer_by_base(self, cls: type) -> Reducer | None:
        """For parts of tables, in process images only: plain pickle copies their memory."""
        frames = sys.modules.get("pandas.core.generic")
        if issubclass(cls, getattr(frames, "NDFrame", ())):
            return reduce_raw  # its own way makes new flags
        if cls.__module__.partition(".")[0] != "pandas":
            return None
        internals = sys.modules.get("pandas._libs.internals")
        managers = sys.modules.get("pandas.core.internals.managers")
        indexes = sys.modules.get("pandas.core.indexes.base")
        engines = sys.modules.get("pandas._libs.index")
        return next(
            (
                reduce
                for module, name, reduce in (
                    (internals, "BlockPlacement", reduce_placement),
                    (internals, "BlockValuesRefs", reduce_references),
                    (internals, "Block", reduce_block),
                    (managers, "SingleBlockManager", reduce_single),
                    (indexes, "Index", reduce_index),
                    (engines, "IndexEngine", reduce_engine),
                )
                if issubclass(cls, getattr(module, name, ()))
            ),
            None,
        )

    def when_imported(self) -> None:
        """Images may be taken while `Series.map` and `apply` call a function of the program for each value."""
        compiled = sys.modules.get("pandas._libs.lib")
        for name in ("map_infer", "map_infer_mask"):
            function = getattr(compiled, name, None)
            if _frames.SUPPORTED and function is not None:
                _frames.follow_function(function, 1)

    def note_settings(self) -> dict[str, Any]:
        config = sys.modules.get("pandas._config.config")
        found = _flat(getattr(config, "_global_config", {}), "")
        if getattr(sys.modules.get(_STORES), "_table_mod", None) is not None:
            found[_HAS_TABLES] = True
        return found

    def apply_settings(self, saved: dict[str, Any]) -> None:
        """Set the options that differ from the saved ones. Callbacks of options run, as when the program set them."""
        present = self.note_settings()
        for key, value in saved.items():
            if key in present and present[key] is not value and present[key] != value:
                self.module.set_option(key, value)
        if saved.get(_HAS_TABLES):
            importlib.import_module(_STORES)._tables()


def _flat(options: dict[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def reduce_placement(pickler: Any, placement: Any) -> Any:
    return type(placement), (placement.indexer,)


def reduce_references(pickler: Any, references: Any) -> Any:
    """Which blocks and indexes share their memory: weak references to them."""
    state = references.referenced_blocks, getattr(references, "clear_counter", None)
    return type(references), (), state, None, None, fill_references


def reduce_block(pickler: Any, block: Any) -> Any:
    make, args = block.__reduce__()[:2]
    return make, args, getattr(block, "refs", None), None, None, fill_block


def reduce_single(pickler: Any, manager: Any) -> Any:
    """The manager of a series: its own way makes a new block."""
    if len(manager.blocks) != 1 or len(manager.axes) != 1:
        return NotImplemented
    return type(manager), (manager.blocks[0], manager.axes[0])


def reduce_index(pickler: Any, index: Any) -> Any:
    """A range makes its array, and this object, when they are needed, so both are new in a new process."""
    reduced = index.__reduce_ex__(5)
    references = vars(index).get("_references")
    if references is None or any(part is not None for part in reduced[2:]):
        return reduced
    return *reduced[:2], references, None, None, fill_index


def reduce_engine(pickler: Any, engine: Any) -> Any:
    """What an index looks up its values with: made of them when it is needed."""
    values = getattr(engine, "values", None)
    cls = type(engine)
    if (
        cls.__module__ != "pandas._libs.index"
        or type(values).__module__ != "numpy"
        or "String" in cls.__name__
    ):
        return NotImplemented
    return type(engine), (values,)


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


def fill_references(references: Any, saved: tuple[list[Any], int | None]) -> None:
    blocks, counter = saved
    references.referenced_blocks = blocks
    if counter is not None:
        references.clear_counter = counter


def fill_block(block: Any, references: Any) -> None:
    if references is not None:
        block.refs = references


def fill_index(index: Any, references: Any) -> None:
    index._references = references


class _Closed:
    """Stands for the parser of a closed reader."""

    def close(self) -> None:
        """Do nothing: the parser is closed already."""

    def read(self, nrows: int | None = None) -> Any:
        raise ValueError("I/O operation on closed file.")
