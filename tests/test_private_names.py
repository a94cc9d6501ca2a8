"""What is private in CPython, or depends on its version, has one place: `frames*.h` and `private_api.h` in C.

A new version of Python is then a matter of those (docs/new-python.md), and nothing else breaks unseen.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("ckpt/capture", "ckpt/doctor", "ckpt/image", "ckpt/mpi", "ckpt/rank", "ckpt/replay", "ckpt/store")

C_PLACES = {
    *(f"ckpt/image/frames/{name}.h" for name in ("frames", "frames_311", "frames_312", "frames_313")),
    "ckpt/image/lowlevel/private_api.h",
}
C_NAMES = {
    "a comparison of versions": r"\bPY_(VERSION_HEX|MINOR_VERSION|MICRO_VERSION)\s*[<>=]",
    "a private name": r"\b_Py[A-Z]?\w*\b",
    "an internal header": r'#\s*include\s*[<"]internal/|Py_BUILD_CORE',
    "a field of the state of a thread": r"\b(ts|tstate)->(?!c_profile)",
    "a field of the state of an interpreter": r"\binterp->",
    "a field of a generator": r"->gi_\w+",
    "the namespace of a type": r"->tp_dict\b",
    "the version of a dict": r"\bma_version_tag\b",
}


def without_comments(text: str) -> str:
    """Of C; line numbers stay."""
    return re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)


def found_in(text: str, patterns: dict[str, str], path: str) -> list[str]:
    return [
        f"{path}:{number}: {what}: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in patterns.items()
        if (match := re.search(pattern, line))
    ]


def sources(*endings: str) -> list[str]:
    folders = [ROOT / "transport", ROOT / "controller", *(ROOT / folder for folder in FOLDERS)]
    paths = [path for folder in folders for ending in endings for path in folder.rglob(f"*.{ending}")]
    paths += [path for ending in endings for path in (ROOT / "ckpt").glob(f"*.{ending}")]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("#if PY_VERSION_HEX >= 0x030C0000", "a comparison of versions"),
        ("x = _PyType_Lookup(type, name);", "a private name"),
        ('#include "internal/pycore_frame.h"', "an internal header"),
        ("ts->cframe", "a field of the state of a thread"),
    ],
)
def test_what_is_private_in_c_is_found(line: str, what: str) -> None:
    assert what in found_in(line, C_NAMES, "sample.c")[0]


def test_private_names_in_c_are_behind_the_headers() -> None:
    wrong: list[str] = []
    for path in sources("c", "h"):
        if path not in C_PLACES:
            wrong += found_in(without_comments((ROOT / path).read_text()), C_NAMES, path)
    assert not wrong, "\n".join(wrong)


def test_the_places_exist() -> None:
    assert [path for path in C_PLACES if not (ROOT / path).exists()] == []
