"""The paper's model: limits and slopes of figure 13, and where the paper contradicts itself."""

from __future__ import annotations

import pytest

from ckpt.redundancy.model import PANELS, Model, limit_of_tmr, slope

MODEL = Model()
MANY = 2e9


@pytest.mark.parametrize("panel", ["a", "c"])
def test_classic_tmr_levels_off_at_the_limit(panel: str) -> None:
    assert limit_of_tmr(MODEL) == pytest.approx(5250)
    assert MODEL.row(panel, MANY).tmr == pytest.approx(5250, rel=1e-3)


@pytest.mark.parametrize(
    ("panel", "tmr", "plain"), [("a", 0, 1), ("b", 0.5, 1), ("c", 0, 0.5), ("d", 0.5, 0.5)]
)
def test_slopes(panel: str, tmr: float, plain: float) -> None:
    assert slope(lambda p: MODEL.row(panel, p).tmr, 1e13) == pytest.approx(tmr, abs=0.02)
    assert slope(lambda p: MODEL.row(panel, p).plain, 1e13) == pytest.approx(plain, abs=0.02)
    assert slope(lambda p: MODEL.row(panel, p).stmr, 1e13) == pytest.approx(plain, abs=0.02)


@pytest.mark.parametrize("panel", PANELS)
def test_stmr_follows_the_plain_program_where_messages_do_not_grow(panel: str) -> None:
    for exponent in range(10):
        row = MODEL.row(panel, 10.0**exponent)
        assert 0.9995 < row.stmr / row.plain < 1


def test_stmr_falls_off_where_messages_grow_like_the_volume() -> None:
    ratios = {panel: (row := MODEL.row(panel, MANY)).stmr_d_grows / row.plain for panel in PANELS}
    assert ratios["a"] > 0.999  # the volume is constant there
    assert ratios["b"] < 0.2 and ratios["d"] < 1e-4
    assert 0.4 < ratios["c"] < 0.6  # below by a constant factor
    limit = 1.4e9 * MODEL.work_s / (2 * (MODEL.sends + 1) * MODEL.message_bits)
    assert MODEL.row("d", MANY).stmr_d_grows == pytest.approx(limit, rel=1e-3)


def test_the_way_to_the_shadows_doubles_the_time_of_redundancy() -> None:
    assert Model(handing_on=True).stmr_s("a", 8) == 2 * MODEL.stmr_s("a", 8)


@pytest.mark.parametrize(
    ("panel", "processes", "plain", "tmr", "stmr", "grows"),
    [
        ("a", 1e2, 99.99, 98.09, 99.98, 99.98),
        ("a", 1e6, 999_900, 5_223, 999_760, 999_760),
        ("b", 1e8, 9.999e7, 3.442e7, 9.9976e7, 4.115e7),
        ("c", 1e6, 909_090, 5_220, 908_970, 804_510),
        ("d", 1e4, 9_901, 9_715, 9_899.6, 4_098),
    ],
)
def test_the_curves(
    panel: str, processes: float, plain: float, tmr: float, stmr: float, grows: float
) -> None:
    row = MODEL.row(panel, processes)
    assert (row.plain, row.tmr, row.stmr, row.stmr_d_grows) == pytest.approx(
        (plain, tmr, stmr, grows), rel=2e-4
    )
