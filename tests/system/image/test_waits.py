"""Calls in which the main thread only waits: a checkpoint comes meanwhile, and they are otherwise what they were."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system]
Start = Callable[..., Job]


WAITS = {
    "select": "readable, _, _ = select.select([end], [], []); print(readable == [end], end.recv(9))",
    "poll": "poll = select.poll(); poll.register(end, select.POLLIN); print(len(poll.poll()), end.recv(9))",
    "epoll": "poll = select.epoll(); poll.register(end, select.EPOLLIN); print(len(poll.poll()), end.recv(9))",
    "selector": "own = selectors.DefaultSelector(); own.register(end, 1, 7); print(own.select()[0][0].data, end.recv(9))",
    "recv": "print(end.recv(9))",
    "read": "print(os.read(end.fileno(), 9))",
    "accept": "print(server.accept()[0].recv(9))",
    "sleep": "signal.signal(signal.SIGUSR1, fail)\ntry: time.sleep(3600)\nexcept KeyError: print(0)",
}


def test_a_program_that_waits_for_something_to_come_is_killed_and_waits_again(
    start: Start, tmp_path: Path
) -> None:
    """No checkpoint came while the main thread was in a long `select`, `poll` or `sleep`: a rank that serves, and gets
    nothing for some minutes, held up those of all others."""
    app = write_app(
        tmp_path,
        f"""
        import os, select, selectors, signal, socket, threading, time
        import ckpt

        rank = ckpt.enable().rank
        end, other = socket.socketpair()
        server = socket.create_server(("127.0.0.1", 0))

        def fail(*_):
            raise KeyError

        def give():
            while not os.path.exists({str(tmp_path / "go")!r}):
                time.sleep(0.02)
            if rank == {list(WAITS).index("accept")}:
                with socket.create_connection(server.getsockname()) as made:
                    made.send(b"here")
            elif rank == {list(WAITS).index("sleep")}:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            else:
                other.send(b"here")

        threading.Thread(target=give).start()
        exec({list(WAITS.values())!r}[rank])
        """,
    )
    job = start(app, ranks=len(WAITS), every=0.1)
    job.wait_event("committed", 2)
    job.kill_rank(1)
    job.wait_event("restarted")
    job.wait_event("committed", 4)
    (tmp_path / "go").touch()
    assert job.finish() == 0, job.report()
    came = [f"{what}b'here'\n" for what in ("True ", "1 ", "1 ", "7 ", "", "", "")]
    assert [job.output(rank) for rank in range(len(WAITS))] == [*came, "0\n"], job.report()
    assert all(event["from_epoch"] for event in job.events("restarting"))


SLEEPS = """
    import signal, time

    def slept(seconds):
        began = time.monotonic()
        time.sleep(seconds)
        return seconds <= time.monotonic() - began < seconds + 5

    class Own(float):
        pass

    def fails(*_):
        raise KeyError("rings")

    print([slept(seconds) for seconds in (0, 0.01, 0.06, 0.2, 1, Own(0.1), True)])
    for bad in (-1, "1", 1e20, 10**30, float("nan"), None):
        try:
            time.sleep(bad)
        except Exception as error:
            print(type(error).__name__, error)
    signal.signal(signal.SIGALRM, lambda *_: print("rings"))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    print(slept(0.4))
    signal.signal(signal.SIGALRM, fails)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        time.sleep(600)
    except KeyError as error:
        print(error)
    print(time.sleep, time.sleep.__doc__[:20])
"""


def test_sleeping_is_what_it_is_without_ckpt(start: Start, tmp_path: Path) -> None:
    """Bad times, signal handlers that return and that raise."""
    app = write_app(tmp_path, SLEEPS)
    plain = subprocess.run([sys.executable, app], capture_output=True, text=True, check=True, timeout=100)
    job = start(app, ranks=1, every=0.1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == plain.stdout and "False" not in plain.stdout
    assert job.events("committed")
