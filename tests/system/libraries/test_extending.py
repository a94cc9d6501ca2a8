"""A distribution outside of the tree says how its library is saved: the example of docs/extending.md, installed as it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job, run_ckpt

pytestmark = pytest.mark.system

Start = Callable[..., Job]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "extending.md"

PROGRAM = """
    import gauge
    import ckpt
    from tools import die_once

    ckpt.enable()
    gauge.set_unit("inch")
    left = gauge.Handle("left")
    handles = {"left": left, "right": gauge.Handle("right")}
    ckpt.checkpoint()
    die_once()
    print(left.read(), handles["right"].read(), handles["left"] is left, gauge.is_watched(), ckpt.restarts())
"""

WITHOUT_HANDLES = """
    import gauge
    import ckpt
    from tools import die_once

    ckpt.enable()
    ckpt.checkpoint()
    die_once()
    print("end")
"""


def examples() -> dict[str, str]:
    """The files of the page, by their names, which stand in their first lines."""
    blocks = re.findall(
        r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return dict(blocks)


def install(directory: Path, *, folder: str = "site-packages", **changed: str) -> Path:
    """What pip makes of the example, without pip. `changed`: other entry points."""
    files = examples()
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    site = directory / "lib" / folder
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    for name, text in files.items():
        (site / name).write_text(text)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = project["entry-points"]["ckpt.libraries"] | changed
    lines = "".join(f"{name} = {way}\n" for name, way in points.items())
    (info / "entry_points.txt").write_text(f"[ckpt.libraries]\n{lines}")
    return site


def test_its_objects_its_settings_and_its_threads_survive_a_kill(start: Start, tmp_path: Path) -> None:
    site = install(tmp_path)
    job = start(app_of(tmp_path, PROGRAM), ranks=1, env={"PYTHONPATH": str(site)})
    assert job.finish() == 0, job.report()
    assert job.output(0) == "left: 17 inch right: 17 inch True True 1\n"


@pytest.mark.parametrize("is_left_alone", [True, False])
def test_the_library_may_lie_where_it_is_developed(start: Start, tmp_path: Path, is_left_alone: bool) -> None:
    site = install(tmp_path, folder="src")
    if not is_left_alone:
        support = site / "gauge_ckpt.py"
        support.write_text(support.read_text().replace("is_left_alone = True", "is_left_alone = False"))
    program = PROGRAM.replace(
        "ckpt.checkpoint()", "gauge._driver['more'] = 5; gauge.newest = left\n    ckpt.checkpoint()"
    )
    program += "    print(gauge._driver.get('more'), getattr(gauge, 'newest', None) is left)\n"
    job = start(app_of(tmp_path, program), ranks=1, env={"PYTHONPATH": str(site)})
    assert job.finish() == 0, job.report()
    changed = "None False" if is_left_alone else "5 True"  # as in `site-packages`
    assert job.output(0) == f"left: 17 inch right: 17 inch True True 1\n{changed}\n"


def test_an_entry_point_that_is_broken_is_named_and_breaks_no_job(start: Start, tmp_path: Path) -> None:
    site = install(tmp_path, gauge="not_installed:Gauge", other="no way")
    job = start(app_of(tmp_path, WITHOUT_HANDLES), ranks=1, env={"PYTHONPATH": str(site)})
    assert job.finish() == 0, job.report()
    assert job.output(0) == "end\n"
    said = (job.directory / "output" / "rank-0.err").read_text()
    what = "'gauge' = 'not_installed:Gauge' of ckpt.libraries cannot be used"
    assert said.count(what) == 2, said  # before the kill, and after it
    assert "'other' = 'no way'" in job.stderr, job.report()


def test_what_a_program_adds_to_a_library_that_is_left_alone_is_kept_or_named(
    start: Start, tmp_path: Path
) -> None:
    """As `numpy.cache = numpy.arange(3)`. A variable that a new process does not have is not what an image refers to."""
    site = install(tmp_path)
    program = """
        import gauge
        import ckpt
        from tools import die_once

        class Own:
            pass

        ckpt.enable()
        handle, own = gauge.Handle("left"), Own()
        gauge.handle, gauge.own, gauge.table, gauge.number, gauge.call = handle, own, {"a": [1]}, 7, lambda: 8
        ckpt.checkpoint()
        die_once()
        print(handle.read(), gauge.own is own, gauge.table, gauge.number, gauge.call(), hasattr(gauge, "handle"))
    """
    job = start(app_of(tmp_path, program), ranks=1, env={"PYTHONPATH": str(site)})
    assert job.finish() == 0, job.report()
    assert job.output(0) == "left: 17 mm True {'a': [1]} 7 8 False\n"
    said = run_ckpt("inspect", job.directory, "-r", 0).stdout
    assert "gauge: gauge.handle: not kept" in said, said
