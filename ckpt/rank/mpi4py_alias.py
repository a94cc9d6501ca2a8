"""`import mpi4py` and `from mpi4py import MPI` give this toolkit's modules, in a rank's process and its children only.

`install` puts a finder (importlib's meta path finder) in front of the others. The module `mpi4py` is made here;
`mpi4py.MPI` is the module `ckpt.MPI`. When the real package is installed too, its pure-Python parts (futures, util, run,
bench, typing) are imported from its directory and use `ckpt.MPI`; the compiled part is never loaded. When the real package
is not installed, an import of these parts raises ModuleNotFoundError, whose text says what to install.

A restart installs the finder before it restores the modules, so an image holds these modules by reference.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VERSION = "4.1.2"
"""The release whose interface is offered."""


class Rc(ModuleType):
    """mpi4py's runtime options, also importable as `mpi4py.rc`. Programs may set the options; they have no effect here."""

    def __init__(self, **options: Any) -> None:
        super().__init__("mpi4py.rc")
        self.__dict__.update(_OPTIONS)
        self(**options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__ and not name.startswith("__"):
            raise TypeError(f"object has no attribute {name!r}")
        super().__setattr__(name, value)

    def __call__(self, **options: Any) -> None:
        for name in options:
            if name not in self.__dict__:
                raise TypeError(f"unexpected argument {name!r}")
        for name, value in options.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        items = ", ".join(f"{name}={getattr(self, name)!r}" for name in _OPTIONS)
        return f"mpi4py.rc({items})"


_OPTIONS: dict[str, Any] = {
    "initialize": True,
    "threads": True,
    "thread_level": "multiple",
    "finalize": None,
    "fast_reduce": True,
    "recv_mprobe": True,
    "irecv_bufsz": 32768,
    "errors": "exception",
}


class _ForChildren:
    """Pickled: a process that loads it has the finder, too."""

    def __reduce__(self) -> Any:
        return install, ()


class _Finder:
    for_children = _ForChildren()
    """Given to processes that `multiprocessing` starts anew: they import the program, and so what it imports."""

    # No subclass of importlib.abc's classes: nothing asks for them, and that module imports ten others.
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader: Any = self
        if fullname == "mpi4py":
            spec = ModuleSpec(fullname, loader, is_package=True)
            spec.submodule_search_locations = _real_package()
            return spec
        if fullname in ("mpi4py.MPI", "mpi4py.rc"):
            return ModuleSpec(fullname, loader)
        if fullname.startswith("mpi4py.") and fullname.count(".") == 1 and not path:
            raise ModuleNotFoundError(
                f"{fullname} comes from the mpi4py package, which is not installed: `pip install mpi4py` adds "
                "it (its compiled part is not used, no MPI library is needed)",
                name=fullname,
            )
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if spec.name == "mpi4py.MPI":
            return importlib.import_module("ckpt.MPI")
        return sys.modules["mpi4py"].rc if spec.name == "mpi4py.rc" else None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "mpi4py.rc":
            return
        if module.__name__ != "mpi4py":
            # The import system has just written the alias's spec into the module ckpt.MPI: put its own spec back.
            module.__spec__ = importlib.machinery.PathFinder.find_spec("ckpt.MPI", _own_path())
            return
        module.__file__ = "<offered by ckpt>"  # no source of the program's: images refer to it by name
        module.__version__ = VERSION  # type: ignore[attr-defined]
        module.rc = Rc()  # type: ignore[attr-defined]
        module.__all__ = ["MPI"]  # type: ignore[attr-defined]
        module.get_include = _no_include  # type: ignore[attr-defined]
        module.get_config = dict  # type: ignore[attr-defined]
        module.profile = _no_profile  # type: ignore[attr-defined]
        module.__doc__ = "mpi4py's interface, offered by the ckpt toolkit"


def _own_path() -> list[str]:
    return list(sys.modules["ckpt"].__path__)


def _no_include() -> str:
    raise NotImplementedError("mpi4py.get_include: there is no compiled mpi4py here to build against")


def _no_profile(name: str, *, path: Any = None) -> None:
    raise NotImplementedError("mpi4py.profile: there is no MPI library here to profile")


def _real_package() -> list[str]:
    """Directory of the installed mpi4py, if there is one."""
    spec = importlib.machinery.PathFinder.find_spec("mpi4py")
    return [] if spec is None else list(spec.submodule_search_locations or ())


def install() -> None:
    """Put the finder for mpi4py in front of the others. Further calls do nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
