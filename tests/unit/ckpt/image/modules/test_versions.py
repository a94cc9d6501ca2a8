"""What an image says about the versions it depends on, and when a process refuses it."""

from __future__ import annotations

import pickle
import warnings

import pytest

from ckpt.errors import IncompatibleImage
from ckpt.image.modules.versions import (
    check_compatible,
    compare_versions,
    current_versions,
    differences,
    of_another_ckpt,
)


def test_the_same_process_is_compatible() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_compatible({"versions": current_versions()})
        compare_versions(current_versions(), is_final=True)


def test_another_minor_version_is_fatal_another_release_is_not() -> None:
    saved = {"a": "1.2.3", "b": "2.0", "c": "3.1.0+cpu", "d": "0.5", "gone": "1.0"}
    here = {"a": "1.2.4", "b": "2.1", "c": "3.1.0+cu13", "d": "0.5"}
    assert differences(saved, here) == (
        ["b 2.0 (here 2.1)"],
        ["a 1.2.3 (here 1.2.4)", "c 3.1.0+cpu (here 3.1.0+cu13)"],
    )


def test_a_fatal_difference_names_package_and_both_versions() -> None:
    saved = current_versions({"dill": "0.1.0", "pytest": "1.0"})
    with pytest.raises(IncompatibleImage, match=r"pytest 1\.0 \(here \d.*install the versions"):
        compare_versions(saved)


def test_a_harmless_difference_is_a_warning_once_everything_is_imported() -> None:
    minor = ".".join(pytest.__version__.split(".")[:2])
    saved = current_versions({"pytest": f"{minor}.987"})
    compare_versions(saved)
    with pytest.warns(RuntimeWarning, match=rf"pytest {minor}\.987 \(here"):
        compare_versions(saved, is_final=True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 0}, "format 0"),
        ({"magic": "00", "python": "3.9.1"}, "taken by Python 3.9.1"),
        ({"hash": 1}, "hash seed"),
    ],
)
def test_what_no_process_can_do_without(change: dict[str, object], text: str) -> None:
    with pytest.raises(IncompatibleImage, match=text):
        compare_versions({**current_versions(), **change})


@pytest.mark.parametrize(
    ("module", "name", "missing"),
    [
        ("ckpt.redundancy.gone", "Choices", "ckpt.redundancy.gone"),
        ("ckpt.errors", "Gone", "ckpt.errors.Gone"),
        ("ckpt", "Gone", "ckpt.Gone"),
        ("ckptools", "Gone", None),
        ("json", "Gone", None),
    ],
)
def test_an_image_with_something_of_ckpt_that_is_not_here_is_of_another_ckpt(
    module: str, name: str, missing: str | None
) -> None:
    for protocol in (0, 4):
        text = b"c%s\n%s\n." if protocol == 0 else b"\x80\x04\x8c%c%s\x8c%c%s\x93."
        parts = [module.encode(), name.encode()]
        given = parts if protocol == 0 else [each for part in parts for each in (len(part), part)]
        with pytest.raises((ImportError, AttributeError)) as failed:
            pickle.loads(text % tuple(given))
        found = of_another_ckpt(failed.value)
        if missing is None:
            assert found is None
        else:
            assert isinstance(found, IncompatibleImage)
            assert f"taken by another ckpt, which had {missing}: go on from it with that one" in str(found)
