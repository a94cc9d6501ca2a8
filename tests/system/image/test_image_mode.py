"""How images are written: by a forked copy or by the rank itself, chosen, logged, shown; and what memory that takes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.apps import RING
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

ROOT = Path(__file__).parents[3]


@pytest.mark.rotate(4)
@pytest.mark.parametrize(
    ("options", "hindrance", "modes", "logged"),
    [
        ({}, "", {"fork"}, ""),
        ({"image_mode": "fork"}, "", {"fork"}, ""),
        ({"image_mode": "sync"}, "", {"sync"}, "asked for"),
        ({}, "memory", {"sync"}, "memory is tight: 1 MiB available"),
        ({"image_mode": "fork"}, "memory", {"fork"}, ""),
        ({}, "fork", {"sync"}, "the kernel has refused to fork"),
        ({"image_mode": "fork"}, "fork", {"sync"}, ""),
        ({}, "killer", {"fork", "sync"}, "the image writer was killed, as it is where memory runs out"),
        (
            {"image_mode": "fork"},
            "killer",
            {"fork", "sync"},
            "the image writer was killed, as it is where memory runs out",
        ),
    ],
)
def test_the_mode_is_chosen_and_said_and_the_result_the_same(
    start: Start, tmp_path: Path, options: dict[str, str], hindrance: str, modes: set[str], logged: str
) -> None:
    app = write_app(tmp_path, RING)
    clean = start(app, 300, ranks=2, name="clean")
    assert clean.finish() == 0
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HINDRANCE": hindrance}
    if hindrance:
        options = {**options, "entry": "tests.system.hindered_rank:run_rank"}
    job = start(app, 300, 0.003, ranks=2, every=0.15, env=env, **options)
    job.wait_event("committed", 2)
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == clean.output(0)
    assert {event["mode"] for event in job.events("captured")} == modes
    reasons = [event["reason"] for event in job.events("image-mode")]
    assert bool(reasons) == bool(logged) and all(reason.startswith(logged) for reason in reasons[:1]), reasons
    assert bool(job.events("fork-failed")) == (hindrance == "fork")


@pytest.mark.parametrize("mode", ["fork", "sync"])
def test_an_image_keeps_nothing_of_the_program_alive_whether_it_is_taken_or_fails(
    start: Start, tmp_path: Path, mode: str
) -> None:
    """A statement of sqlite3 that was not over for want of the garbage collector kept the program from committing."""
    app = write_app(
        tmp_path,
        """
        import gc, sqlite3, weakref
        import ckpt

        ckpt.enable()
        gc.disable()

        class Held:
            pass

        def held(obj, expected):
            epoch = ckpt.checkpoint()
            while ckpt.checkpoint() is None and expected:
                pass
            return weakref.ref(obj)

        base = sqlite3.connect("base.db", isolation_level=None)
        base.execute("pragma journal_mode=wal")
        for _ in range(3):
            print(held(Held(), True)() is None)
            print(held(base.execute("pragma wal_checkpoint(truncate)"), False)() is None)
            base.execute("begin")
            base.execute("create table if not exists numbers (number)")
            base.execute("commit")
        """,
    )
    job = start(app, ranks=1, image_mode=mode)
    assert job.finish() == 0, job.report()
    assert job.output(0).split() == ["True"] * 6
    reasons = [event["reason"] for event in job.events("failed")]
    assert reasons and all(
        "a cursor of sqlite3 in the middle of its results" in reason for reason in reasons
    ), reasons


def test_a_checkpoint_ends_no_statement_of_the_program(start: Start, tmp_path: Path) -> None:
    """The forked child committed it, and removed the journal under the program, which ended by "disk I/O error"."""
    app = write_app(
        tmp_path,
        """
        import sqlite3, subprocess, sys
        import ckpt

        ckpt.enable()
        connection = sqlite3.connect("base.db", isolation_level=None)
        connection.execute("create table t (a)")
        cursor = connection.execute("insert into t values (1), (2) returning a")
        first = cursor.fetchone()

        def seen_by_others():
            look = "import sqlite3; print(sqlite3.connect('base.db').execute('select count(*) from t').fetchone()[0])"
            return subprocess.run([sys.executable, "-c", look], capture_output=True, text=True).stdout.strip()

        for _ in range(3):
            ckpt.checkpoint()
        print(seen_by_others(), cursor.fetchall(), seen_by_others())
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "0 [(2,)] 2\n"
    assert any(
        "a cursor of sqlite3 in the middle of its results" in event["reason"]
        for event in job.events("failed")
    )


def test_the_mode_is_in_the_status(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    job = start(app, 3000, 0.01, ranks=2, every=0.1, image_mode="sync")
    job.wait_event("committed", 1)
    ranks = json.loads(run_ckpt("status", "--json", job.directory).stdout)["live"]["ranks"]
    assert [(rank["mode"], rank["mode_reason"]) for rank in ranks] == [("sync", "asked for")] * 2
    assert "waits while its images are written (asked for)" in run_ckpt("status", job.directory).stdout


def test_the_writer_takes_little_memory_beyond_the_programs(start: Start, tmp_path: Path) -> None:
    """The image is 400 MB in arrays; written uncopied it takes a small part of that."""
    pytest.importorskip("numpy")
    app = write_app(
        tmp_path,
        """
        import numpy as np
        import ckpt
        ckpt.enable()
        noise = np.random.default_rng(1).random(25_000_000)
        steps = np.arange(25_000_000)
        ckpt.checkpoint()
        while '"voted"' not in open(__import__("os").environ["CKPT_JOB"] + "/events.jsonl").read():
            noise[:1000] += 1
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    voted = job.events("voted")[0]
    assert voted["bytes_raw"] > 400_000_000
    assert voted["memory_bytes"] < 200_000_000, voted


def test_a_writer_that_ends_without_a_word_ends_the_round(tmp_path: Path, start: Callable[..., Job]) -> None:
    """The round went on for ever."""
    app = write_app(
        tmp_path,
        """
    import os, time
    import ckpt
    class Odd: pass
    ckpt.register_type(Odd, lambda odd: os._exit(7), lambda saved: Odd())
    odd = Odd()
    while True:
        time.sleep(0.01)
    """,
    )
    job = start(app, ranks=1, every=0.2)
    assert job.wait_event("failed")["reason"] == "the image writer ended with exit code 7", job.report()
