"""The versions that an image depends on: interpreter, hash seed, ckpt, installed packages. A process is compared with them.

Rules: another format, interpreter, hash seed, or major or minor version of a package is an error; another micro version of a
package is a warning.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from ckpt.compat.interpreter import RELEASE
from ckpt.errors import IncompatibleImage
from ckpt.version import VERSION

__all__ = ["FORMAT", "check_compatible", "compare_versions", "current_versions", "of_another_ckpt"]

FORMAT = 9
_MISSING = re.compile(r"Can't get attribute '([\w.]+)' on <module '(ckpt(?:\.\w+)*)'")


def current_versions(packages: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The versions of this process: ``{"python", "implementation", "magic", "ckpt", "format", "hash", "packages"}``.

    ``packages``: name → version; None: of all top-level modules that are imported and have a ``__version__``. ``magic``: of
    bytecode files. ``hash``: a hash that depends on the hash seed.
    """
    if packages is None:
        packages = _versions_of([name for name in sys.modules if "." not in name])
    return {
        "python": RELEASE,
        "implementation": sys.implementation.name,
        "magic": importlib.util.MAGIC_NUMBER.hex(),
        "ckpt": VERSION,
        "format": FORMAT,
        "hash": hash("the hash seed is part of an image"),
        "packages": dict(packages),
    }


def _versions_of(names: Iterable[str]) -> dict[str, str]:
    """Those of these modules that are imported and have a ``__version__``. A restarted rank looks at no other module: each
    look writes a reference count, and so copies a page of memory."""
    found: dict[str, str] = {}
    for name in names:
        version = getattr(sys.modules.get(name), "__dict__", {}).get("__version__")
        if type(version) is str:
            found[name] = version
    return found


def check_compatible(report: Mapping[str, Any]) -> None:
    """Raise :class:`IncompatibleImage` if the image cannot be resumed in this process. ``report``: the image's
    :meth:`ckpt.image.pairs.ImageReport.as_dict`.
    """
    compare_versions(report["versions"])


def compare_versions(saved: Mapping[str, Any], *, is_final: bool = False) -> None:
    """Compare the versions of an image with this process. Packages that are not imported here yet are skipped, so the
    comparison is repeated when everything is imported (``is_final``).

    Raises :class:`IncompatibleImage` for a fatal difference. The final comparison warns of harmless ones.
    """
    here = current_versions({})
    if saved["format"] != here["format"]:
        raise IncompatibleImage(f"the image has format {saved['format']}; this ckpt reads {here['format']}")
    if (saved["implementation"], saved["magic"]) != (here["implementation"], here["magic"]):
        raise IncompatibleImage(f"the image was taken by Python {saved['python']}; this is {here['python']}")
    if saved["hash"] != here["hash"]:
        raise IncompatibleImage("the image was taken under another hash seed (PYTHONHASHSEED)")
    fatal, harmless = differences(saved["packages"], _versions_of(saved["packages"]))
    if fatal:
        raise IncompatibleImage(
            f"the image was taken with other packages: {', '.join(fatal)}; install the versions of the image, or start anew"
        )
    if harmless and is_final:
        warnings.warn(
            f"the image was taken with other releases of packages: {', '.join(harmless)}",
            RuntimeWarning,
            stacklevel=2,
        )


def of_another_ckpt(failure: Exception) -> IncompatibleImage | None:
    """If something of an image was not found since the ckpt that has taken it had modules or names that this one has not:
    the error that says so. Versions that are being developed have the same number."""
    if isinstance(failure, ImportError) and (failure.name or "").startswith("ckpt."):
        missing = str(failure.name)
    elif isinstance(failure, AttributeError) and (found := _MISSING.match(str(failure))):
        missing = f"{found[2]}.{found[1]}"
    else:
        return None
    return IncompatibleImage(
        f"the image was taken by another ckpt, which had {missing}: go on from it with that one, or start the program anew"
    )


def differences(saved: Mapping[str, str], here: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Packages that have another version here: ``(fatal, harmless)``, each as "numpy 2.4.1 (here 2.5.0)".

    Another major or minor version is fatal, because objects of the image may have another layout there. A difference in the
    third or a later number is harmless.
    """
    fatal: list[str] = []
    harmless: list[str] = []
    for name, version in saved.items():
        present = here.get(name, version)
        if present != version:
            same = _minor(present) == _minor(version)
            (harmless if same else fatal).append(f"{name} {version} (here {present})")
    return fatal, harmless


def _minor(version: str) -> list[str]:
    return version.split("+")[0].split(".")[:2]
