"""greenlet: an image is refused while one is alive."""

from __future__ import annotations

from pickle import PicklingError

import pytest

from ckpt.image.errors import Unpicklable
from ckpt.image.tools.greenlet import Greenlet
from tests.unit.ckpt.image.support import copy_of

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


def test_the_main_greenlet_is_that_of_the_new_process() -> None:
    """Programs got no checkpoint while a task of celery ran, which keeps what belongs to a thread by its greenlet."""
    table = {greenlet.getcurrent(): ["of this thread"]}
    assert copy_of(table)[greenlet.getcurrent()] == ["of this thread"]


def test_another_greenlet_is_refused_by_name() -> None:
    with pytest.raises(PicklingError, match="belongs to another thread by its greenlet"):
        copy_of([greenlet.greenlet(len)])
