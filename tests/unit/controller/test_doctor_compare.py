"""What tells loss from chance: two restored runs beside the first one."""

from __future__ import annotations

import os
from pathlib import Path

from controller.doctor_compare import contents, judge, put_back, written


def test_outputs_are_compared_as_far_as_both_go() -> None:
    assert judge({0: b"a\nb\nc\n"}, {0: b"a\nb\n"}, None, whole=False) == (None, None)
    assert judge({0: b"a\nb\n"}, {0: b"a\nb\nc\nd\n"}, None, whole=False) == (None, None)
    expected = {"rank": 1, "line": 1, "first": "x", "restored": "y"}
    first, once = {0: b"a\nb\n", 1: b"x\n"}, {0: b"a\nb\n", 1: b"y\n"}
    assert judge(first, once, None, whole=False) == (None, expected)
    assert judge(first, once, once, whole=False) == (expected, None)


def test_what_two_restored_runs_say_alike_is_lost_and_what_they_do_not_is_not_known() -> None:
    first, once, twice = {0: b"1.5 s\n7\n"}, {0: b"1.7 s\n3\n"}, {0: b"1.6 s\n3\n"}
    alike, unsure = judge(first, once, twice, whole=False)
    assert (alike["line"], alike["restored"], unsure["line"]) == (2, "3", 1)
    assert judge(first, once, {0: b"1.6 s\n4\n"}, whole=False)[0] is None


def test_missing_lines_and_files_are_differences_of_runs_that_came_to_their_end() -> None:
    alike, _ = judge({0: b"a\nb\n"}, {0: b"a\n"}, {0: b"a\n"}, whole=True)
    assert alike == {"rank": 0, "line": 2, "first": "b", "restored": "nothing"}
    alike, _ = judge({"out.txt": b"a\n"}, {"out.txt": None}, {"out.txt": None}, whole=True)
    assert alike == {"path": "out.txt", "line": 1, "first": "a", "restored": "nothing"}


def test_files_that_a_program_has_written_are_found_and_put_back(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("old")
    os.utime(tmp_path / "input", ns=(1, 1))
    changed_ns = os.stat(tmp_path / "input").st_ctime_ns
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "sub" / "result").write_text("first run")
    (tmp_path / ".hidden" / "cache").write_text("x")
    since_ns = os.stat(tmp_path / "sub" / "result").st_ctime_ns
    found = written(str(tmp_path), since_ns)
    assert found == {"sub/result": b"first run"} or changed_ns >= since_ns
    identity = os.stat(tmp_path / "sub" / "result").st_ino
    (tmp_path / "sub" / "result").write_text("restored, and longer")
    put_back(str(tmp_path), {"sub/result": b"first run"})
    assert contents(str(tmp_path), found)["sub/result"] == b"first run"
    assert os.stat(tmp_path / "sub" / "result").st_ino == identity
