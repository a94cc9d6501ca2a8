"""Objects of every kind through three generations of images: stopped, resumed in a fresh process, stopped again, …

The programs in ``programs/types`` hold objects and say in every round what they do; between the rounds an image is taken.
A program whose libraries are missing is skipped. One case alone:
``CASES="name other" pytest tests/system/image/test_image_types.py``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.support import Job, drive, write_app

TYPES = Path(__file__).parents[1] / "programs" / "types"
NEEDS = {
    "arrays": ["numpy"],
    "frames": ["numpy", "pandas"],
    "sparse": ["numpy", "scipy"],
    "tensors": ["torch"],
    "packages": ["numpy"],
}
GENERATIONS = 3

pytestmark = [pytest.mark.system, pytest.mark.turns(12)]


def image_of(directory: Path, generation: int) -> Path:
    """The one image that the last process took, put away; fails with the reason if there is none."""
    log = directory / "log.jsonl"
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    failed = [line["failed"] for line in lines if "failed" in line]
    assert not failed, failed
    (image,) = [line["image"] for line in lines if "image" in line]
    kept = directory / f"generation-{generation}"
    for suffix in (".stream", ".buffers"):
        shutil.move(image + suffix, str(kept) + suffix)
    return kept


@pytest.mark.rotate(8)
@pytest.mark.parametrize("program", sorted(path.stem for path in TYPES.glob("*.py") if path.stem != "cases"))
def test_objects_of_every_kind_through_three_generations(program: str, tmp_path: Path) -> None:
    missing = [name for name in NEEDS.get(program, []) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    work = tmp_path / "work"
    work.mkdir()
    script = [str(TYPES / f"{program}.py"), str(work), *os.environ.get("CASES", "").split()]
    out = tmp_path / "expected"
    drive("calls", str(tmp_path), "[1]", *script, out=out, directory=work)
    expected = out.read_text()
    for generation in range(1, GENERATIONS + 1):
        image = image_of(tmp_path, generation)
        out = tmp_path / f"out-{generation}"
        out.write_text(expected)  # all that the original printed is in the way, and is cut off
        places = "[1]" if generation < GENERATIONS else "[]"
        drive("resume-calls", str(tmp_path), places, str(image), out=out, directory=work)
        assert out.read_text().splitlines() == expected.splitlines(), f"generation {generation}"


# What cannot be saved, and what the reason says beside the path of the variable.
NAMED = {
    "socket.create_connection(('127.0.0.1', int(os.environ['PORT_OF_THE_TEST'])))": r"socket.*--connections reset",
    "os.mkfifo('fifo') or open(os.open('fifo', os.O_RDWR), 'wb')": r"an open pipe.*ckpt\.on_restart",
    "subprocess.Popen(['cat'], stdin=subprocess.PIPE)": r"(\.stdin.*an open pipe.*ckpt\.on_restart|child process)",
    "bz2.BZ2Compressor()": r"BZ2Compressor.*in files of bz2.open.*register_type",
    "lzma.open('old.lzma', 'wb', format=lzma.FORMAT_ALONE)": r"_compressor.*other than xz",
    "zipfile.ZipFile('a.zip', 'w', zipfile.ZIP_BZIP2).open('member', 'w')": r"_compressor.*BZ2Compressor",
    "sys._getframe()": r"frame object.*keep none in variables",
    "io.IncrementalNewlineDecoder(None, True)": r"IncrementalNewlineDecoder.*register_type",
    "ssl._SSLContext.__new__(ssl.SSLContext, ssl.PROTOCOL_TLS_SERVER)": r"context of TLS was made before.*register_type",
    "capsule()": r"a capsule.*register_type",
}

REFUSING = """
import bz2, io, lzma, os, socket, ssl, subprocess, sys, zipfile, zlib
import ctypes
def capsule():
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(1, None, None)
holder = {"key": [None]}
for expression in sys.argv[1:]:
    holder["key"][0] = eval(expression)
    driver_tick()
holder["key"][0] = None
"""


@pytest.mark.usefixtures("listening")
def test_what_cannot_be_saved_is_named_by_its_variable_with_a_remedy(tmp_path: Path) -> None:
    script = tmp_path / "refusing.py"
    script.write_text(REFUSING)
    places = json.dumps(list(range(1, len(NAMED) + 1)))
    drive("calls", str(tmp_path), places, str(script), *NAMED, out=tmp_path / "out", directory=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    failed = {line["at"]: line["failed"] for line in lines if "failed" in line}
    for number, (expression, reason) in enumerate(NAMED.items(), 1):
        said = failed.get(number, "it was saved")
        assert said.startswith("Unpicklable: module __main__ variable 'holder'['key'][0]"), (expression, said)
        assert re.search(reason, said), (expression, said)


FROZEN = """
    import gc, time, typing
    import ckpt

    comm = ckpt.enable()
    rest = iter(typing.SupportsIndex.__dict__.items())
    first, names = next(rest), typing.SupportsIndex.__dict__.keys()

    class Own:
        pass

    own = Own.__dict__.values()
    gc.freeze()
    ckpt.checkpoint()
    while not ckpt.restarts():
        time.sleep(0.01)
    print(len(list(rest)) + 1 == len(names), first[0] in names, Own.__module__ in own)
"""


def test_what_the_fork_server_or_the_program_has_frozen_is_found(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    """A search for referrers passes over what `gc.freeze` was called for: the class of these attributes was not found, and
    the checkpoint failed, since an image cannot hold the attributes themselves."""
    job = start(write_app(tmp_path, FROZEN), ranks=1)
    job.wait_event("committed")
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "True True True\n"
