"""`ckpt doctor` on real programs: all that would not survive, at once; nothing where nothing is wrong.

Nothing is left behind either.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.system.support import run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(12)]

LONG_S = 120.0

TROUBLED = """
    import array, os, socket, sqlite3, subprocess, threading, time, weakref, bz2

    unpacker = bz2.BZ2Decompressor()
    database = sqlite3.connect(":memory:"); database.execute("CREATE TEMP TABLE t (n)"); database.commit()
    os.mkfifo("line"); raw = os.open("line", os.O_RDWR); again = os.open(__file__, os.O_RDONLY)
    worker = threading.Thread(target=threading.Event().wait, args=(600,), daemon=True, name="worker")
    worker.start()
    child = subprocess.Popen(["sleep", "SECONDS"], stdout=subprocess.PIPE)

    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing)
    thing.callback = lambda x: x + 1

    def slow(i):
        time.sleep(0.01)
        return i

    def work():
        server = socket.create_server(("127.0.0.1", 0))
        lines = {"control": [socket.create_connection(server.getsockname())]}
        step = 0
        while True:
            for i in range(20):
                slow(i)
            sum(array.array("d", (slow(i) for i in range(20))))
            step += 1
            print(step)

    work()
"""

HEALTHY = """
    import random, time, weakref

    class Node:
        pass

    random.seed(7)
    node = Node()
    node.callback = lambda x: x + node.offset
    node.offset = 5
    reference = weakref.ref(node)
    log = open("log.txt", "w")

    def numbers():
        n = 0
        while True:
            n += 1
            yield n

    source = numbers()
    table = list(range(20_000))
    while True:
        n = next(source)
        print(n, reference().callback(n), random.random())
        log.write(f"{n}\\n")
        time.sleep(0.005)
"""


def doctor(*arguments: object, cwd: Path) -> tuple[int, dict[str, Any]]:
    environment = {**os.environ, "TMPDIR": str(cwd / "tmp")}
    (cwd / "tmp").mkdir(exist_ok=True)
    done = run_ckpt("doctor", "--json", *arguments, cwd=cwd, env=environment, timeout_s=LONG_S)
    assert done.stdout, done.stderr
    left = [path for path in (cwd / "tmp").iterdir() if path.name.startswith("ckpt-")]
    assert not left, "nothing is left behind"
    return done.returncode, json.loads(done.stdout)


def test_everything_that_would_not_survive_is_reported_at_once(tmp_path: Path) -> None:
    seconds = f"600.{os.getpid()}"  # a command that nobody else runs
    app = write_app(tmp_path, TROUBLED.replace("SECONDS", seconds))
    code, found = doctor("--seconds", 5, "--images", 1, app, cwd=tmp_path)
    assert code == 1 and not found["ok"]
    objects = {problem["where"]: problem for problem in found["problems"] if problem["kind"] == "object"}
    assert {
        "__main__ variable 'unpacker'",
        "__main__ variable 'database'",
        "work() variable 'lines'['control'][0]",
    } <= set(objects)
    assert any("'child'" in where for where in objects), "the pipe of the child"
    assert not any("'reference'" in where or "'thing'" in where for where in objects), "these can be saved"
    assert "ckpt.register_type" in objects["__main__ variable 'unpacker'"]["remedy"]
    assert "ckpt.register_type(socket.socket" in objects["work() variable 'lines'['control'][0]"]["remedy"]
    by_kind = {problem["kind"]: problem for problem in found["problems"]}
    assert "thread" not in by_kind  # it is part of the images
    assert by_kind["child"]["where"] == f"sleep {seconds}"
    descriptors = [problem["what"] for problem in found["problems"] if problem["kind"] == "descriptor"]
    assert descriptors == ["a raw descriptor of a pipe"]  # a file's number is there again after a restart
    assert any(
        "array() is running" in row["reason"] and "app.py:29" in row["where"] for row in found["refusals"]
    )
    assert not any(image["ok"] for image in found["images"])
    assert subprocess.run(["pgrep", "-f", f"sleep {seconds}"], capture_output=True).stdout == b""


COMING_BACK = """
    import multiprocessing, multiprocessing.shared_memory, subprocess, time
    import ckpt

    def start():
        return subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)

    if __name__ == "__main__":
        child = ckpt.register_child(start(), start)
        value, lock = multiprocessing.Value("i", 0), multiprocessing.Lock()
        block = multiprocessing.shared_memory.SharedMemory(create=True, size=8)
        for step in range(60):
            value.value += 1
            block.buf[0] = step
            time.sleep(0.02)
        print(value.value, block.buf[0])
        block.close(), block.unlink(), child.kill(), child.wait()
