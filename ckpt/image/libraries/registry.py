"""Ready-made ways to save what libraries hold in C: used without being asked for, once the program has imported the library.

===================  ==================================================================================================
library              in an image
===================  ==================================================================================================
``sqlite3``          connections to files (opened again, settings kept) and in memory (with their content); :mod:`.sqlite`
``h5py``             files, groups and data sets, opened again; flushed before the image; :mod:`.hdf5`
``netCDF4``          data sets and what belongs to them, likewise; :mod:`.netcdf`
``pandas``           tables that are read in pieces (``chunksize``), read again up to the row; :mod:`.tables`
``PIL``              pictures that are just being read or written; :mod:`.pictures`
``matplotlib``       figures that are just being drawn (Agg); :mod:`.pictures`
``filelock``         locks that are held (taken again), or not; :mod:`.filelocks`
``mmap``             mapped files and anonymous memory, with content; :mod:`.mapped` (``numpy.memmap``: numpy_arrays)
``hashlib``          digests under way (MD5, SHA-1, SHA-2, SHA-3 of OpenSSL 3, BLAKE2); :mod:`.digests`,
                     :mod:`.blake`
``zlib``             data being compressed: gzip and zip files being written; :mod:`.deflate`
``bz2``, ``lzma``    files being written; :mod:`.streams`
``regex``            matches, and what ``finditer`` has left; as those of ``re``
``gmpy2``,           contexts; compiled expressions: what these keep in context variables; :mod:`.arithmetic`
``numexpr``
``logging``          handlers and levels (:mod:`ckpt.image.reducers.logs`)
===================  ==================================================================================================

What they do to files is a matter of each: see the modules. :func:`ckpt.ready.roll_back` asks for more.

Nothing is imported here that the program has not imported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["before_image", "reducers"]

_WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "sqlite3": ("ckpt.image.stdlib.sqlite", {"Connection": "reduce_connection", "Cursor": "reduce_cursor"}),
    "h5py": (
        "ckpt.image.libraries.hdf5",
        {"File": "reduce_file", "Group": "reduce_member", "Dataset": "reduce_member"},
    ),
    "h5py.h5f": ("ckpt.image.libraries.hdf5", {"FileID": "reduce_identifier"}),
    "h5py.h5g": ("ckpt.image.libraries.hdf5", {"GroupID": "reduce_member_identifier"}),
    "h5py.h5d": ("ckpt.image.libraries.hdf5", {"DatasetID": "reduce_member_identifier"}),
    "netCDF4": (
        "ckpt.image.libraries.netcdf",
        {
            "Dataset": "reduce_data_set",
            "Group": "reduce_group",
            "Dimension": "reduce_dimension",
            "Variable": "reduce_variable",
        },
    ),
    "_hashlib": (
        "ckpt.image.stdlib.digests",
        {"HASH": "reduce_digest", "HASHXOF": "reduce_digest", "HMAC": "reduce_hmac"},
    ),
    "zlib": ("ckpt.image.stdlib.compressors", {"compressobj": "reduce_deflating"}),
    "_bz2": ("ckpt.image.stdlib.compressed_files", {"BZ2Compressor": "reduce_compressor"}),
    "_lzma": ("ckpt.image.stdlib.compressed_files", {"LZMACompressor": "reduce_compressor"}),
    "ckpt.image.stdlib.compressors": ("ckpt.image.stdlib.compressors", {"Deflating": "reduce_deflating"}),
    "ckpt.image.stdlib.compressed_files": (
        "ckpt.image.stdlib.compressed_files",
        {"FurtherStream": "reduce_stream"},
    ),
    "types": ("ckpt.image.stdlib.compressors", {"MethodDescriptorType": "reduce_method"}),
    "_blake2": ("ckpt.image.stdlib.blake", {"blake2b": "reduce_digest", "blake2s": "reduce_digest"}),
    "filelock": (
        "ckpt.image.libraries.filelocks",
        {"UnixFileLock": "reduce_lock", "SoftFileLock": "reduce_lock"},
    ),
    "mmap": ("ckpt.image.stdlib.mapped", {"mmap": "reduce_map"}),
    "pandas.io.parsers.readers": ("ckpt.image.libraries.pandas_tables", {"TextFileReader": "reduce_reader"}),
    "regex": ("ckpt.image.stdlib.c_objects", {"Match": "reduce_match", "finditer": "reduce_remaining"}),
    "gmpy2": ("ckpt.image.libraries.arithmetic", {"context": "reduce_context"}),
    "numexpr.interpreter": ("ckpt.image.libraries.arithmetic", {"NumExpr": "reduce_expression"}),
    "PIL._imaging": ("ckpt.image.libraries.pictures", {"new": "reduce_picture"}),
    "matplotlib.backends._backend_agg": ("ckpt.image.libraries.pictures", {"RendererAgg": "reduce_canvas"}),
}
"""Library → module of ours, and its reducers by the name of the type in the library (or of what makes one)."""

_MAKERS: dict[str, tuple[Any, ...]] = {"new": ("1", (1, 1)), "compressobj": (), "finditer": ("", "")}
"""Functions that make objects of a type without a name, and what to call them with."""


def reducers() -> dict[type, Callable[[Any, Any], Any]]:
    """Reducers by exact type, ``reduce(pickler, obj)``, of the libraries that are loaded."""
    found: dict[type, Callable[[Any, Any], Any]] = {}
    for library, (ours, types) in _WAYS.items():
        module = sys.modules.get(library)
        for name, reducer in types.items():
            cls = getattr(module, name, None)
            if name in _MAKERS and cls is not None:
                cls = type(cls(*_MAKERS[name]))
            if isinstance(cls, type):
                found[cls] = partial(_reduce, ours, reducer)
    return found


def _reduce(ours: str, reducer: str, pickler: Any, obj: Any) -> Any:
    """Ours is imported when the first such object is met."""
    return getattr(importlib.import_module(ours), reducer)(pickler, obj)


def before_image() -> None:
    """In the parent, just before the image: what must reach the disk first."""
    if "h5py" in sys.modules:
        from ckpt.image.libraries.hdf5 import flush_all

        flush_all()
    if "netCDF4" in sys.modules:
        from ckpt.image.libraries import netcdf

        netcdf.flush_all()
