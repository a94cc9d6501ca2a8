"""Directories that are being read: after a restart a loop gets the remaining entries, in the same order, each once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ckpt.compat.memory import entry_state, make_entry
from tests.unit.ckpt.image.support import copy_of, resumed_output

LOOPS = """
import glob, os, pathlib
top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "top")
if not os.path.exists(top):
    for name in ("a", "b/c", "b/d", "e"):
        os.makedirs(os.path.join(top, name))
    for name in ("x.txt", "y.txt", "a/z.txt", "b/c/v.txt", "b/d/w.txt", "e/u.txt"):
        open(os.path.join(top, name), "w").close()

def with_statement():
    with os.scandir(top) as entries:
        for entry in entries:
            yield entry.name, entry.is_dir(), entry.stat().st_size >= 0, entry

def of_a_descriptor():
    fd = os.open(top, os.O_RDONLY)
    for entry in os.scandir(fd):
        yield entry.name, entry.stat().st_mode
    yield sorted(os.listdir(fd))

loops = {
    "scandir": os.scandir(top),
    "with": with_statement(),
    "descriptor": of_a_descriptor(),
    "bytes": os.scandir(os.fsencode(top)),
    "walk": os.walk(top),
    "walk from below": os.walk(top, topdown=False),
    "fwalk": ((root, dirs, files) for root, dirs, files, fd in os.fwalk(top)),
    "iglob": glob.iglob(top + "/**/*.txt", recursive=True),
    "iterdir": pathlib.Path(top).iterdir(),
    "glob": pathlib.Path(top).glob("*/*"),
    "rglob": pathlib.Path(top).rglob("*.txt"),
    "Path.walk": getattr(pathlib.Path(top), "walk", lambda: os.walk(top))(),
}
for name, loop in loops.items():
    print(name, next(loop))
driver_tick()
for name, loop in loops.items():
    print(name, next(loop))
driver_tick()
for name, loop in loops.items():
    print(name, list(loop))

here = []
for root, dirs, files in os.walk(top):
    if len(here) == 1:
        for entry in os.scandir(root):
            driver_tick()
            print(entry)
    here.append(os.path.basename(root))
print(here)
"""


@pytest.mark.rotate(3)
@pytest.mark.parametrize("place", [1, 2, 3])
def test_loops_over_directories_go_on_where_they_were(place: int, tmp_path: Path) -> None:
    resumed_output(tmp_path, LOOPS, places=[place])


def test_entries_that_have_been_read_ahead_and_others_come_once(tmp_path: Path) -> None:
    """A directory that the C library does not read in one piece (32 KiB), and that the original goes on reading."""
    source = """
    import os
    here = os.path.dirname(os.path.abspath(__file__)) + "/many"
    if not os.path.exists(here):
        os.mkdir(here)
        for number in range(2000):
            open(f"{here}/{number:060}", "w").close()
    names = []
    for entry in os.scandir(here):
        if len(names) == 1500:
            driver_tick()
        names.append(entry.name)
    print(len(names), len(set(names)))
    """
    assert resumed_output(tmp_path, source) == "2000 2000\n"


def test_the_remaining_entries_are_those_of_the_image_also_if_files_are_gone(tmp_path: Path) -> None:
    source = """
    import os
    here = os.path.dirname(os.path.abspath(__file__)) + "/few"
    os.makedirs(here, exist_ok=True)
    for name in "abc":
        open(f"{here}/{name}", "w").close()
    found = os.scandir(here)
    first = next(found)
    first.stat()
    driver_tick()
    for name in "abc":
        if os.path.exists(f"{here}/{name}"):
            os.unlink(f"{here}/{name}")
    rest = list(found)
    print(len(rest), [entry.is_file() for entry in rest], first.stat().st_size)
    try:
        rest[0].stat()
    except FileNotFoundError:
        print("gone")
    """
    assert resumed_output(tmp_path, source) == "2 [True, True] 0\ngone\n"


def test_no_descriptor_is_left_open_and_a_finished_iterator_is_finished(tmp_path: Path) -> None:
    source = """
    import os
    entries, closed = os.scandir("/usr"), os.scandir("/usr")
    next(entries); closed.close()
    before = len(os.listdir("/proc/self/fd"))
    close = entries.close
    driver_tick()
    print(list(closed), next(entries).name)
    close()
    print(list(entries), len([fd for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)
        and os.readlink("/proc/self/fd/" + fd) == "/usr"]))
    """
    assert resumed_output(tmp_path, source).endswith("[] 0\n")


def test_an_entry_keeps_all_that_it_knows(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "gone").symlink_to("nowhere")
    entries: list[os.DirEntry[Any]] = sorted(os.scandir(tmp_path), key=lambda entry: entry.name)
    entries[0].is_symlink()
    entries[0].stat()
    entries[1].stat(follow_symlinks=False)
    copies = copy_of([*entries, entries[0]])
    assert copies[0] is copies[3]
    for made, entry in zip(copies, entries, strict=False):
        assert (made.name, made.path, made.inode(), repr(made)) == (
            entry.name,
            entry.path,
            entry.inode(),
            repr(entry),
        )
        assert (made.is_dir(), made.is_file(), made.is_symlink()) == (
            entry.is_dir(),
            entry.is_file(),
            entry.is_symlink(),
        )
        assert os.fspath(made) == os.fspath(entry)
        assert made.stat(follow_symlinks=False) == entry.stat(follow_symlinks=False)


def test_the_names_of_entries_are_not_leaked(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    (entry,) = os.scandir(tmp_path)
    name = "".join(entry.name)
    state = entry_state(entry)
    assert state is not None
    state = (name, *state[1:])
    before = sys.getrefcount(name)
    made = make_entry(os.DirEntry, state)
    with_entry = sys.getrefcount(name)
    del made
    assert (with_entry, sys.getrefcount(name)) == (before + 1, before)


def test_without_fork_an_iterator_is_refused_by_name() -> None:
    with (
        os.scandir("/usr") as entries,
        pytest.raises(Exception, match=r"os\.walk.*cannot be saved without fork.*list first"),
    ):
        copy_of(entries)
