"""Advice fits what a program is refused for."""

from __future__ import annotations

import pytest

from ckpt.controller.supervision import remedies
from ckpt.image.ipc.tcp_ends import UNFINISHED


@pytest.mark.parametrize(
    "reason",
    [
        "BufferedReader.readline() is running (app.py:3 main)",
        "TextIOWrapper.readline() is running BufferedIncrementalDecoder.decode",
        "thread 'reader' cannot be captured here: TextIOWrapper.__next__() is running",
    ],
)
def test_who_waits_for_a_line_of_a_child_is_not_told_to_make_a_loop_short(reason: str) -> None:
    said = remedies.for_refusal(reason)
    assert "ckpt.register_child" in said and "os.read" in said and "loop" not in said


def test_who_waits_for_numba_is_told_to_compile_early() -> None:
    for reason in (
        "numba is compiling a function",
        "a call of a CPUDispatcher is running _DispatcherBase._compile_for_args",
    ):
        assert "cache=True" in remedies.for_refusal(reason)


def test_who_waits_for_a_child_or_for_data_is_told_what_ends_the_wait() -> None:
    for reason in (
        "the child process 12 is running (subprocess.py:550 run)",
        "a child process is being started",
    ):
        assert "ckpt.register_child" in remedies.for_refusal(reason)
    waits = "thread 'Thread-2' cannot be captured here: BufferedReader.read() is running SocketIO.readinto"
    assert "read it by lines" in remedies.for_refusal(waits)


def test_a_sender_that_waits_for_room_is_told_to_wait_for_an_answer() -> None:
    for reason in (
        "thread 'Thread-1' cannot be captured here: socket.sendall() is running (app.py:3)",
        UNFINISHED.format("127.0.0.1 port 1", "127.0.0.1 port 2"),
    ):
        assert "answer before it sends more" in remedies.for_refusal(reason)


def test_who_begins_threads_all_the_time_is_told_to_keep_them() -> None:
    reason = "it asks for what was sent after another rank's image, where a thread of the program begins, ends, or is traced"
    assert "threads that stay" in remedies.for_refusal(reason)


def test_a_sum_over_long_work_is_written_out() -> None:
    assert "write the loop out" in remedies.for_refusal("sum() is running (app.py:3)")


def test_of_a_mapped_file_and_workers_it_is_said_how_the_file_is_mapped_for_reading() -> None:
    """``numpy.memmap`` maps for writing, if nothing is said; a DataLoader's workers seldom stand still."""
    reason = "child processes are at work (a pool), and may change /data, which is mapped for shared writing"
    assert 'numpy.memmap(…, mode="r")' in remedies.for_refusal(reason)


def test_a_program_whose_stack_cannot_be_read_is_told_what_to_use() -> None:
    reason = "the program runs in a greenlet (gevent, eventlet), whose stack lives in C and cannot be saved (app.py:3)"
    assert "use threads or asyncio" in remedies.for_refusal(reason)
