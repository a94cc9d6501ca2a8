"""Runs a program as ``python app.py``, ``python -m app`` or ``python -c code`` would, but so that its stack can be captured.

The program runs under :func:`ckpt.image.frames.running.run_base`, and only frames inside of that are captured. ``__main__``
is a new module: it holds nothing of the launcher, so nothing of the launcher gets into an image. ``sys.argv`` and
``sys.path[0]`` are set as Python sets them. Directories and archives with a ``__main__.py`` can be run too.

Errors that Python itself would report (no such file, a syntax error, no such module) are raised unchanged:
:class:`OSError`, :class:`SyntaxError`, :class:`ImportError`.

Not here: programs that go on from an image (:mod:`ckpt.image.loading`).
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable, Sequence

from ckpt.compat.stdlib import module_code
from ckpt.image.files.descriptors import note_baseline
from ckpt.image.frames.running import run_base
from ckpt.image.modules import package_baseline
from ckpt.image.process import exits, limits
from ckpt.image.threads import waking

__all__ = ["prepare_program", "run_program"]


def run_program(*words: str) -> None:
    """Run a program to its end. ``words``: as for :func:`prepare_program`."""
    prepare_program(words)()


def prepare_program(words: Sequence[str]) -> Callable[[], object]:
    """Set ``sys.argv``, ``sys.path[0]`` and ``__main__``. Returns the function that then runs the program.

    ``words``: the words of the command line after ``python``: a script, ``-m`` and a module, or ``-c`` and code; then the
    arguments. Raises OSError, SyntaxError, ImportError.
    """
    target, arguments = words[0], list(words[1:])
    package_baseline.watch()  # before `-m package.module` imports the package
    if target == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = [target, *arguments[1:]]
        code, attributes = compile(arguments[0], "<string>", "exec", dont_inherit=True), _NO_FILE
    elif target == "-m":
        target, *arguments = arguments
        code, attributes = _find_module(target)
        sys.argv[:] = [str(attributes["__file__"]), *arguments]
    elif os.path.isdir(target) or _is_archive(target):
        sys.path.insert(0, os.path.abspath(target))
        sys.argv[:] = [target, *arguments]
        code, attributes = _find_module("__main__")
    else:
        code, attributes = _read_script(target)
        sys.argv[:] = [target, *arguments]
        sys.path.insert(0, os.path.dirname(os.path.realpath(target)))
    main = types.ModuleType("__main__")
    main.__dict__.update(attributes, __builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    exits.install()
    note_baseline()
    limits.note_baseline()
    waking.prepare()
    namespace = main.__dict__
    return lambda: run_base(exec, code, namespace)


_NO_FILE: dict[str, object] = {
    "__package__": None,
    "__spec__": None,
    "__loader__": importlib.machinery.BuiltinImporter,
}


def _read_script(path: str) -> tuple[types.CodeType, dict[str, object]]:
    path = os.path.abspath(path)
    with io.open_code(path) as file:
        source = file.read()
    code = compile(source, path, "exec", dont_inherit=True)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    return code, {
        "__file__": path,
        "__cached__": None,
        "__package__": None,
        "__spec__": None,
        "__loader__": loader,
    }


def _find_module(name: str) -> tuple[types.CodeType, dict[str, object]]:
    if name != "__main__":
        sys.path.insert(0, os.getcwd())
    else:
        sys.modules.pop("__main__", None)  # else runpy would find the launcher's __main__
    code, spec = module_code(name)
    attributes: dict[str, object] = {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__package__": spec.parent,
        "__loader__": spec.loader,
        "__spec__": spec,
    }
    return code, attributes


def _is_archive(path: str) -> bool:
    if path.endswith((".py", ".pyw")) or not os.path.isfile(path):
        return False
    import zipfile

    return zipfile.is_zipfile(path)
