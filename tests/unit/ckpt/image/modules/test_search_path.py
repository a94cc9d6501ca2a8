"""``sys.path`` of an image in another interpreter, or in an environment that has moved."""

from __future__ import annotations

from pathlib import Path

from ckpt.image.modules.search_path import roots, translated


def environment(prefix: Path, base: str) -> dict[str, str]:
    libraries = str(prefix / "lib" / "python3.11" / "site-packages")
    return {
        "stdlib": f"{base}/lib/python3.11",
        "platstdlib": f"{base}/lib/python3.11",
        "purelib": libraries,
        "platlib": libraries,
        "prefix": str(prefix),
        "base_prefix": base,
    }


def test_nothing_changes_where_nothing_has_moved() -> None:
    entries = ["", "/program", *roots().values()]
    assert translated(entries, roots(), roots()) == entries


def test_an_environment_that_has_moved(tmp_path: Path) -> None:
    before, now = environment(tmp_path / "old", "/usr"), environment(tmp_path / "new", "/usr")
    Path(now["purelib"]).mkdir(parents=True)
    entries = ["/program", before["purelib"], before["purelib"] + "/gone"]
    assert translated(entries, before, now) == ["/program", now["purelib"], before["purelib"] + "/gone"]


def test_a_copied_environment_is_used_where_the_program_used_it(tmp_path: Path) -> None:
    before, now = environment(tmp_path / "old", "/usr"), environment(tmp_path / "new", "/usr")
    for place in (before, now):
        Path(place["purelib"]).mkdir(parents=True)
    assert translated([before["purelib"]], before, now) == [before["purelib"]]


def test_the_standard_library_is_the_interpreters_own(tmp_path: Path) -> None:
    before, now = environment(tmp_path, "/opt/3.11.7"), environment(tmp_path, "/usr")
    entries = [
        "/opt/3.11.7/lib/python311.zip",
        "/opt/3.11.7/lib/python3.11",
        "/opt/3.11.7/lib/python3.11/lib-dynload",
    ]
    assert translated(entries, before, now) == [
        "/usr/lib/python311.zip",
        "/usr/lib/python3.11",
        "/usr/lib/python3.11/lib-dynload",
    ]


def test_installed_packages_below_the_standard_library_stay(tmp_path: Path) -> None:
    base = str(tmp_path)
    before, now = environment(tmp_path, base), environment(tmp_path / "other", "/usr")
    Path(before["purelib"]).mkdir(parents=True)
    assert translated([before["purelib"]], before, now) == [before["purelib"]]
