"""What tells loss from chance: two restored runs beside the first one."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.controller.doctor.compare import (
    MovedFiles,
    contents,
    judge,
    judge_files,
    present,
    put_back,
    written,
)


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
    assert alike == {"path": "out.txt", "line": 1, "first": "a", "restored": "no file"}
    alike, _ = judge({}, {"more.txt": b""}, {"more.txt": b""}, whole=True)
    assert alike == {"path": "more.txt", "line": 1, "first": "no file", "restored": "nothing"}
    assert judge({}, {"random-1": b"a"}, {"random-2": b"a"}, whole=True)[0] is None


def test_of_a_long_line_what_differs_is_shown() -> None:
    first, restored = {"table": b"x" * 500 + b"1"}, {"table": b"x" * 500 + b"2"}
    alike, _ = judge(first, restored, restored, whole=True)
    assert (alike["first"], alike["restored"]) == ("…" + "x" * 30 + "1", "…" + "x" * 30 + "2")


def test_binary_files_are_compared_by_their_bytes() -> None:
    first, once, twice = (bytes(100) + stamp + bytes(60) + state for stamp, state in
                          ((b"\x01", b"\x00\x07"), (b"\x02", b"\x00\x09"), (b"\x03", b"\x00\x09")))  # fmt: skip
    alike, unsure = judge({"a": first}, {"a": once}, {"a": twice}, whole=True)
    assert (alike["byte"], alike["first"], alike["restored"]) == (162, "07", "09")
    assert (unsure["byte"], unsure["first"][:2], unsure["restored"][:2]) == (100, "01", "02")


def test_every_line_of_a_large_output_may_be_another_each_time() -> None:
    """A clock at the beginning of each line: what this costs does not grow with the square of the lines."""
    runs = [
        {0: b"".join(b"%d %d\n" % (line, run) for line in range(300_000)) + last}
        for run, last in enumerate((b"7\n", b"9\n", b"9\n"))
    ]
    alike, unsure = judge(*runs, whole=True)
    assert (alike["line"], alike["restored"], unsure["line"]) == (300_001, "9", 1)


def test_all_files_that_differ_are_named() -> None:
    first, restored = {"a": b"1", "b": b"1", "c": b"1"}, {"a": b"2", "b": b"1", "c": b"2"}
    alike, _, also = judge_files(first, restored, restored)
    assert (alike["path"], also) == ("a", ["c"])


def test_large_files_are_named_and_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "small").write_text("x")
    assert written(str(tmp_path), 0, {str(tmp_path)}) == ({"small": b"x"}, ["large"])


def test_what_only_a_restored_run_has_made_is_out_of_sight_for_a_while_and_never_deleted(
    tmp_path: Path,
) -> None:
    place = tmp_path / "place"
    (place / "sub").mkdir(parents=True)
    (place / "old").write_text("old")
    before = present(str(place))
    (place / "sub" / "new").write_text("once")
    moved_files = MovedFiles(str(place), str(tmp_path / "moved"))
    moved_files.move_away(written(str(place), 0, {str(place)}, before)[0])
    assert present(str(place)) == {"old"}
    (place / "sub" / "new").write_text("twice")
    moved_files.move_away(written(str(place), 0, {str(place)}, before)[0])
    moved_files.move_back()
    assert present(str(place)) == {"old", "sub/new"} and (place / "sub" / "new").read_text() == "once"


def test_files_that_a_program_has_written_are_found_and_put_back(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("old")
    os.utime(tmp_path / "input", ns=(1, 1))
    changed_ns = os.stat(tmp_path / "input").st_ctime_ns
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "sub" / "result").write_text("first run")
    (tmp_path / ".hidden" / "cache").write_text("x")
    since_ns = os.stat(tmp_path / "sub" / "result").st_ctime_ns
    (tmp_path / "of an editor").write_text("saved meanwhile")
    changed = {str(tmp_path / name) for name in ("input", "sub/result", ".hidden")}
    found, _ = written(str(tmp_path), since_ns, changed)
    assert found == {"sub/result": b"first run"} or changed_ns >= since_ns
    identity = os.stat(tmp_path / "sub" / "result").st_ino
    (tmp_path / "sub" / "result").write_text("restored, and longer")
    put_back(str(tmp_path), {"sub/result": b"first run"})
    assert contents(str(tmp_path), found)["sub/result"] == b"first run"
    assert os.stat(tmp_path / "sub" / "result").st_ino == identity


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_compared_by_their_content(pack: Callable[[bytes], bytes]) -> None:
    """One that was open at the image has the same content and other bytes, which was a problem."""
    first, restored = {"log": pack(b"a\nb\n")}, {"log": pack(b"a\n") + pack(b"b\n")}
    assert first != restored
    assert judge_files(first, restored, restored) == (None, None, [])
    lost = {"log": pack(b"a\n")}
    assert judge_files(first, lost, lost)[0] == {
        "path": "log", "line": 2, "first": "b", "restored": "nothing",
    }  # fmt: skip
    cut = {"log": first["log"][:-3]}
    assert judge_files(first, cut, cut)[0] is not None


def test_members_of_archives_are_compared_without_their_times() -> None:
    def archive(year: int, text: str) -> dict[str, bytes]:
        with zipfile.ZipFile(packed := io.BytesIO(), "w") as file:
            file.writestr(zipfile.ZipInfo("member", (year, 1, 1, 0, 0, 0)), text)
        return {"z": packed.getvalue()}

    assert judge_files(archive(2001, "a"), archive(2002, "a"), archive(2003, "a")) == (None, None, [])
    assert judge_files(archive(2001, "a"), archive(2001, "b"), archive(2001, "b"))[0] is not None


def test_files_of_hdf5_are_not_compared_but_that_they_are_there_is() -> None:
    """They come back with all that was in them, laid out otherwise, as documented: that was called a loss."""
    first, restored = {"x.h5": b"\x89HDF\r\n\x1a\n one"}, {"x.h5": b"\x89HDF\r\n\x1a\n two"}
    assert judge_files(first, restored, restored) == (None, None, [])
    assert judge_files(first, {}, {})[0] is not None
    assert judge_files(first, {"x.h5": b"text"}, {"x.h5": b"text"})[0] is not None
