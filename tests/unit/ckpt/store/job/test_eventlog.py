"""The event log: whole lines from many writers; a torn or refused line is reported and harms no other."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ckpt.store import EventLog, JobDirectory, NotPrivate, StorageFailed
from ckpt.store.job.eventlog import iso_time

NOON_NS = 1_767_268_800_123_456_789


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "events.jsonl")


def test_what_is_appended_is_read(path: str) -> None:
    log = EventLog(path, clock_ns=lambda: NOON_NS)
    assert log.append("committed", epoch=3, where=["a\nb", "ü"])
    (event,) = EventLog(path).read().events
    assert event == {"t": event["t"], "ns": NOON_NS, "event": "committed", "epoch": 3, "where": ["a\nb", "ü"]}
    assert datetime.fromisoformat(event["t"]).timestamp() == pytest.approx(NOON_NS / 1e9)


def test_a_log_that_was_never_written_is_empty(path: str) -> None:
    page = EventLog(path).read()
    assert (page.events, page.damaged, page.torn, page.end) == ([], [], False, 0)


def test_only_what_is_new(path: str) -> None:
    log = EventLog(path)
    log.append("a")
    first = log.read()
    log.append("b")
    log.append("c")
    second = log.read(first.end)
    assert [event["event"] for event in second.events] == ["b", "c"]
    assert log.read(second.end).events == []


def test_a_line_is_one_write(path: str) -> None:
    writes: list[bytes] = []

    def write(fd: int, data: bytes) -> int:
        writes.append(data)
        return os.write(fd, data)

    log = EventLog(path, write=write)
    log.append("long", text="x" * 100_000)
    assert len(writes) == 1 and writes[0].endswith(b"\n") and writes[0].count(b"\n") == 1


@pytest.mark.parametrize("keep", [1, 10, 40])
def test_a_torn_last_line_is_reported_and_the_next_starts_afresh(path: str, keep: int) -> None:
    log = EventLog(path)
    log.append("whole")
    end = log.read().end
    log.append("torn", text="y" * 50)
    log.close()
    os.truncate(path, end + keep)
    page = EventLog(path).read()
    assert [event["event"] for event in page.events] == ["whole"] and page.torn and page.end == end
    EventLog(path).append("after")
    page = EventLog(path).read()
    assert [event["event"] for event in page.events] == ["whole", "after"] and not page.torn
    assert [offset for offset, _ in page.damaged] == [end]


def test_a_line_torn_by_another_writer_harms_no_open_log(path: str) -> None:
    log = EventLog(path)
    log.append("a")
    with open(path, "ab") as dying:
        dying.write(b'{"event":"hal')
    log.append("b")
    page = log.read()
    assert [event["event"] for event in page.events] == ["a", "b"] and len(page.damaged) == 1


def test_lines_that_are_no_events_are_reported(path: str) -> None:
    Path(path).write_bytes(b'{"event":"a"}\n[1]\n\xff\xfe\n\n{"event":"b"}\n')
    page = EventLog(path).read()
    assert [event["event"] for event in page.events] == ["a", "b"]
    assert [text for _, text in page.damaged] == ["[1]", "\ufffd\ufffd"]


def test_a_full_disk_stops_nobody_and_is_counted(path: str) -> None:
    full = [False]

    def write(fd: int, data: bytes) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(fd, data)

    log = EventLog(path, write=write)
    log.append("a")
    full[0] = True
    assert not log.append("b") and not log.append("c") and log.lost == 2
    full[0] = False
    assert log.append("d") and log.append("e")
    events = log.read().events
    assert [(event["event"], event.get("lost")) for event in events] == [("a", None), ("d", 2), ("e", None)]


@pytest.mark.parametrize("taken", [0, 1, 20])
def test_a_short_write_harms_only_its_own_line(path: str, taken: int) -> None:
    short = [False]

    def write(fd: int, data: bytes) -> int:
        return os.write(fd, data[:taken]) if short[0] else os.write(fd, data)

    log = EventLog(path, write=write)
    log.append("a")
    short[0] = True
    assert not log.append("b")
    short[0] = False
    log.append("c")
    page = log.read()
    assert [(event["event"], event.get("lost")) for event in page.events] == [("a", None), ("c", 1)]
    assert len(page.damaged) == (taken > 0)


def test_many_processes_write_whole_lines(path: str) -> None:
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            log = EventLog(path)
            for count in range(200):
                log.append("line", number=number, count=count, text="z" * (count % 97 * 20))
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    page = EventLog(path).read()
    assert len(page.events) == 800 and not page.damaged and not page.torn
    for number in range(4):
        counts = [event["count"] for event in page.events if event["number"] == number]
        assert counts == list(range(200)), "each writer's lines are in its order"


def test_what_is_no_json_is_written_as_text(path: str) -> None:
    log = EventLog(path)
    log.append("odd", value=Path("/x"))
    assert log.read().events[0]["value"] == "/x"


def test_a_log_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotPrivate, match="not a regular file"):
        EventLog(str(tmp_path)).read()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StorageFailed, match="read"):
        EventLog(str(tmp_path / "loop")).read()


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "log").symlink_to(tmp_path / "target")
    log = EventLog(str(tmp_path / "log"))
    assert not log.append("x") and log.lost == 1
    assert (tmp_path / "target").read_text() == ""


def test_the_jobs_log(job: JobDirectory) -> None:
    job.events.append("job-started")
    with open(os.path.join(job.path, "events.jsonl"), encoding="utf-8") as file:
        assert json.loads(file.read())["event"] == "job-started"


def test_a_log_is_begun_anew_and_the_one_before_is_kept(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    for turn in range(3):
        for number in range(3):
            assert log.append("one", number=number, turn=turn)
        before = log.length
        assert log.begin_anew("continued", turn=turn)
        assert [event["event"] for event in log.read().events] == ["continued"]
        assert log.append("next") and log.length < before == (tmp_path / "events.1.jsonl").stat().st_size
    kept = EventLog(log.previous_path).read().events
    assert [event.get("turn") for event in kept] == [1, None, 2, 2, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.1.jsonl", "events.jsonl"]


def test_a_disk_that_refuses_leaves_the_log_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [False]

    def write(fd: int, data: bytes) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "full")
        return os.write(fd, data)

    log = EventLog(str(tmp_path / "events.jsonl"), write=write)
    log.append("one")
    full[0] = True
    assert not log.begin_anew("continued")
    full[0] = False
    for name in ("fsync", "link", "replace"):
        with monkeypatch.context() as patch:

            def refuse(*_: object, **__: object) -> None:
                raise OSError(errno.ENOSPC, "full")

            patch.setattr(os, name, refuse)
            assert not log.begin_anew("continued")
    assert log.append("two") and [event["event"] for event in log.read().events] == ["one", "two"]
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]


def test_a_line_that_is_nested_too_deeply_is_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"[" * 100_000 + b"\n" + b'{"event":"one"}\n')
    page = EventLog(str(path)).read()
    assert [event["event"] for event in page.events] == ["one"] and len(page.damaged) == 1


def test_a_log_that_is_set_aside_stays_and_the_next_line_begins_a_new_one(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    for number in (1, 2):
        log.append("line", number=number)
        assert log.rename_unreadable() == str(tmp_path / f"events.unreadable-{number}.jsonl")
    assert log.read().events == [] and log.rename_unreadable() is None, "there is none"
    log.append("line", number=3)
    kept = [EventLog(str(path)).read().events for path in sorted(tmp_path.glob("events*"))]
    assert [[event["number"] for event in events] for events in kept] == [[3], [1], [2]]


@pytest.mark.parametrize("timespec", ["seconds", "milliseconds", "microseconds"])
@pytest.mark.parametrize(
    "since_1970_us", [0, 1, 999_999, 1_709_164_800_000_000, 1_795_537_527_387_877, 4_102_444_799_999_999]
)
def test_times_are_written_as_datetime_writes_them(since_1970_us: int, timespec: str) -> None:
    seconds, rest_us = divmod(since_1970_us, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_us)
    assert iso_time(since_1970_us * 1000 + 999, timespec) == moment.isoformat(timespec=timespec)