"""


def test_what_is_started_and_made_again_is_no_problem(tmp_path: Path) -> None:
    """The child was one, and so were the memory of multiprocessing, its resource tracker and the tracker's pipe."""
    code, found = doctor("--images", 1, write_app(tmp_path, COMING_BACK), cwd=tmp_path)
    assert code == 0 and found["problems"] == [], found["problems"]
    assert [restart["ok"] for restart in found["restarts"]] == [True]


def test_a_healthy_program_is_restored_and_goes_on(tmp_path: Path) -> None:
    app = write_app(tmp_path, HEALTHY)
    code, found = doctor("--seconds", 1.5, "--images", 2, app, cwd=tmp_path)
    assert code == 0 and found["ok"] and found["problems"] == [], found
    assert [image["ok"] for image in found["images"]] == [True, True]
    assert [restart["ok"] for restart in found["restarts"]] == [True, True]
    assert [restart["differs"] for restart in found["restarts"]] == [None, None]
    assert found["samples"]["captured"] > 0
    assert found["sizes"]["largest"][0]["where"] == "__main__ variable 'table'"


@pytest.mark.usefixtures("listening")
def test_the_examinations_that_were_due_are_waited_for(tmp_path: Path) -> None:
    """A program with much to look at, or a slow machine: healthy without having been looked at is no finding."""
    text = """
        import os, socket, time
        import ckpt

        class Large:
            pass

        ckpt.register_type(Large, lambda large: time.sleep(1.5), lambda saved: Large())
        large, line = Large(), socket.create_connection(("127.0.0.1", int(os.environ["PORT_OF_THE_TEST"])))
        while True:
            print(1)
            time.sleep(0.005)
    """
    code, found = doctor("--seconds", 1.1, "--images", 1, write_app(tmp_path, text), cwd=tmp_path)
    assert code == 1
    [problem] = found["problems"]
    assert problem["where"] == "__main__ variable 'line'"
    assert problem["seen"] == 3, "those after 0.05, 0.3 and 1 s"


def test_lines_appended_to_a_file_that_is_closed_again_are_a_problem_without_files(tmp_path: Path) -> None:
    """They are there twice after a restart with `--files off`, and nobody was told."""
    text = """
        import logging, time
        from pathlib import Path

        logging.basicConfig(filename="kept-open.log", level=logging.INFO)
        n = 0
        while True:
            n += 1
            print(n, flush=True)
            logging.info("step %d", n)
            with Path("energies.txt").open("a") as file:
                file.write(f"{n}\\n")
            time.sleep(0.005)
    """
    code, found = doctor(
        "--files", "off", "--seconds", 1, "--images", 1, write_app(tmp_path, text), cwd=tmp_path
    )
    assert code == 1
    [problem] = found["problems"]
    assert problem["kind"] == "file" and "energies.txt" in problem["what"]
    assert problem["where"].startswith("app.py:1")


