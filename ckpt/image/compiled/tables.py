"""tables (PyTables): files, their nodes and attributes, and the row that is being filled.

As with h5py (:mod:`ckpt.image.libraries.hdf5`): before an image all files are flushed in the program's own process,
rows that were appended included. At a restart a file is opened again at its path, for reading or for reading and
writing as before, and nodes are found again by their paths. **The content is not rolled back** by this module.

While a table is being written no image is taken, however long that takes: flushing it then would add the same rows to its
index once more, in the program's own process.

The row for appending (``table.row``) gets the values again that it had. Rows of a loop over a table, closed nodes,
and files with a driver of their own are refused by name.
"""

from __future__ import annotations

import os
from typing import Any

from ckpt.image.errors import ObjectRefused, RestoreError
from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Tables"]

_WRITING = (
    *("Table.append", "Table.flush", "Table.flush_rows_to_index", "Table._save_buffered_rows"),
    *("Table.modify_rows", "Table.modify_columns", "Table.modify_column", "Table.modify_coordinates"),
    *("Table.remove_rows", "Table.reindex", "Table.reindex_dirty", "_column__create_index"),
)


class Tables(Library):
    transient_functions = (
        ("tables.file:open_file", "a file of PyTables is being opened"),
        ("tables.file:File.close", "a file of PyTables is being closed"),
        *((f"tables.table:{name}", "a table of PyTables is being written") for name in _WRITING),
    )
    moment_limit_s = 1e9  # what such a call has half done is not in an image

    def reducers(self) -> dict[type, Reducer]:
        return {
            **by_name("tables.file", {"File": reduce_file}),
            **by_name("tables.attributeset", {"AttributeSet": reduce_attributes}),
            **by_name("tables.table", {"Cols": reduce_columns, "Column": reduce_columns}),
            **by_name("tables.tableextension", {"Row": reduce_row}),
        }

    def reducer_by_base(self, cls: type) -> Reducer | None:
        node = getattr(self.module, "Node", None)
        return reduce_node if node is not None and issubclass(cls, node) else None

    def before_image(self) -> None:
        files = getattr(getattr(self.module, "file", None), "_open_files", None)
        for file in list(files.handlers) if files is not None else ():
            if file.mode != "r":
                file.flush()


def reduce_file(pickler: Any, file: Any) -> Any:
    if not file.isopen:
        return make_closed, ()
    if file.params["DRIVER"]:
        raise ObjectRefused(
            file,
            f"the file {file.filename!r} of PyTables has the driver {file.params['DRIVER']}; close it before a checkpoint",
        )
    descriptor = file.fileno()
    pickler.owned.add(descriptor)
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    name = file.filename if os.path.abspath(file.filename) == path else path
    mode = "r" if file.mode == "r" else "r+"
    return open_again, (name, mode, file.root_uep, file.filters, dict(file.params))


def reduce_node(pickler: Any, node: Any) -> Any:
    if not node._v_isopen:
        raise ObjectRefused(node, "a node of PyTables that has been closed; keep none in variables")
    return find_node, (node._v_file, node._v_pathname)


def reduce_attributes(pickler: Any, attributes: Any) -> Any:
    return getattr, (attributes._v_node, "_v_attrs")


def reduce_columns(pickler: Any, columns: Any) -> Any:
    is_column = hasattr(columns, "table")
    table = columns.table if is_column else columns._v_table
    return find_columns, (table, columns.pathname if is_column else columns._v_desc._v_pathname)


def reduce_row(pickler: Any, row: Any) -> Any:
    table = row.table
    if row is not table.row:
        raise ObjectRefused(
            row, "a row of a loop over a table of PyTables; read pieces of the table instead: table[a:b]"
        )
    if row._get_unsaved_nrows():
        raise ObjectRefused(
            row, "a row of PyTables has been appended in this very moment; it is saved at the next attempt"
        )
    return getattr, (table, "row"), {name: row[name] for name in table.colnames}, None, None, fill_row


# ---------------------------------------------------------------------- called while loading


def open_again(path: str, mode: str, root: str, filters: Any, parameters: dict[str, Any]) -> Any:
    import tables  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        return tables.open_file(path, mode, root_uep=root, filters=filters, **parameters)
    except (OSError, tables.HDF5ExtError) as failure:
        raise RestoreError(f"the file {path!r} of PyTables cannot be opened again: {failure}") from failure


def make_closed() -> Any:
    import tables

    made = tables.open_file("closed", "w", driver="H5FD_CORE", driver_core_backing_store=0)
    made.close()
    return made


def find_node(file: Any, path: str) -> Any:
    import tables

    try:
        return file.get_node(path)
    except tables.NoSuchNodeError:
        raise RestoreError(f"the file {file.filename!r} has no node {path!r} any more") from None


def find_columns(table: Any, path: str) -> Any:
    return table.cols._f_col(path) if path else table.cols


def fill_row(row: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        row[name] = value
