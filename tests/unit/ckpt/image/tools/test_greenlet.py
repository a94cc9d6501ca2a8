"""greenlet: an image is refused while one is alive."""

from __future__ import annotations

import pytest

from ckpt.image.errors import Unpicklable
from ckpt.image.tools.greenlet import Greenlet

greenlet = pytest.importorskip("greenlet")


def test_a_greenlet_that_is_suspended_is_refused_until_it_has_ended() -> None:
    library = Greenlet("greenlet")
    library.refuse()
    suspended = greenlet.greenlet(lambda: greenlet.getcurrent().parent.switch())
    suspended.switch()
    with pytest.raises(Unpicklable):
        library.refuse()
    suspended.switch()
    library.refuse()


def test_a_program_in_a_greenlet_is_refused() -> None:
    with pytest.raises(Unpicklable, match="running in a greenlet"):
        greenlet.greenlet(Greenlet("greenlet").refuse).switch()
