"""Classes of the program that are registered with abstract classes of the standard library."""

from __future__ import annotations

import abc
from pathlib import Path

import pytest

from ckpt.image.stdlib import registered
from ckpt.image.stdlib.registered import VirtualSubclasses
from tests.unit.ckpt.image.support import resumed_output


def test_a_registered_class_is_registered_after_a_restart(tmp_path: Path) -> None:
    source = """
        import collections.abc
        import numbers

        class Early: pass
        class Late: pass
        numbers.Number.register(Early)
        driver_tick()
        collections.abc.Sized.register(Late)
        driver_tick()
        print(isinstance(Early(), numbers.Number), issubclass(Late, collections.abc.Sized), isinstance(3, numbers.Number))
    """
    assert resumed_output(tmp_path, source) == "True True True\n"


def test_classes_are_not_searched_while_no_class_has_been_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search looks at every class of the process, and a forked child would copy many pages of memory for it."""
    searches = []
    monkeypatch.setattr(registered, "_virtual_subclasses", lambda: searches.append(1) or [])
    monkeypatch.setattr(VirtualSubclasses, "state_without", None)
    library = VirtualSubclasses("abc")
    VirtualSubclasses.refresh(is_search_needed=False)
    assert library.note_settings() == [] and not searches
    abc.ABCMeta("Base", (), {}).register(int)
    assert library.note_settings() == [] and len(searches) == 1
    VirtualSubclasses.refresh()
    VirtualSubclasses.refresh()
    assert library.note_settings() == [] and len(searches) == 2


def test_classes_are_searched_as_long_as_one_of_the_program_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(object, [int])]
    monkeypatch.setattr(registered, "_virtual_subclasses", lambda: found)
    monkeypatch.setattr(VirtualSubclasses, "state_without", None)
    VirtualSubclasses.refresh()
    assert VirtualSubclasses("abc").note_settings() is found
