"""A program's own modules and packages keep their names, whatever this project's folders are called."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job

pytestmark = pytest.mark.system

TRANSPORT = "STEPS = []\n\ndef advect(step):\n    STEPS.append(step)\n    return 'transport of mine'\n"
CONTROLLER = (
    "from transport import advect\n\nclass Controller:\n    def __init__(self):\n        self.gain = 3\n"
)
APP = """
import os, sys, time, ckpt
import transport
from controller.loop import Controller
comm = ckpt.enable()
controller = Controller()
for step in range(40):
    said = transport.advect(step)
    controller.gain += comm.allreduce(1)
    time.sleep(0.01)
    while step == 20 and not os.path.exists(os.environ["CKPT_TEST_GO"]):
        time.sleep(0.01)
print(said, len(transport.STEPS), controller.gain, transport.__file__ == os.path.abspath("transport.py"))
"""


@pytest.mark.parametrize("words", [("app.py",), ("-m", "app")], ids=["script", "module"])
def test_modules_called_transport_and_controller_are_the_programs(
    tmp_path: Path, start: Callable[..., Job], words: tuple[str, ...]
) -> None:
    """They were replaced by ours without a word: both are common names in science. Their state goes back with the
    program."""
    (tmp_path / "transport.py").write_text(TRANSPORT)
    (tmp_path / "controller").mkdir()
    (tmp_path / "controller" / "__init__.py").write_text("")
    (tmp_path / "controller" / "loop.py").write_text(CONTROLLER)
    (tmp_path / "app.py").write_text(APP)
    job = start(words[0], *words[1:], ranks=2, every=0.1)
    job.wait_event("committed")
    job.kill_rank(1, signal.SIGKILL)
    job.wait_event("restarted")
    job.go()
    assert job.finish() == 0, job.report()
    assert job.stdout == "transport of mine 40 83 True\n" * 2
