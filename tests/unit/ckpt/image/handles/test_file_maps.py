"""Files mapped for shared writing: the copy that writes an image has what was in them at the moment of the image."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.image.handles import shared_copies
from ckpt.image.handles.file_maps import FileMaps
from ckpt.image.stdlib import mapped
from ckpt.transport.wires.crossmemory import address_of

PAGE = mmap.PAGESIZE


@pytest.fixture
def field(tmp_path: Path) -> Iterator[mmap.mmap]:
    (tmp_path / "field").write_bytes(b"a" * (3 * PAGE - 100))
    with (tmp_path / "field").open("r+b") as file, mmap.mmap(file.fileno(), 0) as made:
        yield made


def told_by_child(maps: FileMaps, field: mmap.mmap) -> bytes:
    """What a forked copy finds in the field, while the program changes it."""
    reading, writing = os.pipe()
    waiting, going = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.read(waiting, 1)  # the program has changed it
            maps.before_saving(is_disposable=True)
            os.write(writing, bytes(field[:3]) + bytes(field[-1:]) + bytes([mapped.is_copied(field)]))
        finally:
            os._exit(0)
    maps.let_copies_go()
    field[0] = ord("z")
    os.write(going, b"x")
    os.waitpid(pid, 0)
    found = os.read(reading, 9)
    for descriptor in (reading, writing, waiting, going):
        os.close(descriptor)
    return found


@pytest.mark.system
def test_a_forked_copy_has_what_was_mapped_when_the_program_stood_still(field: mmap.mmap) -> None:
    maps = FileMaps("mmap")
    field[1] = ord("b")
    assert address_of(field) in maps.copied_maps()
    maps.copy_out(is_writing=False, available=lambda: None)
    assert told_by_child(maps, field) == b"abaa\1"
    assert field[0] == ord("z"), "the program has its own memory still"


@pytest.mark.system
def test_what_there_is_no_room_for_is_left_to_an_image_without_a_fork(field: mmap.mmap) -> None:
    maps = FileMaps("mmap")
    assert address_of(field) in maps.copied_maps()
    maps.copy_out(is_writing=False, available=lambda: 8 * PAGE)
    assert address_of(field) not in maps.copied_maps()
    assert told_by_child(maps, field) == b"zaaa\0"


def test_a_file_that_is_shorter_than_what_is_mapped_of_it_is_not_read(
    field: mmap.mmap, tmp_path: Path
) -> None:
    """Reading behind its end would end the program (SIGBUS)."""
    maps = FileMaps("mmap")
    os.truncate(tmp_path / "field", PAGE)
    assert address_of(field) not in maps.copied_maps()
    maps.copy_out(is_writing=False, available=lambda: None)
    os.unlink(tmp_path / "field")
    assert address_of(field) not in maps.copied_maps()


def test_an_image_waits_while_child_processes_may_change_a_mapped_file(
    field: mmap.mmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps, path = FileMaps("mmap"), tmp_path / "field"
    assert maps.reason_now(()) is None
    monkeypatch.setattr(shared_copies, "are_children_at_work", lambda: True)
    reason = maps.reason_now(())
    assert reason is not None and f"may change {path}, which is mapped for shared writing" in reason
    field.close()
    assert maps.reason_now(()) is None
