"""What libraries hold in C comes back after a kill: sqlite3, h5py, mapped files, logging."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]


def run_killed(start: Start, tmp_path: Path, text: str, **options: object) -> Job:
    """The program, killed once by itself; it must end well."""
    job = start(app_of(tmp_path, text), ranks=1, **options)
    assert job.finish() == 0, job.report()
    assert len(job.events("restarted")) == 1, job.report()
    return job


def test_sqlite_connections_go_on_with_their_settings(start: Start, tmp_path: Path) -> None:
    job = run_killed(
        start,
        tmp_path,
        """
        import sqlite3
        import ckpt
        from tools import die_once
        ckpt.enable()
        main = sqlite3.connect("main.db", isolation_level="IMMEDIATE", detect_types=sqlite3.PARSE_COLNAMES)
        main.execute("PRAGMA foreign_keys = ON")
        main.row_factory = sqlite3.Row
        main.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, words TEXT)")
        main.execute("ATTACH DATABASE 'other.db' AS other")
        main.execute("CREATE TABLE other.u (n)")
        memory = sqlite3.connect(":memory:")
        memory.execute("CREATE TABLE m (n)")
        memory.execute("INSERT INTO m VALUES (42)")
        memory.commit()
        closed = sqlite3.connect("closed.db"); closed.close()
        cursor = main.cursor()
        cursor.execute("SELECT 1").fetchall()
        with main:
            main.execute("INSERT OR REPLACE INTO t VALUES (1, 'before')")
        ckpt.checkpoint()
        with main:
            main.execute("INSERT OR REPLACE INTO t VALUES (2, 'after')")
        die_once()
        rows = [tuple(row) for row in cursor.execute("SELECT * FROM t")]
        row = main.execute("SELECT words FROM t").fetchone()
        main.execute("INSERT INTO other.u VALUES (7)"); main.commit()
        print(rows, row["words"], main.isolation_level, main.execute("PRAGMA foreign_keys").fetchone()[0])
        print(memory.execute("SELECT n FROM m").fetchall(), cursor.connection is main)
        print(main.execute("SELECT n FROM other.u").fetchone()[0])
        print(main.execute('SELECT 1 AS "a [x]"').description[0][0])
        try:
            closed.execute("SELECT 1")
        except sqlite3.ProgrammingError as error:
            print(error)
        """,
    )
    assert job.output(0).splitlines() == [
        "[(1, 'before'), (2, 'after')] before IMMEDIATE 1",
        "[(42,)] True",
        "7",
        "a",
        "Cannot operate on a closed database.",
    ]


def test_an_open_transaction_of_a_variable_of_the_program_is_waited_for(start: Start, tmp_path: Path) -> None:
    """The image failed at once; only connections in variables of functions were waited for."""
    job = run_killed(
        start,
        tmp_path,
        """
        import os, sqlite3, time
        import ckpt
        from tools import die_once
        ckpt.enable()

        class Ledger(sqlite3.Connection):
            def __init__(self, path, owner):
                super().__init__(path)
                self.owner = owner

        class Store:
            def __init__(self):
                self.ledger = Ledger("ledger.db", "me")

        def events(word):
            return open(os.environ["CKPT_JOB"] + "/events.jsonl").read().count(f'"{word}"')

        def transaction(n):
            store.ledger.execute("INSERT INTO t VALUES (?)", (n,))
            ckpt.checkpoint(wait=False)
            time.sleep(0.3)  # there is no image meanwhile, and none fails
            print(events("committed"), events("failed"), store.ledger.in_transaction)
            store.ledger.commit()
            while not events("committed"):
                time.sleep(0.002)

        store = Store()
        store.ledger.execute("CREATE TABLE t (n)")
        transaction(1)
        die_once()
        print(store.ledger.execute("SELECT n FROM t").fetchall(), type(store.ledger).__name__, store.ledger.owner)
        """,
    )
    assert not job.events("failed"), job.report()
    assert job.output(0) == "0 0 True\n[(1,)] Ledger me\n"


def test_an_open_transaction_is_named_until_it_is_committed(start: Start, tmp_path: Path) -> None:
    job = run_killed(
        start,
        tmp_path,
        """
        import os, sqlite3, time
        import ckpt
        from tools import die_once
        ckpt.enable()
        ledger = sqlite3.connect("ledger.db")
        ledger.execute("CREATE TABLE t (n)")
        ledger.execute("INSERT INTO t VALUES (1)")
        ckpt.checkpoint()
        while '"round-aborted"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
            time.sleep(0.002)
        ledger.commit()
        ckpt.checkpoint()
        die_once()
        print(ledger.execute("SELECT n FROM t").fetchall())
        """,
    )
    failed = job.events("failed")[0]
    assert "ledger" in failed["where"] and "ledger.db is in a transaction" in failed["reason"]
    assert "ckpt.on_checkpoint" in failed["reason"] and "register_type" not in failed["reason"]
    assert job.output(0) == "[(1,)]\n"


def test_a_database_can_be_rolled_back(start: Start, tmp_path: Path) -> None:
    job = run_killed(
        start,
        tmp_path,
        """
        import sqlite3
        import ckpt, ckpt.ready
        from tools import die_once
        ckpt.enable()
        counts = sqlite3.connect("counts.db")
        ckpt.ready.roll_back(counts)
        counts.execute("CREATE TABLE t (n)")
        for i in range(5):
            counts.execute("INSERT INTO t VALUES (?)", (i,))
            counts.commit()
            if i == 2:
                ckpt.checkpoint()
            if i == 4:
                die_once()
        print(counts.execute("SELECT n FROM t").fetchall())
        """,
    )
    assert job.output(0) == "[(0,), (1,), (2,), (3,), (4,)]\n"


@pytest.mark.parametrize("kind", ["mmap", "memmap"])
def test_a_file_mapped_for_writing_is_put_back(start: Start, tmp_path: Path, kind: str) -> None:
    if kind == "memmap":
        pytest.importorskip("numpy")
        make = 'import numpy; field = numpy.memmap("field", "u1", "w+", shape=(200000,))'
    else:
        make = (
            'import mmap; open("field", "wb").write(bytes(200000)); file = open("field", "r+b"); '
            "field = mmap.mmap(file.fileno(), 0)"
        )
    job = run_killed(
        start,
        tmp_path,
        f"""
        import ckpt
        from tools import die_once
        ckpt.enable()
        {make}
        field[5] = 1
        same = [field]
        ckpt.checkpoint()
        ckpt.restarts() == 0 and field.__setitem__(6, 9)
        field[7] = 7
        field.flush()
        die_once()
        field[8] = same[0][5] + 1
        field.flush()
        print([int(n) for n in field[4:10]], list(open("field", "rb").read()[4:10]), same[0] is field, len(field))
        """,
    )
    assert job.output(0) == "[0, 1, 0, 7, 2, 0] [0, 1, 0, 7, 2, 0] True 200000\n"
    assert job.events("captured")[0]["mode"] == "fork"


def test_a_file_mapped_for_writing_is_no_obstacle_to_threads(start: Start, tmp_path: Path) -> None:
    """Images were written without a fork, and so refused for the thread, and for the iterators."""
    job = run_killed(
        start,
        tmp_path,
        """
        import mmap, re, struct, threading
        import ckpt
        from tools import die_once
        ckpt.enable()
        open("field", "wb").write(bytes(200000)); file = open("field", "r+b")
        field = mmap.mmap(file.fileno(), 0)
        found, numbers = re.finditer("[a-z]", "a1b2c3"), struct.iter_unpack("B", b"123")
        field[0] += next(numbers)[0]
        begin, go = threading.Event(), threading.Event()
        def work():
            begin.set()
            go.wait()
            field[1] = field[0] + 1
        thread = threading.Thread(target=work)
        thread.start()
        begin.wait()
        next(found)
        ckpt.checkpoint()
        field[0] += 1
        die_once()
        go.set()
        thread.join()
        print(field[0], field[1], next(found)[0], next(numbers), list(open("field", "rb").read()[:2]))
        """,
    )
    assert job.output(0) == "50 51 b (50,) [50, 51]\n"


def test_maps_for_reading_private_and_anonymous_ones_come_back(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(range(256)) * 64)
    job = run_killed(
        start,
        tmp_path,
        """
        import mmap
        import ckpt
        from tools import die_once
        ckpt.enable()
        with open("data", "rb") as file:
            reading = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            private = mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_COPY, offset=4096)
        reading.read(10)
        private[0] = 99
        ckpt.checkpoint()
        die_once()
        private[1] = 98
        print(list(reading.read(3)), list(private[:3]), list(open("data", "rb").read()[4096:4099]), len(private))
        """,
    )
    assert job.output(0) == "[10, 11, 12] [99, 98, 2] [0, 1, 2] 4096\n"


def test_logging_goes_on_with_its_handlers_and_files(start: Start, tmp_path: Path) -> None:
    run_killed(
        start,
        tmp_path,
        """
        import logging, logging.handlers
        import ckpt
        from tools import die_once
        ckpt.enable()
        log = logging.getLogger("sim.step")
        handler = logging.handlers.RotatingFileHandler("sim.log", maxBytes=100000, backupCount=2)
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        for i in range(4):
            log.debug("no"); log.info("step %d", i)
            if i == 1:
                ckpt.checkpoint()
            if i == 2:
                die_once()
        logging.shutdown()
        """,
    )
    assert (tmp_path / "sim.log").read_text() == "".join(f"INFO step {i}\n" for i in range(4))
    assert logging.getLogger("sim.step").handlers == []  # of the ranks, not of this process


@pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is not installed")
def test_hdf5_files_and_data_sets_are_opened_again(start: Start, tmp_path: Path) -> None:
    job = run_killed(
        start,
        tmp_path,
        """
        import h5py
        import ckpt
        from tools import die_once
        ckpt.enable()
        store = h5py.File("store.h5", "w")
        rows = store.create_group("run").create_dataset("rows", (6,), "i8")
        group = store["run"]
        gone = h5py.File("gone.h5", "w"); gone.close()
        for i in range(6):
            rows[i] = i * i
            if i == 2:
                ckpt.checkpoint()
            if i == 4:
                die_once()
        print(rows[:].tolist(), group.name, rows.file == store, store.mode, bool(gone))
        store.close()
        print(h5py.File("store.h5")["run/rows"][:].tolist())
        """,
    )
    assert job.output(0) == "[0, 1, 4, 9, 16, 25] /run True r+ False\n[0, 1, 4, 9, 16, 25]\n"


@pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is not installed")
@pytest.mark.parametrize("first", ["writer", "reader"])
def test_a_writer_and_a_reader_of_one_hdf5_file_are_both_there(
    first: str, start: Start, tmp_path: Path
) -> None:
    """Single writer, multiple readers: the openings of one process share what HDF5 knows of the file."""
    job = run_killed(
        start,
        tmp_path,
        f"""
        import h5py
        import ckpt
        from tools import die_once
        ckpt.enable()
        made = h5py.File("store.h5", "w", libver="latest")
        rows = made.create_dataset("rows", (0,), maxshape=(None,), chunks=(8,), dtype="i8")
        made.swmr_mode = True
        reading = h5py.File("store.h5", "r", libver="latest", swmr=True)
        seen = reading["rows"]
        writer, reader = (rows, made), (seen, reading)
        objects = {{"writer": [writer, reader], "reader": [reader, writer]}}["{first}"]
        del writer, reader, made, reading, rows, seen
        for i in range(6):
            (rows, made), (seen, reading) = objects if "{first}" == "writer" else objects[::-1]
            rows.resize((i + 1,)); rows[i] = i * i; rows.flush(); seen.refresh()
            del rows, made, reading
            if i == 2:
                ckpt.checkpoint()
            if i == 4:
                die_once()
        print(seen[:].tolist())
        """,
    )
    assert job.output(0) == "[0, 1, 4, 9, 16, 25]\n"
    assert not job.events("line-unusable"), job.report()


WRITES = """
        import bz2, gzip, io, lzma, os, sys, time, zipfile
        import ckpt

        def image():
            '''Ask for one, and wait until its child has done all that it does.'''
            image.rounds += 1
            ckpt.checkpoint()
            deadline_s = time.monotonic() + 30
            while sum(is_over(line) for line in open(os.environ["CKPT_JOB"] + "/events.jsonl")) < image.rounds:
                assert time.monotonic() < deadline_s
                time.sleep(0.002)
        image.rounds = 0

        def is_over(line):
            return '"event":"round-aborted"' in line or '"event":"committed"' in line

        class Zip:
            def open(self, name, mode):
                return io.TextIOWrapper(zipfile.ZipFile(name, mode[0]).open("member", mode[0]))

        ckpt.enable()
        module = {"gzip": gzip, "bz2": bz2, "lzma": lzma, "zipfile": Zip()}[sys.argv[1]]
        lines = [f"line {number} {number * number}\\n" for number in range(2000)]
        file = module.open("packed", "wt")
        for number, line in enumerate(lines):
            file.write(line)
            if number % 400 == 7:
                image()
        if sys.argv[1] == "zipfile":
            archive = file.buffer._zipfile
        file.close()
        if sys.argv[1] == "zipfile":
            archive.close()
        read = []
        for number, line in enumerate(module.open("packed", "rt")):
            read.append(line)
            if number % 400 == 7:
                image()
        print(read == lines, image.rounds)
        """


@pytest.mark.parametrize("module", ["gzip", "bz2", "lzma", "zipfile"])
def test_an_image_changes_nothing_in_a_compressed_file_that_is_open(
    start: Start, tmp_path: Path, module: str
) -> None:
    """The child that writes it asked text layers for what they held: that flushed compressors into the program's files, and
    moved the program in those that it read."""
    job = start(app_of(tmp_path, WRITES), module, ranks=1, image_mode="fork")
    assert job.finish() == 0, job.report()
    assert job.output(0) == "True 10\n"


def test_compressed_files_being_written_go_on_after_kills(start: Start, tmp_path: Path) -> None:
    """Killed twice, each time some lines after an image; what was behind it is in the files, and is cut off."""
    job = start(
        app_of(
            tmp_path,
            """
            import bz2, gzip, lzma, os, signal, time, zipfile
            import ckpt

            def die(after):
                if ckpt.restarts() >= after:
                    return
                deadline_s = time.monotonic() + 30
                while open(os.environ["CKPT_JOB"] + "/events.jsonl").read().count('"committed"') < after:
                    assert time.monotonic() < deadline_s, "not committed"
                    time.sleep(0.002)
                os.kill(os.getpid(), signal.SIGKILL)

            ckpt.enable()
            archive = zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED)
            member = archive.open("member", "w")
            data = [gzip.open("a.gz", "wb"), bz2.open("a.bz2", "wb"), lzma.open("a.xz", "wb", preset=0), member]
            text = [gzip.open("t.gz", "wt"), bz2.open("t.bz2", "wt"), lzma.open("t.xz", "wt", preset=0)]
            lines = [f"line {number} {number * number}\\n" for number in range(30000)]
            for number, line in enumerate(lines):
                for file in data:
                    file.write(line.encode())
                for file in text:
                    file.write(line)
                if number in (7, 20000):
                    ckpt.checkpoint()
                if number in (9000, 29000):
                    for file in text:
                        file.flush()
                    die(1 if number == 9000 else 2)
            for file in data + text + [archive]:
                file.close()
            whole = "".join(lines)
            for module, ending in ((gzip, "gz"), (bz2, "bz2"), (lzma, "xz")):
                print(module.open(f"a.{ending}").read() == whole.encode(), module.open(f"t.{ending}", "rt").read() == whole)
            print(zipfile.ZipFile("a.zip").read("member") == whole.encode())
            """,
        ),
        ranks=1,
        image_mode="fork",
    )
    assert job.finish() == 0, job.report()
    assert job.output(0) == "True True\nTrue True\nTrue True\nTrue\n"
    assert len(job.events("restarted")) == 2, job.report()
