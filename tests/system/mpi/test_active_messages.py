"""Active messages in real jobs: handlers run while the program computes, and survive kill -9 with all that is kept."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(3)]

Start = Callable[..., Job]

COUNTS = """
    import hashlib, os, sys, time
    import ckpt

    comm = ckpt.enable()
    rank, size, steps = comm.rank, comm.size, int(sys.argv[1])

    def held():
        return not os.path.exists(os.environ["CKPT_TEST_GO"])

    class Service:
        def __init__(self):
            self.trail = {source: [] for source in range(size)}
            self.passed = self.noise = 0
            self.channel = ckpt.ActiveMessages(comm, self.receive)

        def receive(self, source, obj):
            step, hops, value = obj
            if hops is None:
                self.noise += 1
            elif hops == 0:
                assert not self.trail[source] or self.trail[source][-1][0] <= step, (source, obj)
                self.trail[source].append((step, value))
            else:
                self.passed += 1
                self.channel.send((rank + hops) % size, (step, hops - 1, value * 31 % 1000003))

    service = Service()
    late_trail = []
    late = None if rank == 0 else ckpt.ActiveMessages(comm, lambda source, obj: late_trail.append((source, obj)))
    for step in range(steps):
        while step == steps // 2 and held():  # at work, with what changes nothing in the result
            service.channel.send((rank + 1) % size, (step, None, b"x" * 1000 * (service.noise % 50)))
            sum(range(100000))
        service.channel.send((rank + 1) % size, (step, 3, step + rank))
        if rank and step % 10 == 0:
            late.send(0, "x" * (step * 1000))
        with service.channel.lock:
            service.passed += 1000000
        sum(range(20000))
        time.sleep(0.002)
    if rank == 0:
        late = ckpt.ActiveMessages(comm, lambda source, obj: late_trail.append((source, len(obj))))
        late.wait(lambda: len(late_trail) == (size - 1) * -(-steps // 10))
        for source in range(1, size):
            assert [n for each, n in late_trail if each == source] == [1000 * s for s in range(0, steps, 10)], late_trail
    service.channel.wait(lambda: sum(map(len, service.trail.values())) == steps)
    comm.barrier()  # nobody has anything left to pass on
    service.channel.free()
    late.free()
    digest = hashlib.sha256(repr([service.trail[source] for source in range(size)]).encode()).hexdigest()
    print("rank", rank, service.passed, len(late_trail), digest)
"""


def same_after_kills(start: Start, tmp_path: Path, victims: Sequence[int]) -> None:
    """Half-way, with messages of a channel that rank 0 has not made yet, these ranks are killed one after the other."""
    app = write_app(tmp_path, COUNTS)
    quiet = start(app, 60, ranks=3, every=100, name="quiet")
    assert quiet.finish() == 0, quiet.report()
    job = start(app, 60, ranks=3, every=0.2, max_restarts=len(victims), name="killed")
    for restarts, rank in enumerate(victims):
        job.wait_event("committed", len(job.events("committed")) + 1 + (restarts == 0))
        job.kill_rank(rank)
        job.wait_event("restarted", restarts + 1)
    assert job.finish() == 0, job.report()
    assert all(event["from_epoch"] for event in job.events("restarting")), job.report()
    for rank in range(3):
        assert job.output(rank) == quiet.output(rank) != ""


def test_handlers_their_state_and_kept_messages_survive_kills(start: Start, tmp_path: Path) -> None:
    same_after_kills(start, tmp_path, (0, 2, 1))


@pytest.mark.soak
def test_the_same_after_many_kills(start: Start, tmp_path: Path) -> None:
    same_after_kills(start, tmp_path, random.Random(seed_of_the_commit()).choices(range(3), k=50))


PROGRESS = """
    import os
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    rank, got, dead = comm.rank, [], []
    awaited, written = os.pipe()

    def receive(source, obj):
        got.append(obj[:20])
        if obj == "write":
            os.write(written, b"x")

    channel = ckpt.ActiveMessages(comm, receive, dead.append)
    comm.barrier()
    n = 0
    if rank == 1:
        channel.send(0, "in C")
        os.read(awaited, 1)  # without the interpreter's lock, until the handler has written
        channel.send(0, "in Python")
        while "seen" not in got:
            n += 1
        while len(got) < 40:  # more than the sender's credit
            n += 1
        channel.send(0, "until a death")
        while not dead:
            n += 1
    elif rank == 0:
        for state, answer in (("in C", "write"), ("in Python", "seen")):
            channel.wait(lambda: state in got)
            channel.send(1, answer)
        for number in range(38):
            channel.send(1, f"{number}" + " " * 1000000)
        channel.wait(lambda: "until a death" in got)
        channel.send(2, "die")
        channel.wait(lambda: dead)
        channel.send(2, "nobody there")
    else:
        channel.wait(lambda: got)
        os.kill(os.getpid(), 9)
    told = []
    later = ckpt.ActiveMessages(comm, receive, told.append)
    later.wait(lambda: told)
    later.free()
    channel.free()
    alone = ckpt.ActiveMessages(comm, receive)
    try:
        alone.send(2, 1)
    except MPI.Exception as error:
        print(rank, dead, told, error.Get_error_class() == MPI.ERR_PROC_FAILED)
"""


def test_handlers_run_while_the_program_computes_and_are_told_of_a_death_once(
    start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, PROGRESS), ranks=3, every=100, on_failure="continue")
    assert job.finish() == 0, job.report()
    for rank in range(2):
        assert job.output(rank) == f"{rank} [2] [2] True\n", job.report()


REFUSED = """
    import threading
    import ckpt
    from ckpt import MPI
    from ckpt.errors import NotInHandler

    comm = ckpt.enable()
    rank, other = comm.rank, 1 - comm.rank
    request, persistent, spare = comm.irecv(source=other, tag=9), comm.Barrier_init(), comm.Dup()
    CALLS = {
        "recv": lambda: comm.recv(source=other, tag=5),  # its message is there
        "send": lambda: comm.send(1, other),
        "isend": lambda: comm.isend(1, other),
        "Send": lambda: comm.Send(b"1", other),
        "iprobe": lambda: comm.iprobe(),
        "barrier": lambda: comm.barrier(),
        "Ibarrier": lambda: comm.Ibarrier(),
        "Barrier_init": lambda: comm.Barrier_init(),
        "Dup": lambda: comm.Dup(),
        "Free": lambda: spare.Free(),
        "Start": lambda: persistent.Start(),
        "test": lambda: request.test(),
        "waitall": lambda: MPI.Request.waitall([request]),
        "Shrink": lambda: comm.Shrink(),
        "wait": lambda: channel.wait(lambda: True),
        "free": lambda: channel.free(),
        "ActiveMessages": lambda: ckpt.ActiveMessages(comm, print),
        "checkpoint": lambda: ckpt.checkpoint(),
        "register": lambda: ckpt.register("name", CALLS),
    }
    where, caught, asked = [], [], []

    def try_all():
        with channel.lock, channel.lock:
            for name, call in CALLS.items():
                try:
                    call()
                except NotInHandler as refused:
                    assert str(refused).startswith(f"{name}() "), refused
                else:
                    raise AssertionError(name)

    def receive(source, obj):
        if obj == "now":
            channel.send(source, "calls")
        elif obj == "calls":
            try_all()
            where.append(threading.current_thread() is threading.main_thread())
            channel.send(rank, "last")
        else:
            raise ValueError(obj)

    def until_it_returns(call, *arguments, **options):
        while True:
            try:
                return call(*arguments, **options)
            except ValueError as error:
                caught.append(error)
                if str(error) == "last":
                    return None

    def ask():
        if rank == 0 and not asked:  # the call holds the lock from here on
            asked.append(True)
            channel.send(other, "now")

    channel = ckpt.ActiveMessages(comm, receive)
    comm.send("there", other, tag=5)
    comm.barrier()
    n = 0
    if rank:
        channel.send(other, "now")
        while not where:
            n += 1
    until_it_returns(channel.wait, ask)
    try_all()
    comm.barrier()
    for word in "one", "two", "three":
        until_it_returns(channel.send, other, word)
    until_it_returns(comm.send, "all sent", other, tag=8)
    until_it_returns(comm.recv, source=other, tag=8)
    until_it_returns(comm.send, 4, other, tag=9)  # what is raised from here on has been there at the begin of the call
    until_it_returns(comm.barrier)
    assert request.wait() == 4
    assert comm.recv(source=other, tag=5) == "there"
    persistent.Start()
    persistent.wait()
    spare.Dup().barrier()
    print(rank, where, caught, caught[0].__notes__)
    channel.free()
    last = ckpt.ActiveMessages(comm, lambda source, obj: 1 / 0)
    comm.barrier()
    last.send(rank, "at the end")
"""


def test_what_may_wait_is_refused_in_a_handler_and_what_it_raises_is_raised(
    start: Start, tmp_path: Path
) -> None:
    """Handlers of rank 0 run in the program's thread, those of rank 1 in the helper thread."""
    job = start(write_app(tmp_path, REFUSED), ranks=2, every=100, max_restarts=0)
    assert job.finish() == 1, job.report()
    for rank in range(2):
        words = "ValueError('last'), ValueError('one'), ValueError('two'), ValueError('three')"
        note = f"in receive, called by rank {rank} for a message of rank {rank}"
        assert job.output(rank) == f"{rank} [{not rank}] [{words}] ['{note}']\n", job.report()
    errors = "".join((job.directory / "output" / f"rank-{rank}.err").read_text() for rank in range(2))
    assert "ZeroDivisionError" in errors, "raised when the program has ended"


PENDING = """
    import os
    import ckpt

    comm = ckpt.enable()

    def receive(source, obj):
        print("handled", obj, flush=True)
        raise ValueError(obj)

    channel = ckpt.ActiveMessages(comm, receive)
    if comm.rank == 0:
        comm.send("now", 1)  # the last call before the test lets it go on
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            sum(range(1000))
        for _ in range(2):
            try:
                comm.isend(None, 0)
            except ValueError as error:
                print(repr(error))
        comm.send(None, 2)
    elif comm.rank == 1:
        comm.recv(source=0)
        for word in "one", "two":
            channel.send(0, word)
    else:
        comm.recv(source=0)  # the first call after the constructor: it holds the guard when the image is taken
"""


def test_an_exception_of_a_handler_is_part_of_an_image(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, PENDING), ranks=3, every=0.2)
    job.wait_for(lambda: job.output(0).count("handled") == 2, "both messages")
    job.wait_event("committed", len(job.events("committed")) + 2)
    job.kill_rank(0)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(0) == "handled one\nhandled two\nValueError('one')\nValueError('two')\n", job.report()


THREAD = """
    import os, queue, threading
    import ckpt
    from ckpt import MPI
    from ckpt.errors import NotInHandler

    comm = ckpt.enable()
    rank, size, steps = comm.rank, comm.size, 200
    work, got, meanwhile, refused = queue.SimpleQueue(), [], [], []

    def receive(source, obj):
        kind, step = obj
        if kind == "square":
            channel.keep_out(thread)  # first: the thread may ask for the lock as soon as it has work
            work.put(step)
        elif kind == "done":
            channel.keep_out(thread, False)
            channel.send((rank + 1) % size, ("result", step))
        else:
            (meanwhile if step == 0.25 else got).append(step)  # that of another rank, which may be ahead of this one

    def run():
        while True:
            step = work.get()
            try:
                comm.recv(source=rank)
            except NotInHandler as error:
                refused.append(str(error))
            channel.post(("done", step * step))

    thread = threading.Thread(target=run, daemon=True, name="squares")
    thread.start()
    channel = ckpt.ActiveMessages(comm, receive)
    for step in range(steps):
        channel.send((rank + 1) % size, ("square", step))
        if step % 3 == 0:
            comm.barrier()  # the program waits in the library, and the thread is heard all the same
        if step % 3 == 1:
            sum(range(10000))
        channel.wait(lambda: len(got) > step)
        if step == steps // 2:
            rounds = 0
            while not comm.bcast(os.path.exists(os.environ["CKPT_TEST_GO"])):
                channel.send((rank + 1) % size, ("square", 0.5))
                rounds += 1
                channel.wait(lambda: len(meanwhile) >= rounds)
    comm.barrier()
    assert len(meanwhile) == rounds and len(refused) >= steps, (len(meanwhile), rounds, len(refused))
    assert got == [step * step for step in range(steps)], got
    assert "'squares'" in refused[0] and "recv()" in refused[0], refused[0]
    print(rank, sum(got))
"""


def test_a_thread_posts_while_the_program_waits_in_the_library(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, THREAD)
    job = start(app, ranks=3, every=0.2)
    job.wait_event("committed", 3)
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(3)] == [f"{rank} 2646700\n" for rank in range(3)]


FAILS = """
    import ckpt

    comm, handled = ckpt.enable(), []

    def receive(source, obj):
        handled.append(obj)
        1 / obj

    channel = ckpt.ActiveMessages(comm, receive)
    channel.send(0, 0)
    channel.send(0, "text")
    while len(handled) < 2:
        pass
    raise KeyError("its own")
"""


def test_a_program_that_fails_says_what_its_handlers_have_raised_too(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, FAILS), ranks=1, every=100, max_restarts=0)
    assert job.finish() == 1, job.report()
    said = (job.directory / "output" / "rank-0.err").read_text()
    places = [said.index(name) for name in ("KeyError: 'its own'", "ZeroDivisionError", "TypeError")]
    assert places == sorted(places), job.report()
    assert said.count("in receive, called by rank 0 for a message of rank 0") == 2
