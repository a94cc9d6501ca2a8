"""Copies of objects made the way an image makes them, and programs that are stopped and resumed in fresh processes."""

from __future__ import annotations

import io
import json
import os
import pickle
import textwrap
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ckpt.image.files import reopen
from ckpt.image.files.open_files import FileSaver
from ckpt.image.files.saved_files import SavedFiles
from ckpt.image.modules.references import References
from ckpt.image.pickling.pickler import DiscardingSink, ImagePickler, Stream, on_deep_stack
from ckpt.image.pickling.unpickler import ImageUnpickler
from ckpt.image.process import moment
from tests.system.support import drive

REPOSITORY = Path(__file__).parents[4]
_PLACE = "site-packages"
LIBRARY_START = f"import sys; sys.path.insert(0, __file__.rpartition('/')[0] + '/{_PLACE}')\n"


class MemorySink:
    def __init__(self) -> None:
        self.data = bytearray()
        self.raw: list[bytearray] = []

    def write(self, data: bytes | memoryview) -> None:
        self.data += data

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        self.raw.append(bytearray(buffer.raw()))


def pickled(
    obj: Any,
    live: Mapping[str, object] | None = None,
    *,
    is_disposable: bool = False,
    has_own_files: bool = False,
) -> tuple[MemorySink, ImagePickler]:
    """``is_disposable``: as in the forked child that writes an image, ``obj`` may be used up. ``has_own_files``: this is
    such a child, so other files may be put under its descriptors."""
    references = References()
    references.refresh()
    sink = MemorySink()
    stream = Stream(sink)

    def work() -> ImagePickler:
        files = FileSaver(
            moment.read(moment.note()).files,
            is_disposable=has_own_files,
            saved_files=SavedFiles(os.getppid() if has_own_files else os.getpid()),
        )
        reducers = files.reducers()

        def make(stream: Stream, is_disposable: bool) -> ImagePickler:
            return ImagePickler(
                stream,
                references,
                live=live,
                extra_reducers=reducers,
                is_disposable=is_disposable,
                rehearsal=lambda: make(Stream(DiscardingSink(1 << 20)), False),
            )

        pickler = make(stream, is_disposable)
        pickler.dump(obj)
        pickler.dump(pickler.deferred)
        return pickler

    pickler = on_deep_stack(work)
    stream.flush()
    return sink, pickler


def copy_of(obj: Any, live: Mapping[str, object] | None = None, *, is_disposable: bool = False) -> Any:
    """What an image of this process would hold of ``obj``: classes and functions of test modules are new ones.
    ``is_disposable``: as in the forked child that writes an image, ``obj`` may be used up."""
    sink, _ = pickled(obj, live, is_disposable=is_disposable)
    return loaded(sink, live)


def copy_by_child(obj: Any) -> Callable[[], Any]:
    """An image of ``obj``, written by a forked child. Returns what loads it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            sink, _ = pickled(obj, is_disposable=True, has_own_files=True)
            with open(writing, "wb") as pipe:
                pickle.dump((bytes(sink.data), [bytes(each) for each in sink.raw]), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    sink = MemorySink()
    stream, raw = pickle.loads(data)
    sink.data, sink.raw = bytearray(stream), [bytearray(each) for each in raw]
    return lambda: loaded(sink)


def loaded(sink: MemorySink, live: Mapping[str, object] | None = None) -> Any:
    """What an image holds. Each load begins as the loader's does: without the records of descriptors that a load before it
    has opened, whose files, and the numbers of these files, may be others by now."""
    reopen.begin()
    unpickler = ImageUnpickler(io.BytesIO(bytes(sink.data)), [memoryview(b) for b in sink.raw], live or {})
    copy = unpickler.load()
    deferred = unpickler.load()
    unpickler.finish()
    for function, args in deferred:
        function(*args)
    return copy


def resumed_output(
    tmp_path: Path,
    source: str,
    *,
    places: list[int] | None = None,
    files: Mapping[str, str] | None = None,
    at: str = "calls",
) -> str:
    """What a program prints after its call of ``driver_tick()``, in the process that resumed it there.

    ``at="run"``: ``places`` are checks of the interpreter, counted from its call of ``driver_start()`` on.

    The original is killed at once after its image: nothing it prints later can be mistaken for it.
    """
    for name, text in (files or {}).items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(source))
    out = tmp_path / "out"
    arguments = [at, str(tmp_path), json.dumps(places or [1]), str(script)]
    _drive(arguments, out, tmp_path)
    failed = [line for line in (tmp_path / "log.jsonl").read_text().splitlines() if "failed" in line]
    assert not failed, failed
    original = out.read_text()
    out.write_text("")
    _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    resumed = out.read_text()
    assert original.endswith(resumed), f"the original printed\n{original}\nbut the resumed program\n{resumed}"
    return resumed


def after_restart(tmp_path: Path, library: str, program: str, **more: str) -> str:
    """What ``program`` prints after its image, with an installed package ``lib``."""
    place = tmp_path / _PLACE / "lib"
    place.mkdir(parents=True)
    files = {"__init__": library, **more}
    lines = [line.removeprefix("        ") for line in program.splitlines()]
    named = {f"{_PLACE}/lib/{name}.py": text for name, text in files.items()}
    return resumed_output(tmp_path, LIBRARY_START + "\n".join(lines), files=named)


def image_failure(tmp_path: Path, source: str) -> str:
    """The failure that the image of a program at its first ``driver_tick()`` ends in."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(source))
    _drive(["calls", str(tmp_path), "[1]", str(script)], tmp_path / "out", tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    return next(line["failed"] for line in lines if "failed" in line)


def refusals(tmp_path: Path, source: str) -> list[str]:
    """Why no image was possible at the first ``driver_tick()`` of a program."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(source))
    _drive(["calls", str(tmp_path), "[1]", str(script)], tmp_path / "out", tmp_path)
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert not last["taken"]
    return list(last["refused"])


def _drive(arguments: list[str], out: Path, cwd: Path) -> str:
    return drive(*arguments, out=out, directory=cwd)
