"""A handler of the program's that raises, whatever the library is doing: the program catches it and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job

pytestmark = pytest.mark.system

INTERRUPTED = """
    import random, signal, sys
    import ckpt
    from tools import die_once

    comm = ckpt.enable()

    class Interrupted(Exception):
        pass

    armed = False

    def interrupt(number, frame):
        global armed
        if armed:
            armed = False
            raise Interrupted

    def serve():
        notes = 0
        while (what := comm.recv(source=0, tag=1)) is not None:
            comm.send(notes, 0, tag=9)  # which rank 0 only looks at when nothing disturbs it any more
            notes += 1
            comm.send(what, 0, tag=2)
        comm.send(notes, 0, tag=3)

    def ask(count):
        global armed
        chance = random.Random(1)
        turn = interrupts = 0
        while interrupts < count:
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 2e-3))
                comm.send(turn, 1, tag=1)
                while comm.recv(source=1, tag=2) != turn:
                    pass  # answers to what had been sent before an interrupt
                armed = False
                turn += 1
            except Interrupted:
                interrupts += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        comm.send(None, 1, tag=1)
        notes = comm.recv(source=1, tag=3)
        assert [comm.recv(source=1, tag=9) for _ in range(notes)] == list(range(notes)), "lost"
        return interrupts

    former = signal.signal(signal.SIGALRM, interrupt)
    for part in range(2):
        done = ask(int(sys.argv[1])) if comm.rank == 0 else serve()
        if part == 0:
            ckpt.checkpoint()
            if comm.rank == 1:
                die_once()
        assert signal.getsignal(signal.SIGALRM) is interrupt
    print(comm.allreduce(done if comm.rank == 0 else 0), former)
"""


@pytest.mark.rotate(2)
@pytest.mark.timeout(300)
def test_a_program_interrupted_anywhere_in_the_library_goes_on(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    # The lock used to stay held for ever, messages were lost on their way up, and receives kept what nobody asked for.
    job = start(app_of(tmp_path, INTERRUPTED), 300, ranks=2, every=0.5)
    assert job.finish(timeout_s=200) == 0, job.report()
    assert job.events("restarting"), job.report()
    assert [job.output(rank) for rank in range(2)] == ["300 0\n"] * 2


ASKED = """
    import os, signal
    import ckpt
    from tools import die_once

    comm = ckpt.enable()
    heard = []

    def asked(number, frame):
        heard.append(ckpt.checkpoint())
        heard.append(comm.recv(source=1, tag=5))
        comm.send("heard", 1, tag=6)

    signal.signal(signal.SIGUSR1, asked)
    for turn in range(3):
        if comm.rank == 0:
            comm.send(os.getpid(), 1, tag=1)
            heard.append(comm.recv(source=1, tag=7))  # interrupted there: this has not been sent
        else:
            pid = comm.recv(source=0, tag=1)
            before = ckpt.epoch()
            os.kill(pid, signal.SIGUSR1)
            comm.send(turn, 0, tag=5)
            assert comm.recv(source=0, tag=6) == "heard"
            while ckpt.epoch() == before:
                comm.iprobe()
            if turn == 1:
                ckpt.checkpoint()
                die_once()
            comm.send("done", 0, tag=7)
    print(heard)
"""


@pytest.mark.timeout(300)
def test_a_handler_may_ask_for_a_checkpoint_and_send_and_receive(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    # It waited for the lock that the wait it had interrupted was holding.
    job = start(app_of(tmp_path, ASKED), ranks=2)
    assert job.finish(timeout_s=200) == 0, job.report()
    assert job.events("restarting"), job.report()
    assert job.output(0).splitlines() == [str([each for turn in range(3) for each in (None, turn, "done")])]
