"""What scientific programs lean on comes back after a kill: netCDF4, matplotlib, Pillow, numba, tqdm, child processes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_ready import run_killed
from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def undisturbed(directory: Path, text: str) -> str:
    """What the program prints in plain Python, where `checkpoint` and `die_once` do nothing."""
    plain = directory / "plain"
    plain.mkdir()
    (plain / "ckpt.py").write_text("def enable(): pass\ndef checkpoint(): pass\n")
    (plain / "tools.py").write_text("def die_once(): pass\n")
    (plain / "app.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=plain, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def is_as_undisturbed(start: Start, tmp_path: Path, text: str) -> None:
    text = "\n".join(line.removeprefix("    " * 2) for line in text.splitlines())
    assert run_killed(start, tmp_path, text).output(0) == undisturbed(tmp_path, text) != ""


@needs("netCDF4")
def test_netcdf_data_sets_groups_and_variables_are_opened_again(start: Start, tmp_path: Path) -> None:
    job = run_killed(
        start,
        tmp_path,
        """
        import netCDF4
        import ckpt
        from tools import die_once
        ckpt.enable()
        store = netCDF4.Dataset("store.nc", "w")
        group = store.createGroup("run")
        time = group.createDimension("time", None)
        rows = group.createVariable("rows", "i8", ("time",))
        rows.set_auto_mask(False)
        gone = netCDF4.Dataset("gone.nc", "w"); gone.close()
        again = netCDF4.Dataset("gone.nc")
        for i in range(6):
            rows[i] = i * i
            if i == 2:
                ckpt.checkpoint()
            if i == 4:
                die_once()
        print(rows[:].tolist(), type(rows[:]).__name__, len(time), rows.group() is group, gone.isopen())
        try:
            again.createDimension("x", 1)
        except RuntimeError:
            print("read only")
        store.close()
        print(netCDF4.Dataset("store.nc")["run/rows"][:].tolist())
        """,
    )
    squares = "[0, 1, 4, 9, 16, 25]"
    assert job.output(0) == f"{squares} ndarray 6 True False\nread only\n{squares}\n"


@needs("netCDF4")
def test_what_is_kept_of_a_closed_netcdf_data_set(start: Start, tmp_path: Path) -> None:
    """Scripts close a file and keep the variables that they have written to until they end."""
    is_as_undisturbed(
        start,
        tmp_path,
        """
        import netCDF4, numpy
        import ckpt
        from tools import die_once
        ckpt.enable()
        store = netCDF4.Dataset("store.nc", "w")
        time = store.createDimension("time", None)
        group = store.createGroup("run/first")
        rows = group.createVariable("rows", "i8", ("time",))
        table = store.createVariable("table", "f4", ("time", "time"))
        names = store.createVariable("names", str, ("time",))
        pairs = store.createVariable("pairs", store.createCompoundType(numpy.dtype([("a", "i2"), ("b", "f8")]), "pair"), ())
        table.set_auto_mask(False)
        rows[:] = range(5)
        store.close()
        ckpt.checkpoint()
        die_once()
        print(store.isopen(), list(store.variables), list(store.dimensions), list(store.groups))
        print(rows.dtype, table.ndim, table.mask, rows.mask, names.dtype, pairs.dtype, group.path)
        print(rows.group() is group, group.parent is store.groups["run"], store.variables["table"] is table)
        print(store.dimensions["time"] is time, time.group() is store, list(group.variables))
        for ask in (lambda: table[:], lambda: rows.name, lambda: len(time), lambda: group.title):
            try:
                print(ask())
            except (RuntimeError, AttributeError) as error:
                print(type(error).__name__, error)
        """,
    )


@needs("matplotlib")
def test_a_figure_in_the_middle_of_its_drawing(start: Start, tmp_path: Path) -> None:
    """What was drawn before the image is on the canvas after it."""
    is_as_undisturbed(
        start,
        tmp_path,
        """
        import hashlib
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        from matplotlib.artist import Artist
        import ckpt
        from tools import die_once
        ckpt.enable()
        class Interruption(Artist):
            def draw(self, renderer):
                if self.axes.get_title() == "step 1":
                    ckpt.checkpoint()
                    die_once()
        figure, (left, right) = plt.subplots(1, 2)
        left.plot([1, 4, 2], label="line")
        right.add_artist(Interruption())
        for i in range(3):
            left.set_title(f"step {i}"); right.set_title(f"step {i}"); right.scatter([i, 2], [3, i])
            left.legend()
            figure.savefig("figure.png", metadata={"Software": None})
            print(i, hashlib.sha256(open("figure.png", "rb").read()).hexdigest())
        """,
    )


@needs("PIL")
def test_pictures_also_while_they_are_written(start: Start, tmp_path: Path) -> None:
    is_as_undisturbed(
        start,
        tmp_path,
        """
        import hashlib
        import io
        from PIL import Image, ImageDraw
        import ckpt
        from tools import die_once
        ckpt.enable()
        class Interrupted(io.BytesIO):
            count = 0
            def write(self, data):
                self.count += 1
                if self.count == 3:
                    ckpt.checkpoint()
                    die_once()
                return super().write(data)
        colours = Image.new("RGBA", (40, 30), (1, 2, 3, 255))
        ImageDraw.Draw(colours).line((0, 0, 39, 29), fill=(250, 0, 0, 128), width=3)
        palette = colours.convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
        target = Interrupted()
        palette.save(target, "PNG")
        palette.putpixel((5, 5), 2)
        for picture in (colours, palette, palette.convert("L"), Image.open(io.BytesIO(target.getvalue())).convert("RGB")):
            print(picture.mode, picture.size, hashlib.sha256(picture.tobytes()).hexdigest())
        """,
    )


@needs("numba")
def test_compiled_functions_are_compiled_again(start: Start, tmp_path: Path) -> None:
    is_as_undisturbed(
        start,
        tmp_path,
        """
        import numba
        import numpy as np
        import ckpt
        from tools import die_once
        ckpt.enable()
        RATE = 0.25
        @numba.njit
        def smooth(u):
            v = u.copy()
            for i in range(1, len(u) - 1):
                v[i] += RATE * (u[i - 1] - 2 * u[i] + u[i + 1])
            return v
        u = np.sin(np.arange(50.0))
        for i in range(6):
            u = smooth(u)
            if i == 2:
                ckpt.checkpoint()
            if i == 4:
                die_once()
        print(u.sum().hex(), len(smooth.signatures))
        """,
    )


@needs("tqdm")
def test_a_progress_bar_while_it_is_drawn(start: Start, tmp_path: Path) -> None:
    """It is drawn inside of two locks that the library keeps in a class."""
    is_as_undisturbed(
        start,
        tmp_path,
        """
        import io
        from tqdm import tqdm
        import ckpt
        from tools import die_once
        ckpt.enable()
        class Terminal(io.StringIO):
            def write(self, text):
                if "3/6" in text:
                    ckpt.checkpoint()
                    die_once()
                return super().write(text)
        total, terminal = 0, Terminal()
        for i in tqdm(range(6), file=terminal, mininterval=0, bar_format="{n_fmt}/{total_fmt} "):
            total += i
        print(total, terminal.getvalue().split("\\r"))
        """,
    )


def test_child_processes_between_checkpoints(start: Start, tmp_path: Path) -> None:
    """No image is taken while one runs: after a restart nobody would wait for it."""
    text = """
        import os, subprocess
        total = 0
        for i in range(150):
            done = subprocess.run(["expr", "1", "+", str(i)], capture_output=True, text=True, check=True)
            total += int(done.stdout) + sum(range(20_000)) % 7
            while i == 100 and not os.path.exists(os.environ["CKPT_TEST_GO"]):
                subprocess.run(["true"], check=True)
                sum(range(20_000))
        print(total)
        """
    app = write_app(tmp_path, text)
    job = start(app, ranks=1, every=0.05)
    for kill in (1, 2):
        job.wait_event("committed", count=kill)
        job.kill_rank(0)
        job.wait_event("restarted", count=kill)
    assert job.finish() == 0, job.report()
    assert job.output(0) == f"{sum(1 + i + sum(range(20_000)) % 7 for i in range(150))}\n"


CHUNKS = """
        import gzip
        import pandas
        import ckpt
        from tools import die_once
        ckpt.enable()
        with open("table.csv", "w") as file, gzip.open("table.csv.gz", "wt") as packed:
            for out in (file, packed):
                print("key,value,word", file=out)
                for row in range(5000):
                    print(row % 7, row / 8, f"w\u00f6rd {row}", sep=",", file=out)
        plain = pandas.read_csv("table.csv", chunksize=300)
        packed = pandas.read_csv("table.csv.gz", iterator=True, usecols=["key", "word"])
        latin = pandas.read_csv("table.csv", chunksize=1000, encoding="latin-1", index_col="key")
        ended = pandas.read_csv("table.csv", chunksize=4000, nrows=4500)
        few = [len(part) for part in ended]
        print(len(packed.get_chunk(77)), len(next(latin)))
        for number, part in enumerate(plain):
            if number == 5:
                ckpt.checkpoint()
                die_once()
            print(number, part.index[0], part["value"].sum(), part["word"].iloc[-1])
        more = packed.get_chunk(3)
        print(more, next(latin)["word"].iloc[0], few)
        """


@needs("pandas")
def test_tables_that_are_read_in_pieces_go_on_with_the_next_row(start: Start, tmp_path: Path) -> None:
    is_as_undisturbed(start, tmp_path, CHUNKS)
