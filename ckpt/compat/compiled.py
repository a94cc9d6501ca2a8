"""Modules in C that are older than the Python code beside them, as after a ``git pull`` without a build.

Python code that uses a name of such a module fails with an AttributeError or ImportError somewhere. Who starts a process
asks :func:`stale` about a failure, so that the user reads what is to be done, and for no module anything is compared at the
start.

Not here: modules that were compiled for another version of Python (:mod:`ckpt.image.frames.selftest`).
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

__all__ = ["stale"]

_OWN = "ckpt."


def stale(failure: BaseException) -> str | None:
    """What a message says of the failure, if it comes from a module in C that has not been built since its Python code was
    changed; None: it does not."""
    if isinstance(failure, AttributeError):
        found = _module_of(failure.obj)
        return _text(found, f"it has no {failure.name!r}") if found else None
    if isinstance(failure, ModuleNotFoundError):
        name = failure.name or ""
        is_compiled = name.startswith(_OWN) and name.rpartition(".")[2].startswith("_")
        return _text(name, "it has never been built") if is_compiled else None
    if isinstance(failure, ImportError) and str(failure.name).startswith(_OWN) and _is_compiled(failure.path):
        return _text(str(failure.name), f"{failure.msg}")
    return None


def _module_of(obj: Any) -> str | None:
    """The name of the module in C that the object is, or of whose type it is."""
    name = obj.__name__ if type(obj) is type(sys) else type(obj).__module__
    if type(name) is not str or not name.startswith(_OWN):
        return None
    return name if _is_compiled(getattr(sys.modules.get(name), "__file__", None)) else None


def _is_compiled(path: str | None) -> bool:
    return path is not None and path.endswith(tuple(EXTENSION_SUFFIXES))


def _text(module: str, why: str) -> str:
    return (
        f"the compiled module {module} does not fit the Python code that uses it ({why}): it was not built again after a "
        "change of the sources. Run `make setup` in the repository, or `pip install -e .`"
    )
