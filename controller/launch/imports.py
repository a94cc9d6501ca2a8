"""Which modules a program imports, and which of them a host has: one that lacks a module gets no ranks. (driver)

Told when an agent dials in, so before ranks run there, also on a spare: ranks that were started there after the loss of
another host would end at once, and with them the job.

Looked at are `import` statements which are carried out whenever the program runs: those that stand by themselves at the
beginning of a line, in the script and in the modules beside it that it imports so. Not those in functions, `try` and `if`:
a program that can do without a module says so in one of these. Of a module only its first name counts, not its version.
Nothing is imported for that.

Not here: what is compared, and all packages of a host with their versions (:mod:`ckpt.controller.hosts`).
"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["imported", "lacks", "modules_of"]

_MOST_FILES: Final = 200
"""So many files of the program's own are read."""


def imported(source: bytes) -> list[str]:
    """The first names of the modules that this code imports whenever it runs, without the standard library's; none of what
    is no Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    found: dict[str, None] = {}
    for each in body:
        if isinstance(each, ast.Import):
            found |= dict.fromkeys(name.name.partition(".")[0] for name in each.names)
        elif isinstance(each, ast.ImportFrom) and not each.level and each.module:
            found[each.module.partition(".")[0]] = None
    return [name for name in found if name not in sys.stdlib_module_names]


def modules_of(options: Mapping[str, Any], directory: str) -> dict[str, bool] | None:
    """The modules that the job's script imports, and whether this host has them; None: the job has no script.
    `directory`: in which the job works."""
    noted = options.get("script")
    if not isinstance(noted, dict):
        return None
    script = os.path.join(directory, noted["path"])
    beside = os.path.dirname(os.path.realpath(script))
    ours = {"ckpt", "mpi4py"} if options.get("mpi4py", True) else {"ckpt"}
    found: dict[str, bool] = {}
    files = [script]
    for path in files:  # which grows
        try:
            with open(path, "rb") as file:
                names = imported(file.read())
        except OSError:
            continue
        for name in names:
            if name in found or name in ours:
                continue
            origin = _origin(name, beside)
            found[name] = origin is not None
            if origin is not None and _is_own(origin, beside) and len(files) < _MOST_FILES:
                files.append(origin)
    return found


def _origin(name: str, beside: str) -> str | None:
    """The file of a module; None: there is no such module, or only directories of that name."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        spec = importlib.machinery.PathFinder.find_spec(name, [beside, *sys.path])
        if spec is None or spec.origin is None:
            spec = importlib.util.find_spec(name)
        return None if spec is None else spec.origin
    return None


def _is_own(path: str, directory: str) -> bool:
    """Is it a file of the program's own?"""
    return path.endswith(".py") and path.startswith(f"{directory}/") and "-packages/" not in path


def lacks(here: Mapping[str, bool] | None, there: Mapping[str, bool] | None) -> list[str]:
    """What a host lacks and this one has. None: not known."""
    return (
        []
        if here is None or there is None
        else [name for name, is_here in here.items() if is_here and there.get(name) is False]
    )
