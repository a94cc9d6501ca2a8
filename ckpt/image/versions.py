"""What an image depends on, and whether a process has it: interpreter, hash seed, this package, installed packages."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

from ckpt.errors import IncompatibleImage
from ckpt.version import VERSION

__all__ = ["FORMAT", "check_compatible", "compare_versions", "current_versions"]

FORMAT = 1


def current_versions(packages: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What an image depends on: interpreter, this package, the installed ``packages`` that are imported."""
    if packages is None:
        packages = {
            name: module.__version__
            for name, module in list(sys.modules.items())
            if "." not in name and type(getattr(module, "__dict__", {}).get("__version__")) is str
        }
    return {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "magic": importlib.util.MAGIC_NUMBER.hex(),
        "ckpt": VERSION,
        "format": FORMAT,
        "hash": hash("the hash seed is part of an image"),
        "packages": dict(packages),
    }


def check_compatible(report: Mapping[str, Any]) -> None:
    """Can the image described by ``ImageReport.as_dict()`` be resumed here? Raises
    :class:`IncompatibleImage`.
    """
    compare_versions(report["versions"])


def compare_versions(saved: Mapping[str, Any]) -> None:
    """Packages are compared as far as they are imported here already; the others when they are."""
    here = current_versions()
    if saved["format"] != here["format"]:
        raise IncompatibleImage(f"the image has format {saved['format']}; this ckpt reads {here['format']}")
    if (saved["implementation"], saved["magic"]) != (here["implementation"], here["magic"]):
        raise IncompatibleImage(f"the image was taken by Python {saved['python']}; this is {here['python']}")
    if saved["hash"] != here["hash"]:
        raise IncompatibleImage("the image was taken under another hash seed (PYTHONHASHSEED)")
    differing = [
        f"{name} {version} (here {here['packages'][name]})"
        for name, version in saved["packages"].items()
        if here["packages"].get(name, version) != version
    ]
    if differing:
        raise IncompatibleImage(f"the image was taken with other packages: {', '.join(differing)}")
