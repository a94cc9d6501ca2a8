"""zope.interface: what classes of the program implement, and interfaces of the program."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_of

zope = pytest.importorskip("zope.interface")
IInterface = pytest.importorskip("zope.interface.interfaces").IInterface


class Interface(zope.Interface):  # type: ignore[misc, name-defined]
    count = zope.Attribute("a number")

    def method(argument: Any) -> None:
        """What it does."""


class Narrow(Interface):
    pass


@zope.implementer(IInterface)
class OfLibrary:
    pass


@zope.implementer(Narrow)
class Own(OfLibrary):
    pass


def told(classes: Any, objects: Any, interfaces: Any) -> list[Any]:
    return [
        [[each.providedBy(obj) for each in (*interfaces, IInterface)] for obj in objects],
        [[each.implementedBy(cls) for each in (*interfaces, IInterface)] for cls in classes],
        [(each.__name__, list(each), each.__doc__) for each in interfaces],
        interfaces[1].extends(interfaces[0]),
        [list(map(str, zope.implementedBy(cls).interfaces())) for cls in classes],
    ]


def test_declarations_come_back() -> None:
    """`providedBy` was False after a restart; with an interface of the program, the restart failed."""
    given = (OfLibrary, Own), (OfLibrary(), Own()), (Interface, Narrow)
    zope.alsoProvides(given[1][0], Interface)
    assert told(*copy_of(given)) == told(*given)
    alone = OfLibrary()
    assert IInterface.providedBy(copy_of(alone))
    assert IInterface.providedBy(copy_of(Own)) is IInterface.providedBy(Own)
