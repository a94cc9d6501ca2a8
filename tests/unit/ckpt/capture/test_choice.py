"""How an image is written, from what is known."""

from __future__ import annotations

import mmap
import types
from pathlib import Path
from typing import Any

import pytest

from ckpt.capture import memory
from ckpt.capture.choice import choose
from ckpt.capture.taker import Taker
from ckpt.transport.wires.crossmemory import address_of

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("asked", "resident", "available", "mode"),
    [
        ("fork", 4 * GIB, 0, "fork"),
        ("sync", 4 * GIB, 64 * GIB, "sync"),
        ("auto", 4 * GIB, 64 * GIB, "fork"),
        ("auto", 4 * GIB, GIB + 64 * MIB, "fork"),
        ("auto", 4 * GIB, GIB + 64 * MIB - 1, "sync"),
        ("auto", 10 * MIB, 60 * MIB, "sync"),
        ("auto", 4 * GIB, None, "fork"),
    ],
)
def test_auto_forks_unless_a_quarter_of_the_memory_is_not_there(
    asked: str, resident: int, available: int | None, mode: str
) -> None:
    choice = choose(asked, resident_bytes=resident, available_bytes=available)
    assert choice.mode == mode and choice.reason


@pytest.mark.parametrize(("sharers", "mode"), [(1, "fork"), (2, "fork"), (3, "sync")])
def test_ranks_under_one_limit_share_what_is_left(sharers: int, mode: str) -> None:
    choice = choose("auto", resident_bytes=400 * MIB, available_bytes=2 * 164 * MIB, sharers=sharers)
    assert choice.mode == mode and ("for each of 3 ranks" in choice.reason) == (sharers == 3)


@pytest.mark.parametrize(("available", "mode"), [(464, "fork"), (463, "sync")])
def test_where_all_are_killed_at_once_there_must_be_memory_for_a_whole_copy(
    available: int, mode: str
) -> None:
    choice = choose("auto", resident_bytes=400 * MIB, available_bytes=available * MIB, kills_group=True)
    assert choice.mode == mode


@pytest.mark.parametrize("asked", ["auto", "fork", "sync"])
def test_a_file_mapped_for_shared_writing_is_never_forked_over(asked: str) -> None:
    choice = choose(asked, resident_bytes=0, available_bytes=GIB, shared_files=["/data/field"])
    assert choice.mode == "sync" and "/data/field" in choice.reason


def test_what_the_kernel_says_is_plausible() -> None:
    assert memory.resident_bytes() > MIB and memory.peak_bytes() > MIB
    room = memory.available()
    assert room is None or room.available_bytes >= 0
    assert memory.available("/nonexistent", "/nonexistent") is None


def test_files_mapped_for_shared_writing_are_found(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import multiprocessing

    path = tmp_path / "field"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), mmap.mmap(-1, 4096):
            assert str(path) not in memory.shared_files()
        with mmap.mmap(file.fileno(), 0) as mapped:
            assert str(path) in memory.shared_files()
            assert str(path) not in memory.shared_files({address_of(mapped)}), "it is copied before a fork"
    semaphore = multiprocessing.Lock()  # tqdm makes one: no reason for images that stop the program
    assert not [name for name in memory.shared_files() if "sem." in name], semaphore


def test_a_file_mapped_after_the_image_was_wanted_is_not_forked_over(tmp_path: Path) -> None:
    """A program that was importing when the image was wanted mapped a file before it was taken, and the round failed."""
    sent: list[dict[str, Any]] = []
    control = types.SimpleNamespace(send=sent.append)
    runtime: Any = types.SimpleNamespace(
        spec={"options": {"image_mode": "fork"}}, control=control, explicit=None
    )
    taker = Taker(runtime)
    taker.choose(None)
    path = tmp_path / "field"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        path.unlink()  # so it cannot be copied
        taker._look_again_for_maps(waited_since_ns=0)
    assert taker.choice.mode == "sync" and str(path) in sent[0]["reason"]


@pytest.mark.parametrize("is_explicit", [False, True])
def test_a_mapped_file_is_copied_before_a_fork_but_for_an_explicit_image(
    tmp_path: Path, is_explicit: bool
) -> None:
    """An explicit image reads the program's objects as they are, and would see what the program writes meanwhile."""
    control = types.SimpleNamespace(send=lambda message: None)
    explicit = object() if is_explicit else None
    runtime: Any = types.SimpleNamespace(
        spec={"options": {"image_mode": "fork"}}, control=control, explicit=explicit
    )
    taker = Taker(runtime)
    path = tmp_path / "field"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        taker.choose(None)
    assert taker.choice.mode == ("sync" if is_explicit else "fork")