def test_what_a_child_process_does_with_files_is_named_with_its_place(tmp_path: Path) -> None:
    text = """
        import subprocess, time
        n = 0
        while True:
            n += 1
            print(n, flush=True)
            subprocess.run(["touch", f"by-child-{n % 2}"])
            with open("log", "a") as file:
                file.write("x")
            time.sleep(0.005)
    """
    code, found = doctor("--seconds", 1, "--images", 1, write_app(tmp_path, text), cwd=tmp_path)
    assert code == 1
    files = [problem for problem in found["problems"] if problem["kind"] == "file"]
    assert {problem["what"].rpartition("/")[2] for problem in files} == {"by-child-0", "by-child-1"}
    assert {problem["where"] for problem in files} == {"app.py:7 <module>"}
    assert any("app.py:7 <module> starts touch" in note for note in found["notes"])


def test_the_remedies_heal(tmp_path: Path) -> None:
    """Types registered as the doctor says: the same objects survive."""
    text = """
        import bz2, socket, sqlite3, time
        import ckpt

        ckpt.enable()
        unpacker = bz2.BZ2Decompressor()
        ckpt.register_type(sqlite3.Connection, lambda c: None, lambda s: sqlite3.connect("data.db"))
        ckpt.register_type(socket.socket, lambda c: None, lambda s: socket.socket())
        ckpt.register_type(type(unpacker), lambda d: None, lambda s: bz2.BZ2Decompressor())
        database = sqlite3.connect("data.db")
        line = socket.socket()
        while True:
            print(unpacker.unused_data, database.in_transaction, line.family)  # no cursor, in whose rows an image may fall
            time.sleep(0.005)
    """
    code, found = doctor("--seconds", 1, "--images", 1, write_app(tmp_path, text), cwd=tmp_path)
    assert code == 0 and found["ok"], found["problems"]
    assert [restart["differs"] for restart in found["restarts"]] == [None]


def test_a_hidden_place_is_named_with_its_length(tmp_path: Path) -> None:
    text = """
        import array, time

        def slow(i):
            time.sleep(0.01)
            return i

        print(sum(array.array("d", (slow(i) for i in range(10**6)))))
    """
    code, found = doctor("--seconds", 2, "--images", 1, write_app(tmp_path, text), cwd=tmp_path)
    assert code == 1
    [problem] = found["problems"]
    assert problem["kind"] == "refusal" and "array() is running <genexpr>" in problem["what"]
    assert "app.py:8" in problem["where"] and "write the loop out" in problem["remedy"]


def test_what_cannot_be_made_anew_at_a_restart_is_seen_there(tmp_path: Path) -> None:
    """The image can be taken, and the restored program fails: a file that is gone by then."""
    text = """
        import os, time

        with open("data.txt", "w") as file:
            file.write("x" * 2_000_000)  # more than an image holds of a file
        data = open("data.txt")
        data.read(1)
        control = os.environ["CKPT_JOB"] + "/control"
        while True:
            time.sleep(0.01)
            if os.path.exists("data.txt") and any(name.startswith("epoch-") for name in os.listdir(control)):
                os.rename("data.txt", "moved.txt")
    """
    app = write_app(tmp_path, text)
    code, found = doctor("--files", "off", "--seconds", 2, "--images", 1, app, cwd=tmp_path)
    assert code == 1
    [problem] = found["problems"]
    assert problem["kind"] == "restart" and "data.txt" in problem["why"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("1 / 0\n", "ZeroDivisionError"), ("print('at once')\n", "before an image was taken")],
    ids=["fails", "short"],
)
def test_a_program_that_fails_or_is_over_at_once_is_not_called_healthy(
    tmp_path: Path, text: str, words: str
) -> None:
    code, found = doctor(write_app(tmp_path, text), cwd=tmp_path)
    assert code == 1
    [problem] = found["problems"]
    assert problem["kind"] == "program" and words in problem["why"]


