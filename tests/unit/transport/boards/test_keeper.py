"""What becomes of an area that another rank offers."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from ckpt.transport.boards import board
from ckpt.transport.boards.keeper import Boards
from tests.unit.transport.boards.test_board import Common

pytestmark = pytest.mark.skipif(not board.available(), reason="the C module of boards is not built")


class Wire:
    """What the keeper of boards needs of a wire; `offered` are (rank, number) of the areas that it was to hand over."""

    pause_ns = 0

    def __init__(self) -> None:
        from ckpt.transport.rings._ring import Inbox

        self.inbox = Inbox()
        self.on_board: Any = None
        self.offered: list[tuple[int, int]] = []

    def offer_board(self, rank: int, number: int, fd: int) -> None:
        self.offered.append((rank, number))


@pytest.mark.parametrize("is_early", [True, False])
def test_without_a_free_descriptor_an_area_is_not_looked_at_until_it_is_offered_again(
    monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    mine, others = (Boards(cast(Any, Wire()), rank, Common(), 0, 0) for rank in (0, 1))
    area = others.make(7, (0, 1))
    assert area is not None
    own = None if is_early else mine.make(7, (0, 1))

    def full(fd: int) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", full)
        cast(Any, mine._wire).on_board(1, 7, area.fd)
    own = own or mine.make(7, (0, 1))
    assert own is not None and not own.reads >> 1 & 1 and mine.counts["boards_refused"] == 1
    cast(Any, mine._wire).on_board(1, 7, area.fd)
    assert own.reads >> 1 & 1
    others.close(7)
    mine.close(7)
