"""What is to be done at the program's end is done once, whoever has asked for it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.ckpt.image.support import after_restart, resumed_output

POOL = """
    import atexit

    atexit.register(print, "end of the library")

    class Pool:
        def __init__(self):
            self.open = True
            atexit.register(lambda: self.close())

        def close(self):
            print("closed", self.open)
            self.open = False
"""


def test_what_a_library_registers_for_the_program_is_part_of_it(tmp_path: Path) -> None:
    # A pool of schwimmbad's that nobody closes does so itself; after a restart its workers waited for ever.
    program = """
        import atexit, lib
        pool = lib.Pool()
        driver_tick()
        atexit._run_exitfuncs()
        print(pool.open)
    """
    assert after_restart(tmp_path, POOL, program) == "closed True\nend of the library\nFalse\n"


def test_what_it_registers_when_it_is_imported_is_not_registered_twice(tmp_path: Path) -> None:
    program = """
        import atexit
        def later():
            import lib
        later()
        driver_tick()
        atexit._run_exitfuncs()
    """
    assert after_restart(tmp_path, POOL, program) == "end of the library\n"


def test_the_standard_library_sees_to_itself(tmp_path: Path) -> None:
    source = """
        import atexit, tempfile, weakref
        class Thing:
            pass
        thing = Thing()
        weakref.finalize(thing, print, "finalized")
        driver_tick()
        atexit._run_exitfuncs()
    """
    assert resumed_output(tmp_path, source) == "finalized\n"


def test_what_cannot_be_saved_is_left_out_and_said(tmp_path: Path) -> None:
    library = """
        import atexit, socket

        class Client:
            def __init__(self):
                server, connection = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
                server.bind(f"{id(self)}.sock")
                server.listen()
                connection.connect(server.getsockname())
                atexit.register(lambda: [each.close() for each in (connection, server)])
    """
    program = """
        import atexit, lib
        lib.Client()
        driver_tick()
        atexit._run_exitfuncs()
        print("end")
    """
    assert after_restart(tmp_path, library, program) == "end\n"
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    (row,) = next(line["left_out"] for line in lines if line.get("left_out"))
    assert (row["kind"], row["package"]) == ("unsaved", "lib")
    assert row["variables"] == ["lib: atexit Client.__init__.<locals>.<lambda>"]
    assert "socket" in row["reason"]
