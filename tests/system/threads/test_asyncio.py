"""Event loops of asyncio: images while nothing happens, several loops, messages in coroutines, what is refused by name."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job

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


def test_what_waits_in_another_thread_is_no_obstacle(start: Start, tmp_path: Path) -> None:
    """`to_thread` without arguments kept all checkpoints off while the function ran."""
    app = app_of(
        tmp_path,
        """
        import asyncio, os, queue, threading, time

        name, events = threading.local(), queue.Queue()

        def wait():
            name.value = "a value"
            while not os.path.exists(os.environ["CKPT_TEST_GO"]):
                time.sleep(0.01)
            events.put(name.value)
            return 7

        async def main():
            found = asyncio.gather(asyncio.to_thread(wait), asyncio.to_thread(events.get))
            print("begun", flush=True)
            print(await found)

        asyncio.run(main())
        """,
    )
    job = start(app, ranks=1, every=0.1)
    job.wait_for(lambda: job.output(0), "the beginning")
    job.wait_event("committed", len(job.events("committed")) + 2)
    job.kill_rank(0)
    job.wait_event("committed", len(job.events("committed")) + 2)
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "begun\n[7, 'a value']\n"


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


SERVER = """
    import asyncio, sys

    total, ends = 0, []

    async def serve(reader, writer):
        global total
        try:
            while line := await reader.readline():
                if line == b"stop\\n":
                    stop.set()
                    break
                total += int(line)
                writer.write(b"%d\\n" % total)
                await writer.drain()
        except ConnectionResetError:
            ends.append("reset")
        finally:
            writer.close()

    async def main():
        global stop
        stop = asyncio.Event()
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            print(server.sockets[0].getsockname()[1], flush=True)
            await stop.wait()

    asyncio.run(main())
    print(total, ends)
"""


def test_a_server_goes_on_at_its_port_and_its_connections_are_reset(start: Start, tmp_path: Path) -> None:
    job = start(app_of(tmp_path, SERVER), ranks=1, every=0.1, connections="reset")
    port = int(job.wait_for(lambda: job.output(0), "the port"))
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rw") as lines:
        assert [_ask(lines, 1) for _ in range(3)] == [1, 2, 3]
        job.wait_event("committed", len(job.events("committed")) + 2)
        job.kill_rank(0)
        with contextlib.suppress(ConnectionResetError):
            assert not lines.readline()
    job.wait_event("restarted")
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rw") as lines:
        assert [_ask(lines, 10) for _ in range(2)] == [13, 23]
        lines.write("stop\n")
    assert job.finish() == 0, job.report()
    assert job.output(0) == f"{port}\n23 ['reset']\n"


def _ask(lines: TextIO, number: int) -> int:
    lines.write(f"{number}\n")
    lines.flush()
    return int(lines.readline())


def test_a_pipe_of_asyncio_is_refused_by_name(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import asyncio, os

        async def main():
            reading, writing = os.pipe()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, os.fdopen(reading, "rb"))
            while '"failed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
                await asyncio.sleep(0.01)
            transport.close()

        asyncio.run(main())
        """,
    )
    job = start(app, ranks=1, every=0.2)
    assert job.finish() == 0, job.report()
    reasons = [event["reason"] for event in job.events("failed")]
    assert any("_UnixReadPipeTransport" in reason and "on_restart" in reason for reason in reasons), reasons