def test_several_ranks_and_a_module(tmp_path: Path) -> None:
    text = """
        import time, bz2
        import ckpt

        comm = ckpt.enable()
        if comm.rank == 1:
            unpacker = bz2.BZ2Decompressor()
        while True:
            comm.allreduce(1)
            time.sleep(0.005)
    """
    write_app(tmp_path, text, "program.py")
    code, found = doctor("-n", 2, "--seconds", 1.5, "--images", 1, "-m", "program", cwd=tmp_path)
    assert code == 1
    [problem] = [problem for problem in found["problems"] if problem["kind"] == "object"]
    assert problem["where"] == "__main__ variable 'unpacker'" and problem["ranks"] == [1]


def test_a_missing_program_is_a_usage_error() -> None:
    done = run_ckpt("doctor", os.path.join(tempfile.gettempdir(), "no-such-program.py"))
    assert done.returncode == 2 and "cannot read" in done.stderr
    assert run_ckpt("doctor").returncode == 2


def test_people_are_told_that_the_program_really_runs(tmp_path: Path) -> None:
    done = run_ckpt("doctor", "--seconds", 0.5, write_app(tmp_path, "print(1)\n"), timeout_s=LONG_S)
    assert "really runs the program" in done.stderr
    assert "remedy:" in done.stdout and "1 problem" in done.stdout


COUNTER_IN_C = """
    #include <Python.h>
    static long count;  /* in no variable of Python */
    static PyObject *next(PyObject *self, PyObject *nothing) { return PyLong_FromLong(++count); }
    static PyMethodDef methods[] = {{"next", next, METH_NOARGS, ""}, {0}};
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "counter", "", -1, methods};
    PyMODINIT_FUNC PyInit_counter(void) { return PyModule_Create(&module); }
"""


def compiled_counter(directory: Path) -> None:
    source = write_app(directory, COUNTER_IN_C, "counter.c")
    include = sysconfig.get_paths()["include"]
    command = ["gcc", "-shared", "-fPIC", "-I", include, "-o", str(directory / "counter.so"), str(source)]
    subprocess.run(command, check=True, capture_output=True)


GOES_ON = """
    import sys, time
    {before}
    for step in range(60):
        {each}
        sys.stdout.flush()
        time.sleep(0.02)
"""


def lost(tmp_path: Path, before: str, each: str, *options: str) -> tuple[int, dict[str, Any]]:
    app = write_app(tmp_path, GOES_ON.format(before=before, each=each))
    return doctor(*options, "--seconds", 4, "--images", 1, app, cwd=tmp_path)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler here")
def test_state_in_a_compiled_module_that_is_lost_is_a_problem_with_the_first_difference(
    tmp_path: Path,
) -> None:
    compiled_counter(tmp_path)
    code, found = lost(tmp_path, "import counter", "print(counter.next())")
    assert code == 1 and not found["ok"], found
    [problem] = [each for each in found["problems"] if each["kind"] == "restart"]
    assert "printed something else" in problem["what"] and "output of rank 0 line" in problem["where"]
    assert "'1', twice alike, where the first run printed" in problem["why"], problem
    assert "compiled module" in problem["remedy"]


def test_a_file_that_is_changed_in_place_after_the_image_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "total.txt").write_text("0000000")
    add = "f = open('total.txt', 'r+b'); n = int(f.read()) + 1; f.seek(0); f.write(b'%07d' % n); f.close()"
    before = f"def add():\n        {add}"
    code, found = lost(tmp_path, before, "add(); print('step', step)", "--files", "off")
    assert code == 1 and not found["ok"], found
    [problem] = [each for each in found["problems"] if each["kind"] == "restart"]
    assert "wrote something else" in problem["what"] and "total.txt" in problem["where"]
    assert "where the first run wrote '0000060'" in problem["why"]
    assert (tmp_path / "total.txt").read_text() == "0000060", "left as the first run left it"


