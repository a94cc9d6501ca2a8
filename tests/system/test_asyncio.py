"""Event loops of asyncio: images while nothing happens, several loops, messages in coroutines, what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job
from tests.system.test_hooks import app_of

pytestmark = [pytest.mark.system, pytest.mark.turns(2)]

Start = Callable[..., Job]


def test_an_idle_loop_is_imaged_and_its_timers_keep_what_is_left(start: Start, tmp_path: Path) -> None:
    """The loop waits for an hour. A hook in the new process ends the wait: nothing else could."""
    app = app_of(
        tmp_path,
        """
        import asyncio, os, signal
        import ckpt

        async def main():
            loop, event = asyncio.get_running_loop(), asyncio.Event()
            begun, timer = loop.time(), loop.call_later(3600, event.set)
            loop.add_signal_handler(signal.SIGUSR1, print, "a signal")

            @ckpt.on_restart
            def wake(epoch):
                assert asyncio.get_running_loop() is loop
                loop.call_soon(event.set)

            print("begun", flush=True)
            await event.wait()
            print(3000 < timer.when() - loop.time() < 3600, loop.time() - begun < 600, asyncio.current_task().get_name())
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0.01)
            print(await asyncio.to_thread(len, "four"))

        asyncio.run(main())
        """,
    )
    job = start(app, ranks=1, every=0.2)
    job.wait_event("committed", 2)
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "begun\nTrue True Task-1\na signal\n4\n"


def test_two_loops_in_two_threads_and_one_in_the_main_thread(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import asyncio, threading
        from tools import die_once

        die, answers = threading.Event(), []

        async def numbers():
            for n in range(3):
                await asyncio.sleep(0.01)
                yield n

        async def work(n):
            loop = asyncio.get_running_loop()
            while not die.is_set():
                await asyncio.sleep(0.01)
            found = [number async for number in numbers()]
            assert asyncio.get_running_loop() is loop
            return n, found

        def run(n):
            answers.append(asyncio.run(work(n)))

        async def main():
            await asyncio.sleep(0.3)
            die_once()
            die.set()
            return await work(9)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        print(asyncio.run(main()))
        for thread in threads:
            thread.join()
        print(sorted(answers))
        """,
    )
    job = start(app, ranks=1, every=0.1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "(9, [0, 1, 2])\n[(0, [0, 1, 2]), (1, [0, 1, 2])]\n"


def test_a_coroutine_may_wait_for_a_message(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import asyncio
        import ckpt
        from tools import die_once

        async def talk(comm):
            total = 0
            for n in range(40):
                if comm.rank == 0:
                    comm.send(n, 1)
                    total += comm.recv(source=1)
                else:
                    total += comm.recv(source=0)
                    comm.send(total, 0)
                if n == 20:
                    ckpt.checkpoint()
                    if comm.rank == 1:
                        die_once()
                await asyncio.sleep(0)
            return comm.rank, total

        print(asyncio.run(talk(ckpt.enable())))
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert (job.output(0), job.output(1)) == ("(0, 10660)\n", "(1, 780)\n")


def test_a_connection_of_asyncio_is_refused_by_name(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import asyncio

        async def main():
            server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
            failed = 0
            while failed == 0:
                await asyncio.sleep(0.01)
                with open(__import__("os").environ["CKPT_JOB"] + "/events.jsonl") as events:
                    failed = events.read().count('"round-aborted"')
            server.close()
            await server.wait_closed()
            print("closed")

        asyncio.run(main())
        """,
    )
    job = start(app, ranks=1, every=0.2)
    assert job.finish() == 0, job.report()
    reasons = [event["reason"] for event in job.events("round-aborted")]
    assert any("asyncio.base_events.Server" in reason and "on_restart" in reason for reason in reasons), (
        reasons
    )
