"""The demo's application on its own: the physics it must keep, and independence of the number of ranks."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt.mpi import PROC_NULL
from tests.unit.examples.worlds import World

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
RESULTS = ("result.npz", "result.txt", "gauges.csv")


@pytest.fixture
def tsunami(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES / "tsunami")
    return importlib.import_module("tsunami")


@pytest.fixture
def seafloor(tsunami: Any) -> Any:
    return tsunami.seafloor


def run(tsunami: Any, ranks: int, out: Path, hours: float = 0.25) -> Path:
    World(ranks).run(lambda comm: tsunami.simulate(comm, out, hours, 1, 60.0))
    return out


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_result_does_not_depend_on_the_number_of_ranks(tsunami: Any, tmp_path: Path, ranks: int) -> None:
    alone = run(tsunami, 1, tmp_path / "one")
    together = run(tsunami, ranks, tmp_path / "many")
    for name in RESULTS:
        assert (alone / name).read_bytes() == (together / name).read_bytes(), name


def test_two_runs_write_the_same_bytes(tsunami: Any, tmp_path: Path) -> None:
    first, second = (run(tsunami, 2, tmp_path / name, hours=0.1) for name in ("a", "b"))
    for name in RESULTS:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_the_wave_arrives_and_is_of_a_believable_height(tsunami: Any, tmp_path: Path) -> None:
    out = run(tsunami, 1, tmp_path, hours=0.75)
    lines = {
        line.split("  ")[0]: line.split() for line in (out / "result.txt").read_text().splitlines()[1:-1]
    }
    arrival = {place: words[-1] for place, words in lines.items()}
    assert float(arrival["Neah Bay"]) < float(arrival["Port Angeles"]) < float(arrival["Victoria"])
    assert arrival["Vancouver"] == "-"
    with np.load(out / "result.npz") as result:
        assert 1.0 < result["highest"].max() < 20.0
        assert np.isfinite(result["level"]).all()


def strip_of(tsunami: Any, seafloor: Any, comm: Any, height: float) -> Any:
    bed, latitude, longitude, cell = seafloor.load(1)
    return tsunami.Strip(comm, bed, cell, tsunami.earthquake(latitude, longitude, height))


def test_water_at_rest_stays_at_rest(tsunami: Any, seafloor: Any) -> None:
    def main(comm: Any) -> None:
        strip = strip_of(tsunami, seafloor, comm, height=0.0)
        before = strip.depth.copy()
        for _ in range(50):
            strip.step(strip.longest_step())
        assert np.array_equal(strip.depth, before)
        assert not strip.east.any() and not strip.up.any()

    World(2).run(main)


def close_borders(strip: Any) -> None:
    strip.east[:, 0] = 0.0
    if strip.south == PROC_NULL:
        strip.up[1] = 0.0
    if strip.north == PROC_NULL:
        strip.up[-1] = 0.0


def test_water_is_neither_made_nor_lost_inside_the_map(tsunami: Any, seafloor: Any) -> None:
    def main(comm: Any) -> None:
        strip = strip_of(tsunami, seafloor, comm, height=4.0)
        strip.radiate = lambda level: close_borders(strip)
        before = strip.volume()
        for _ in range(100):
            strip.step(strip.longest_step())
            assert strip.depth.min() >= 0.0
        assert strip.volume() == pytest.approx(before, rel=1e-12)

    World(2).run(main)


def test_the_gauges_lie_in_the_water_near_their_places(seafloor: Any) -> None:
    bed, latitude, longitude, _ = seafloor.load(2)
    gauges = seafloor.gauges(bed, latitude, longitude)
    assert len(gauges) == len(seafloor.PLACES)
    for name, north, east in seafloor.PLACES:
        row, column = gauges[name]
        assert bed[row, column] < -5.0, name
        assert abs(latitude[row] - north) < 0.1 and abs(longitude[column] - east) < 0.12, name


def test_a_finer_grid_passes_through_the_data(seafloor: Any) -> None:
    coarse, latitude, _, cell = seafloor.load(1)
    fine, fine_latitude, _, fine_cell = seafloor.load(3)
    assert np.array_equal(fine[::3, ::3], coarse)
    assert np.array_equal(fine_latitude[::3], latitude)
    assert fine_cell == pytest.approx(cell / 3)


def test_missing_data_is_named(seafloor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seafloor.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"requirements\.txt"):
        seafloor.data_file()
