"""A trial of an image: everything that cannot be saved is found, in one pass, with the way to it."""

from __future__ import annotations

import bz2
import os
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.image import prepare
from ckpt.image.modules import origins
from ckpt.image.pickling import diagnose
from ckpt.image.trial import Finding, SeenFrame, examine

pytestmark = pytest.mark.turns(6)


@pytest.fixture(autouse=True)
def tests_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial looks into all modules of the program: without this, those would be the modules of all collected tests."""
    monkeypatch.setattr(origins, "_roots", (*origins._roots, str(Path(__file__).parents[3])))


class Holder:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """Its other end is another process's."""
    made, other = socket.socketpair()
    with made:
        child = subprocess.Popen(["sleep", "100"], stdin=other)
        other.close()
        yield made
        child.kill()
        child.wait()


def found_in(**variables: Any) -> dict[str, Finding]:
    """The findings in the variables of one frame, by place and path."""
    report, findings = examine(prepare(None, {}), live={}, seen=[SeenFrame("f", variables)])
    assert report.stream_bytes > 0
    mine = [finding for finding in findings if finding.where.startswith("frame 0 (f)")]
    return {finding.where.removeprefix("frame 0 (f) local ") + finding.path: finding for finding in mine}


def test_all_of_them_are_found_each_with_its_path(connection: socket.socket) -> None:
    found = found_in(
        fine=[1, 2, Holder(x=1)],
        first={"deep": [Holder(line=connection)], "packer": bz2.BZ2Decompressor()},
        second=(bz2.BZ2Decompressor(),),
        after={"is": "saved"},
    )
    assert set(found) == {"'first'['deep'][0].line", "'first'['packer']", "'second'[0]"}
    assert found["'first'['deep'][0].line"].type == "socket.socket"
    assert found["'first'['deep'][0].line"].bases == ["_socket.socket"]
    assert "cannot be saved" in found["'second'[0]"].reason


def test_an_object_met_twice_is_one_finding(connection: socket.socket) -> None:
    assert set(found_in(one=connection, other=[connection])) == {"'one'"}


def test_closures_and_generators_are_looked_into(connection: socket.socket) -> None:
    def reader() -> Iterator[object]:
        line = connection
        yield 1
        yield line

    running = reader()
    next(running)
    found = found_in(callback=lambda: connection, running=running)
    assert any("<closure 'connection'>" in path for path in found), found


def test_lambdas_weak_references_and_local_classes_are_no_findings() -> None:
    import weakref

    class Local:
        pass

    thing = Local()
    assert found_in(f=lambda x: x + 1, thing=thing, ref=weakref.ref(thing), cls=Local) == {}


def test_what_only_the_collector_knows_the_way_to_has_a_path_too(connection: socket.socket) -> None:
    [place] = found_in(iterator=iter([[connection]]))
    assert place.startswith("'iterator'<")


def test_addresses_that_stay_are_named() -> None:
    objects = [Holder(), Holder()]
    first, second = map(id, objects)
    variables = {
        "objects": objects,
        "seen": [first],
        "names": Holder(table={first: "a", second: "b", 3: "no address"}),
        "pairs": [((second, 1), "a"), (2, 3)],
        "kept": {first: objects[0], second: (objects[1], "b")},
        "renumbered": ({first}, {second: "b"}),
        "numbers": [8 << 40, 2**70],
    }
    report, _ = examine(prepare(None, {}), live={}, seen=[SeenFrame("f", variables)])
    named = {where for row in report.left_out if row["kind"] == "ids" for where in row["variables"]}
    mine = {where.removeprefix("frame 0 (f) local ") for where in named if where.startswith("frame 0 (f)")}
    assert mine == {"'seen'", "'names'.table", "'pairs'"}


def test_without_a_captured_stack_the_modules_are_looked_at_all_the_same(
    monkeypatch: pytest.MonkeyPatch, connection: socket.socket
) -> None:
    import sys
    import types

    module = types.ModuleType("a_module_of_the_program")
    module.line = connection  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    _, findings = examine(prepare(None, {}), live={})
    assert "module a_module_of_the_program variable 'line'" in {finding.where for finding in findings}


def test_the_sizes_are_measured_on_the_way() -> None:
    report, _ = examine(prepare(None, {"table": list(range(100_000))}), live={})
    [rest] = report.variables["rest"]
    assert {"name": "table", "type": "list of 100000"}.items() <= next(
        row for row in rest["largest"] if row["name"] == "table"
    ).items()


def path(target: object, root: object) -> str:
    deadline = time.monotonic() + 5
    return diagnose.path_to(target, [("x", root)], is_boundary=lambda obj: False, deadline=deadline)


def test_the_path_is_the_shortest_and_reads_like_python() -> None:
    target = object()
    assert path(target, target) == "x"
    assert path(target, {"k": [1, (target,)]}) == "x['k'][1][0]"
    assert path(target, {"far": [[[target]]], "near": [target]}) == "x['near'][0]"
    assert path(target, Holder(a=Holder(b=target))) == "x.a.b"
    assert path(target, [1, 2]) == ""


def test_a_cycle_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert path(object(), loop) == ""


def test_boundaries_are_not_entered() -> None:
    target, wall = object(), Holder()
    wall.inside = target
    deadline = time.monotonic() + 5
    found = diagnose.path_to(target, [("x", [wall])], is_boundary=lambda obj: obj is wall, deadline=deadline)
    assert found == ""


def test_a_future_in_c_has_a_dictionary_that_it_does_not_show(tmp_path: Path) -> None:
    """The search for the path failed with an AttributeError of its own."""
    import asyncio

    loop = asyncio.new_event_loop()
    os.mkfifo(tmp_path / "fifo")
    try:
        future = loop.create_future()
        with os.fdopen(os.open(tmp_path / "fifo", os.O_RDWR), "wb") as pipe:
            future.set_result(pipe)
            found = found_in(future=[future])
    finally:
        loop.close()
    assert any(place.startswith("'future'[0]") for place in found), found


def test_a_named_pipe_is_found_though_it_is_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with os.fdopen(os.open(tmp_path / "fifo", os.O_RDWR), "wb") as pipe:
        found = found_in(pipe=pipe)
    assert any("an open pipe" in finding.reason for finding in found.values())


def test_a_type_is_called_as_a_program_can_write_it() -> None:
    """The remedy named zlib.Decompress, which there is not: `zlib` gives its class no name."""
    for value, called in ((zlib.decompressobj(), "cls"), (socket.SocketType, "type")):
        failure = TypeError("no")
        _, reason = diagnose.find(value, lambda _: None, failure)
        assert f"ckpt.register_type({called}, save, load)" in reason
        assert ("where cls is type(x) of one such object x" in reason) == (called == "cls")


def test_a_reason_in_two_parts_is_put_together() -> None:
    """torch raises NotImplementedError("{} cannot be pickled", name): both parts stood there as a tuple."""
    failure = NotImplementedError("{} cannot be pickled", "object")
    _, reason = diagnose.find(object(), lambda _: None, failure)
    assert reason.startswith("object cannot be pickled; ")


def test_a_type_in_c_that_nobody_has_used_yet_has_no_attributes() -> None:
    """`_socket.socket` without `socket`: looking for locks in it ended every image."""
    program = "import _socket; from ckpt.image.lowlevel.inspect_raw import namespace_of; "
    program += "print(dict(namespace_of(_socket.socket)) is not None)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True\n", done.stderr