@pytest.mark.parametrize("files", ["auto", "off"])
def test_files_that_others_change_meanwhile_are_left_alone(tmp_path: Path, files: str) -> None:
    """What an editor or another job wrote below the working directory was put back as it was when the first run ended."""
    app = write_app(
        tmp_path,
        """
        import os, sys, time
        own = open("own.txt", "w")
        for step in range(30):
            print("step", step, file=own, flush=True)
            # an editor: it saves its file during the first run and during each restored run
            os.system(f"echo $$ {time.time_ns()} > edited.txt; cp edited.txt new-$$.txt")
            time.sleep(0.05)
        """,
    )
    _, found = doctor("--files", files, "--seconds", 1, "--images", 1, app, cwd=tmp_path)
    saved = [path.read_text() for path in tmp_path.glob("new-*.txt")]
    assert (tmp_path / "edited.txt").read_text() == max(saved, key=lambda text: int(text.split()[1]))
    assert found["restarts"] and not any("edited.txt" in str(each["also"]) for each in found["restarts"])


EDITS_AND_RENAMES = """
    import os, sys, time
    import numpy
    def edit():  # its own input
        with open("sub/counter.txt") as file:
            count = int(file.read()) + 1
        # in one call: a file that is open for writing at the image gets its content back
        numpy.array([count]).tofile("sub/counter.txt", sep=" ")
    def rename():  # the next number that is free
        with open("part.tmp", "w") as file:
            file.write(f"step {step}")
        os.rename("part.tmp", f"part.{sum(name.startswith('part.') for name in os.listdir()):02}.txt")
    with open("large", "wb") as file:
        file.truncate(150 << 20)
    events = os.environ["CKPT_JOB"] + "/events.jsonl"
    for step in range(60):
        while step == 5 and '"committed"' not in open(events).read():
            time.sleep(0.01)  # on a busy machine the program could be at its end before it has an image
        edit()
        if step % 10 == 9:
            rename()
        numpy.save("state.npy", numpy.arange(step))
        with open("gone", "w") as file:
            file.write(str(step))
        os.remove("gone")
        os.utime("touched")
        print("step", step, flush=True)
        time.sleep(0.02)
"""


def test_edited_inputs_and_renamed_outputs_are_a_problem_and_what_is_only_touched_is_none(
    tmp_path: Path,
) -> None:
    pytest.importorskip("numpy")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "counter.txt").write_text("0")
    (tmp_path / "touched").write_text("")
    app = write_app(tmp_path, EDITS_AND_RENAMES)
    code, found = doctor("--files", "off", "--seconds", 4, "--images", 1, app, cwd=tmp_path)
    assert code == 1 and not found["ok"], found
    [problem] = found["problems"]
    [restart] = found["restarts"]
    assert problem["kind"] == "restart" and problem["where"] == "file part.07.txt line 1", problem
    assert "where the first run wrote 'no file'" in problem["why"] and "'step " in problem["why"]
    assert {"sub/counter.txt"} == {name for name in restart["also"] if not name.startswith("part.")}, restart
    assert "other files differ, too: " in problem["why"]
    assert any("too large to be compared" in note and "large" in note for note in found["notes"])
    assert (tmp_path / "sub" / "counter.txt").read_text() == "60", "left as the first run left it"


def test_time_stamps_and_random_numbers_of_the_system_are_no_problem(tmp_path: Path) -> None:
    code, found = lost(tmp_path, "import os", "print(step, time.time_ns(), os.urandom(4).hex())")
    assert code == 0 and found["ok"], found
    assert any("cannot be told" in note for note in found["notes"])


POOL = """
    import multiprocessing, time
    from concurrent.futures import ProcessPoolExecutor

    def task(n):
        time.sleep(0.05)
        return n

    executor, pool = ProcessPoolExecutor(2), multiprocessing.Pool(2)
    for step in range(40):
        assert [future.result() for future in [executor.submit(task, n) for n in range(2)]] == [0, 1]
        assert pool.map(task, range(4)) == [0, 1, 2, 3]
"""


def test_the_processes_and_pipes_of_a_pool_are_no_problem(tmp_path: Path) -> None:
    code, found = doctor("--seconds", 2, "--images", 1, write_app(tmp_path, POOL), cwd=tmp_path)
    assert found["problems"] == [] and code == 0, found
