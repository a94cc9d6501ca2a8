"""Programs that are profiled or traced, or run by another: they get images; what watches them goes on after a restart."""

from __future__ import annotations

import pstats
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app
from tests.unit.ckpt.image.support import resumed_output

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]
Start = Callable[..., Job]

APP = """
import os, sys

def held():
    go = os.environ.get("CKPT_TEST_GO", "")
    return go != "" and not os.path.exists(go)

def wait():
    while held():
        for _ in range(100):
            pass

def step(i):
    s = 0
    for k in range(20):
        s += k * i
    return s

def main():
    t = 0
    for n in range(500):
        if n == 250:
            wait()
        t += step(n)
    print("total", t)
"""
TOTAL = sum(k * i for i in range(500) for k in range(20))


def killed_half_way(start: Start, app: Path, *before: object) -> Job:
    """The job, which has lost its rank after a commit and come to its end."""
    job = start(*before, app, ranks=1, every=0.2)
    job.wait_event("committed", 2)
    job.kill_rank(0)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.events("restarting")[0]["from_epoch"] >= 1
    assert f"total {TOTAL}\n" in job.output(0), job.report()
    return job


def test_a_profile_counts_every_call_once(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, APP + "\nmain()\n")
    killed_half_way(start, app, "-m", "cProfile", "-o", tmp_path / "profile")
    stats = pstats.Stats(str(tmp_path / "profile")).stats  # type: ignore[attr-defined]
    # One profile takes the calls of all threads for one thread's there, restarted or not
    if sys.version_info >= (
        3,
        12,
    ):
        assert any(name == "step" for _, _, name in stats)
        return
    calls = {name: entry for (file, _, name), entry in stats.items() if file.endswith("app.py")}
    assert {name: calls[name][:2] for name in ("main", "step", "wait", "<module>")} == {
        "main": (1, 1),
        "step": (500, 500),
        "wait": (1, 1),
        "<module>": (1, 1),
    }
    (callers,) = [entry[:2] for (_, _, name), entry in calls["step"][4].items() if name == "main"]
    assert callers == (500, 500)


def test_the_module_trace_counts_every_line_once(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, APP + "\nmain()\n")
    killed_half_way(start, app, "-m", "trace", "--count", "-C", tmp_path / "counts")
    (counts,) = (tmp_path / "counts").glob("*app.cover")
    for line, count in (("s += k * i", 10000), ("t += step(n)", 500), ("return s", 500), ("wait()", 1)):
        assert re.search(rf"^ *{count}: +{re.escape(line)}$", counts.read_text(), re.MULTILINE), (
            counts.read_text()
        )


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="coverage uses sys.monitoring there")
def test_coverage_knows_the_lines_before_and_after_a_restart(start: Start, tmp_path: Path) -> None:
    coverage = pytest.importorskip("coverage")
    app = write_app(tmp_path, APP + "\nmain()\n")
    data_file = tmp_path / "data"
    killed_half_way(start, app, "-m", "coverage", "run", "--branch", f"--data-file={data_file}")
    data = coverage.CoverageData(str(data_file))
    data.read()
    (file,) = [name for name in data.measured_files() if name.endswith("app.py")]
    text = app.read_text().splitlines()
    code = {number for number, line in enumerate(text, 1) if line.strip()}
    assert code - set(data.lines(file)) == set()


def test_a_collector_of_coverage_is_known_once_wherever_the_image_falls(tmp_path: Path) -> None:
    """It was found by the lock of its tracer, which newer versions of coverage do not have, and was known twice if the image
    fell between the start of the tracer and the moment at which the collector makes itself known."""
    pytest.importorskip("coverage")
    source = """
    import coverage
    from coverage.collector import Collector
    begin = Collector._start_tracer
    def slowly(self):
        found = begin(self)
        driver_tick()
        return found
    Collector._start_tracer = slowly
    watching = coverage.Coverage(data_file=None)
    watching.start()
    watching.stop()
    print(Collector._collectors)
    """
    assert resumed_output(tmp_path, source) == "[]\n"


def test_a_trace_function_of_the_program_goes_on(start: Start, tmp_path: Path) -> None:
    watching = """
def watch(frame, event, arg):
    if frame.f_code.co_name == "step":
        seen[event] = seen.get(event, 0) + 1
        return watch

seen = {}
sys.settrace(watch)
main()
sys.settrace(None)
print(seen["call"], seen["return"])
"""
    job = killed_half_way(start, write_app(tmp_path, APP + watching))
    assert job.output(0).endswith("\n500 500\n")


def test_a_program_below_runpy_and_exec_gets_images(start: Start, tmp_path: Path) -> None:
    write_app(tmp_path, APP + "\nif __name__ == '__main__':\n    exec('main()')\n", "below.py")
    app = write_app(
        tmp_path, f"import runpy\nrunpy.run_path({str(tmp_path / 'below.py')!r}, run_name='__main__')\n"
    )
    killed_half_way(start, app)


DEBUGGED = """
import os, sys, time
import ckpt

ckpt.enable()

def main():
    total = 0
    for n in range(400):
        total += n
        if n == 200:
            ckpt.checkpoint()
            while not os.path.exists(os.environ["CKPT_TEST_GO"]):  # the writer of the image finds what is refused
                time.sleep(0.02)
    print("total", total)

if len(sys.argv) > 1:
    import bdb
    class Debugger(bdb.Bdb):
        def user_line(self, frame):
            self.set_step()
    debugger = Debugger()
    debugger.runcall(main)
else:
    main()
"""


@pytest.mark.parametrize("words", [("-m", "pdb", "-c", "continue"), ()], ids=["pdb", "bdb"])
def test_a_program_in_a_debugger_is_refused_by_name_and_ends_as_without(
    start: Start, tmp_path: Path, words: tuple[str, ...]
) -> None:
    app = write_app(tmp_path, DEBUGGED)
    job = start(*words, app, *(() if words else ("bdb",)), ranks=1, every=100)
    failed = job.wait_event("failed")
    assert job.finish() == 0, job.report()
    assert job.output(0).startswith("total 79800\n")
    assert "a frame object cannot be saved" in failed["reason"] and failed["where"].endswith(
        ("botframe", "enterframe")
    ), job.report()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="another Python: sys.monitoring is there from 3.12 on")
def test_a_tool_of_sys_monitoring_is_named_and_sees_what_it_would_see(start: Start, tmp_path: Path) -> None:
    watching = """
tools, seen = sys.monitoring, []
tools.use_tool_id(tools.DEBUGGER_ID, "my tool")
tools.register_callback(tools.DEBUGGER_ID, tools.events.PY_START, lambda code, at: seen.append(code.co_name))
tools.set_events(tools.DEBUGGER_ID, tools.events.PY_START)
main()
print(seen.count("step"))
"""
    job = start(write_app(tmp_path, APP + watching), ranks=1, every=0.1)
    refused = job.wait_event("refused")
    job.go()
    assert job.finish() == 0, job.report()
    assert "the tool 'my tool' of sys.monitoring" in refused["reason"]
    assert job.output(0) == f"total {TOTAL}\n500\n"
    assert not job.events("committed")
