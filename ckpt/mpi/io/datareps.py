"""Data representations that a program registers: a name can be taken once. Views cannot use them."""

from __future__ import annotations

from typing import Any

from ckpt.mpi.base.errors import ERR_ARG, ERROR_CLASSES, MpiException
from ckpt.mpi.io.handle import defaults
from ckpt.mpi.io.properties import _DATAREPS


def Register_datarep(datarep: str, read_fn: Any, write_fn: Any, extent_fn: Any) -> None:
    """Take a name for a representation. MpiException: ERR_DUP_DATAREP, ERR_ARG (the name is too long)."""
    known = defaults().datareps
    if datarep in known or datarep in _DATAREPS:
        raise MpiException(ERROR_CLASSES["ERR_DUP_DATAREP"], f"representation {datarep!r}")
    if not 0 < len(datarep) <= 128:
        raise MpiException(ERR_ARG, "the name of a representation has 1 to 128 characters")
    known[datarep] = read_fn, write_fn, extent_fn
