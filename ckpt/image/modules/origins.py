"""Decides whether a module is the program's, which is saved by value, or installed, which is saved by reference.

Rules
    =========================================================  ===============================================
    module                                                     in the image
    =========================================================  ===============================================
    ``__main__``                                               by value
    written by the user: a Python file (or namespace package)  by value
    outside the standard library and ``site-packages``, also
    one with another suffix, of a loader of its own
    standard library, installed packages, C extensions         by reference: imported again at load
    ``ckpt``, ``transport``, ``controller``                    by reference, even in editable mode
    libraries that other distributions have classes for, and   likewise
    the modules of these classes (docs/extending.md)
    a module object that is not in ``sys.modules``             by value, as an ordinary object
    without a file: made by hand, of a class or of a loader    by value
    (``sys.meta_path``) that the program has defined
    =========================================================  ===============================================

Not here: how an image refers to modules and to the objects in them (:mod:`ckpt.image.modules.references`).
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import types
from importlib.machinery import EXTENSION_SUFFIXES

from ckpt import version
from ckpt.compat.memory import is_made_from_definition
from ckpt.image.lowlevel.inspect_raw import package_of

__all__ = ["SECOND_NAMES", "OWN_PACKAGES", "is_by_value", "is_standard", "look_at_links_again"]

OWN_PACKAGES = ("ckpt",)
_OWN_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(version.__file__))) + os.sep
_OWN_FOLDER = os.path.dirname(version.__file__) + os.sep
_ALWAYS_BY_REFERENCE = frozenset({"builtins", "sys"})
_COMPILED_SUFFIXES = (*EXTENSION_SUFFIXES, ".so")
SECOND_NAMES = frozenset({"__mp_main__"})


def _installed_roots() -> tuple[str, ...]:
    """Directories of the standard library and of installed packages, with a trailing separator."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths]
    found += [os.path.dirname(os.__file__), *site.getsitepackages()]
    user = site.getusersitepackages()
    if user:
        found.append(user)
    return tuple(dict.fromkeys(os.path.realpath(path) + os.sep for path in found))


_roots: tuple[str, ...] = _installed_roots()


_directories: dict[str, str] = {}
"""Directory → the same without symbolic links. Most modules share few directories, and each call of ``realpath`` needs a
system call for each part of the path. See :func:`look_at_links_again`."""


def look_at_links_again() -> None:
    """Forget where symbolic links of directories lead. Called before some modules are looked at."""
    _directories.clear()


def _real_path(path: str) -> str:
    """As ``os.path.realpath``."""
    directory, name = os.path.split(path)
    if name in ("", os.curdir, os.pardir) or os.path.islink(path):
        return os.path.realpath(path)
    real = _directories.get(directory)
    if real is None:
        real = _directories[directory] = os.path.realpath(directory)
    return os.path.join(real, name)


def _is_installed_path(path: str) -> bool:
    real = _real_path(path)
    if real.startswith(_roots):
        return True
    return f"{os.sep}site-packages{os.sep}" in real or f"{os.sep}dist-packages{os.sep}" in real


_name_of = type.__dict__["__name__"].__get__  # not the attribute: a metaclass could make that a call


def is_by_value(name: str, module: types.ModuleType) -> bool:
    """Is the module ``sys.modules[name]`` saved by value? See the rules in the module's header."""
    if name == "__main__":
        return True
    if name in _ALWAYS_BY_REFERENCE or name in sys.builtin_module_names or name in SECOND_NAMES:
        return False
    attributes = module.__dict__
    file = attributes.get("__file__")
    if isinstance(file, str):
        own_name = attributes.get("__name__")  # a module of ckpt may have another name too (mpi4py.MPI)
        for module_name in (name, own_name) if isinstance(own_name, str) else (name,):
            if module_name.partition(".")[0] in OWN_PACKAGES and (
                file.startswith(_OWN_FOLDER) or _real_path(file).startswith(_OWN_ROOT)
            ):
                return (
                    False  # the folder as it was imported first: most of our modules need no look at the disk
                )
        return (
            file.endswith((".py", ".pyc")) or _is_of_other_suffix(file, module)
        ) and not _is_installed_path(file)
    path = attributes.get("__path__")
    if path is not None:  # a namespace package has no file
        directories = list(path)
        return bool(directories) and not any(_is_installed_path(directory) for directory in directories)
    if (spec := attributes.get("__spec__")) is not None:
        # frozen or built in, or of a loader that is not Python's
        loader = getattr(spec, "loader", None)
        return _is_class_of_program(loader if isinstance(loader, type) else type(loader), module)
    if name.startswith(("_cython_", "cython_runtime")) or is_made_from_definition(module):
        return False  # the import that made them makes them again: Cython's shared types, modules of cffi
    if any(_name_of(type(value)) == "PyCapsule" for value in attributes.values()):
        return False  # likewise: pointers that modules in C share with each other (SWIG)
    parent = sys.modules.get(name.rpartition(".")[0])
    if isinstance(parent, types.ModuleType):
        return is_by_value(parent.__name__, parent)
    # Made by hand and put into sys.modules: this counts as the program's, unless its class is installed.
    return type(module) is types.ModuleType or _is_class_of_program(type(module), module)


def _is_of_other_suffix(file: str, module: types.ModuleType) -> bool:
    """Is it the source of a module that a loader of another kind has read (``.hy``, ``.ipynb``), and nothing compiled?"""
    is_source = os.path.isabs(file) and not file.endswith(_COMPILED_SUFFIXES)
    return is_source and not is_made_from_definition(module)


def _is_class_of_program(cls: type, module: types.ModuleType) -> bool:
    """Has the program defined this class, of a module that has no file, or of the loader that has made it?"""
    home = sys.modules.get(str(cls.__dict__.get("__module__")))
    if isinstance(home, types.ModuleType) and home is not module and type(home) is not cls:
        return is_by_value(home.__name__, home)
    # The module that defines the class has put an instance into its own place.
    files = {part.__code__.co_filename for part in cls.__dict__.values() if type(part) is types.FunctionType}
    return bool(files) and not any(map(_is_installed_path, files))


def is_standard(name: str) -> bool:
    return package_of(name) in sys.stdlib_module_names
