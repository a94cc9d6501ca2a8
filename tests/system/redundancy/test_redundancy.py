"""`ckpt run --redundancy`: real jobs with flipped bits, killed and stopped replicas; the result is that of a job without."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ckpt.redundancy.ahead import AHEAD_MAX
from tests.seeds import seed_of_the_commit
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]


END = """
    def end(step):
        # a replica that the test names dies at this step; nobody else does
        from ckpt.redundancy import status
        me, named = status(), os.environ.get("KILL", "")
        if me and any(each == f"{me['rank']}.{me['replica']}.{step}" for each in named.split(",")):
            os.kill(int(os.readlink("/proc/self")), int(os.environ.get("SIGNAL", 9)))
"""

HALO = (
    """
    import os, random
    import ckpt

    comm = ckpt.enable()
    """
    + END
    + """
    x = [comm.rank * 1000 + i for i in range(50)]
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(120):
        end(step)
        request = comm.isend(x[-1], right, tag=1)
        edge = comm.recv(source=left, tag=1)
        request.wait()
        x = [(a * 31 + edge + b) % 1000003 for a, b in zip(x, x[1:] + x[:1])]
        if step % 20 == 0:
            print("step", step, comm.allreduce(sum(x)))
    print("rank", comm.rank, "of", comm.size, sum(x), os.environ["RANK"], os.environ["WORLD_SIZE"])
    """
)

CHOICES = (
    """
    import os, random, time
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    """
    + END
    + """
    random.seed(comm.rank)
    status, total = MPI.Status(), 0
    for step in range(40):
        end(step)
        if comm.rank == 0:
            requests = [comm.irecv(source=MPI.ANY_SOURCE, tag=2) for _ in range(comm.size - 1)]
            for _ in range(comm.size - 1):
                total += comm.recv(source=MPI.ANY_SOURCE, tag=1, status=status)
                comm.send(total, dest=status.source, tag=3)
            while requests:
                index, value = MPI.Request.waitany(requests)
                total = (total * 7 + value) % 1000003
                del requests[index]
        else:
            time.sleep(random.random() * 0.002)
            comm.send(comm.rank * 10, dest=0, tag=1)
            while not comm.iprobe(source=0, tag=3):
                pass
            total = (total + comm.recv(source=0, tag=3)) % 1000003
            comm.isend(comm.rank, dest=0, tag=2).wait()
    print(comm.rank, "ends")
    ckpt.redundancy.result(total)
    """
).replace("import ckpt\n", "import ckpt, ckpt.redundancy\n", 1)


BUFFERS = """
    import hashlib
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    field = np.add.outer(np.arange(34.0), np.arange(64.0) + comm.rank)
    up, down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    half = comm.Split(comm.rank % 2)
    total = np.zeros(4)
    for step in range(60):
        requests = [comm.Irecv(field[0], down, 1), comm.Irecv(field[-1], up, 2)]
        requests += [comm.Isend(field[-2].copy(), up, 1), comm.Isend(field[1].copy(), down, 2)]
        MPI.Request.Waitall(requests)
        field[1:-1, 1:-1] = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
        if step % 5 == 0:
            request = comm.Iallreduce(np.full(4, field.sum()), total)
            found = half.allgather(float(field[3, 3]))
            request.Wait()
            print(comm.rank, step, total[0], found)
    print(comm.rank, hashlib.sha256(field.tobytes()).hexdigest())
    """


def lines(job: Job) -> list[str]:
    return sorted(job.stdout.splitlines())


def named(job: Job) -> list[tuple[Any, ...]]:
    return [(each["rank"], each["replica"]) for each in job.events("replica-differs")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the program prints without redundancy."""
    directory = tmp_path_factory.mktemp("plain")
    done = run_ckpt("run", "-n", 2, "--job", directory / "job", write_app(directory, HALO))
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_the_program_sees_ranks_and_its_output_comes_once(
    start: Start, tmp_path: Path, plain: list[str]
) -> None:
    job = start(write_app(tmp_path, HALO), ranks=2, redundancy=3)
    assert job.finish() == 0
    assert lines(job) == plain
    assert sorted((job.output(0) + job.output(1)).splitlines()) == plain
    (compared,) = job.events("result-compared")
    assert compared["verified"] and compared["replicas"] == [0, 1, 2] and compared["compared"] >= 240
    assert not named(job)


@pytest.mark.rotate(6)
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("replica", [0, 1, 2])
def test_a_flipped_bit_is_found_and_the_replica_is_named(
    start: Start, tmp_path: Path, plain: list[str], rank: int, replica: int
) -> None:
    message = Random(seed_of_the_commit()).randrange(1, 110)
    flips = f"rank={rank},replica={replica},message={message}"
    job = start(write_app(tmp_path, HALO), ranks=2, redundancy=3, env={"CKPT_FLIPS": flips})
    assert job.finish() == 0, flips
    assert lines(job) == plain, flips
    assert named(job) == [(rank, replica)], flips
    (event,) = job.events("replica-differs")
    assert event["first"] == event["last"] and event["process"] == 3 * rank + replica
    assert event["pid"] == job.pid(event["process"]) and event["host"]
    status = run_ckpt("status", job.directory).stdout
    assert (
        f"replica {replica} of rank {rank} (pid {event['pid']}" in status
        and "the result is verified" in status
    )


@pytest.mark.rotate(2)
@pytest.mark.parametrize("replica", [0, 1])
def test_of_two_that_differ_nobody_is_named_and_the_program_starts_again(
    start: Start, tmp_path: Path, plain: list[str], replica: int
) -> None:
    env = {"CKPT_FLIPS": f"rank=1,replica={replica},message=30"}
    job = start(write_app(tmp_path, HALO), ranks=2, redundancy=2, env=env)
    assert job.finish() == 0
    assert lines(job) == plain
    assert named(job) == [(1, None)]
    (event,) = job.events("replica-differs")
    assert event["first"] == event["last"]
    assert len(job.events("restarting")) == 1


@pytest.mark.rotate(9)
@pytest.mark.parametrize("replica", [0, 1, 2])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_killed_replica_changes_nothing_also_where_it_makes_the_choices(
    start: Start, tmp_path: Path, rank: int, replica: int
) -> None:
    step = Random(seed_of_the_commit()).randrange(40)
    job = start(write_app(tmp_path, CHOICES), ranks=3, redundancy=3, env={"KILL": f"{rank}.{replica}.{step}"})
    assert job.finish() == 0, step
    assert lines(job) == ["0 ends", "1 ends", "2 ends"]
    assert [each["replica"] for each in job.events("replica-lost")] == [replica]
    assert bool(job.events("leader-changed")) == (replica == 0)
    assert job.events("result-compared")[0]["verified"]
    assert not named(job)


def test_two_killed_replicas_of_three_leave_a_job_that_goes_on_unverified_and_says_so(
    start: Start, tmp_path: Path, plain: list[str]
) -> None:
    job = start(write_app(tmp_path, HALO), ranks=2, redundancy=3, env={"KILL": "0.0.30,1.2.60"})
    assert job.finish() == 0
    assert lines(job) == plain
    assert job.events("cluster-unverified")
    assert "nothing is compared" in job.stderr
    assert not job.events("result-compared")[0]["verified"]


@pytest.mark.nightly
@pytest.mark.parametrize("replica", [0, 1, 2])
def test_a_stopped_replica_is_left_behind(
    start: Start, tmp_path: Path, plain: list[str], replica: int
) -> None:
    env = {"KILL": f"1.{replica}.40", "SIGNAL": str(int(signal.SIGSTOP))}
    job = start(write_app(tmp_path, HALO), ranks=2, redundancy=3, env=env)
    assert job.finish() == 0
    assert lines(job) == plain
    assert [each["replica"] for each in job.events("replica-lost")] == [replica]


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["blocking", "nonblocking"])
def test_the_others_wait_for_a_stopped_replica_and_go_on_with_it(
    start: Start, tmp_path: Path, how: str
) -> None:
    """They may be `AHEAD_MAX` messages ahead, and what is reported late. Stopped too long it is left behind: then the rest
    of the test says nothing, but the result is the same."""
    send = "comm.send(step, right)" if how == "blocking" else "requests = [comm.isend(step, right)]"
    app = write_app(
        tmp_path,
        f"""
        import os
        import ckpt
        comm = ckpt.enable()
        right, requests = (comm.rank + 1) % comm.size, []
        for step in range(20_000):
            {send}
            comm.recv(source=right)
            for request in requests:
                request.wait()
            if step % 500 == 0:
                print(step)
        """,
    )
    job = start(app, ranks=2, redundancy=2)

    def steps(replica: int) -> int:
        path = job.directory / "output" / f"rank-0.replica-{replica}.out"
        text = path.read_text() if path.exists() else ""
        return int(text.rpartition("\n")[0].rpartition("\n")[2] or 0)

    job.wait_for(lambda: steps(0) > 1000, "some steps", 240)
    stopped = job.kill_rank(1, signal.SIGSTOP)
    try:
        before = [-1]

        def rests() -> bool:
            before.append(steps(0))
            time.sleep(0.3)
            return before[-1] == before[-2] == steps(0) or bool(job.events("replica-lost"))

        job.wait_for(rests, "the other replica to wait", 240)
        ahead = steps(0) - steps(1)
        assert ahead < 2 * AHEAD_MAX or job.events("replica-lost"), ahead
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert job.finish(240) == 0, job.report()
    assert job.output(0) == "".join(f"{step}\n" for step in range(0, 20_000, 500))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("name", ["HALO", "CHOICES", "BUFFERS"])
def test_whatever_bit_flips_the_result_is_the_same_and_nobody_else_is_named(
    start: Start, tmp_path: Path, name: str, seed: int
) -> None:
    random, app = Random(f"{seed_of_the_commit()} {seed}"), write_app(tmp_path, globals()[name])
    ranks = random.choice([2, 3]) if name != "HALO" else 2
    whole = start(app, ranks=ranks, name="plain")
    assert whole.finish() == 0
    rank, replica = random.randrange(ranks), random.randrange(3)
    # Rank 0 of two sends 40 messages in CHOICES: a later one is never flipped.
    flips = f"rank={rank},replica={replica},message={random.randrange(1, 40)},seed={seed}"
    job = start(app, ranks=ranks, redundancy=3, env={"CKPT_FLIPS": flips})
    assert job.finish() == 0, flips
    assert lines(job) == lines(whole), flips
    assert named(job) == [(rank, replica)], flips


def test_a_program_that_is_not_deterministic_ends_with_a_report_and_not_in_endless_runs(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import os
        import ckpt
        comm = ckpt.enable()
        comm.send(os.readlink("/proc/self"), dest=(comm.rank + 1) % comm.size)
        print(comm.recv())
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 15
    assert "does not compute the same each time" in job.stderr
    assert len(job.events("restarting")) == 2
    assert job.stdout == ""


def test_a_program_whose_replicas_all_print_something_else_ends_with_a_report_too(
    start: Start, tmp_path: Path
) -> None:
    """Two of three agree on the first bytes, so the third is named; then these two differ. It ended with exit code 0, and
    had printed nothing."""
    app = write_app(
        tmp_path,
        """
        import os
        import ckpt
        comm = ckpt.enable()
        comm.barrier()
        print("process", os.readlink("/proc/self"), flush=True)
        comm.barrier()
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 15
    assert "does not compute the same each time" in job.stderr
    assert len(job.events("restarting")) == 2


def test_what_stands_for_functions_in_c_is_no_method_of_a_class_that_has_it(
    start: Start, tmp_path: Path
) -> None:
    """As `logging.Formatter` has `time.localtime`: nothing was logged that has a time."""
    app = write_app(
        tmp_path,
        """
        import functools, logging, os, time
        import ckpt
        comm = ckpt.enable()
        logging.basicConfig(filename=f"log-{comm.rank}", format="%(asctime)s %(message)s")
        class Has:
            clock, date, pid, random = time.perf_counter, time.localtime, os.getpid, os.urandom
            open, replace, remove = open, os.replace, os.remove
        has, kept = Has(), [time.time, open]
        for step in range(5):
            logging.error("step %d", comm.bcast(step))
            with has.open(f"file-{comm.rank}", "w") as file:
                file.write("text")
            has.replace(f"file-{comm.rank}", f"other-{comm.rank}")
            has.remove(f"other-{comm.rank}")
            comm.allgather((has.clock(), has.date(), has.pid(), has.random(3), kept[0]()))
        names = [functools.wraps(each)(lambda: None).__name__ for each in (*kept, os.replace)]
        print(names, len(open(f"log-{comm.rank}").readlines()))
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0
    assert lines(job) == ["['time', 'open', 'replace'] 5"] * 2
    assert not named(job) and "Traceback" not in job.stderr


def test_surroundings_are_the_same_in_all_replicas(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import datetime, os, pickle, random, secrets, time, uuid
        import ckpt
        comm = ckpt.enable()
        random.seed()
        values = [
            random.random(), random.Random().random(), os.urandom(5), secrets.token_hex(), uuid.uuid4(),
            time.time(), time.monotonic_ns(), time.strftime("%X"), datetime.datetime.now(), os.getpid(),
            datetime.date.today(), pickle.loads(pickle.dumps(datetime.datetime(2000, 1, 1) - datetime.timedelta(1))),
            os.getrandom(5), os.times(), time.clock_gettime(time.CLOCK_REALTIME), time.clock_gettime_ns(1),
        ]
        assert isinstance(values[8], datetime.datetime) and isinstance(values[8], datetime.date)
        comm.send(values, dest=(comm.rank + 1) % comm.size)
        print(comm.recv(), comm.allreduce(values[5], max))
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0
    assert len(lines(job)) == 2 and not named(job)
    first, second = (each.split()[0] for each in lines(job))
    assert first != second  # but they differ from rank to rank


def test_dates_are_of_the_genuine_classes(start: Start, tmp_path: Path) -> None:
    """Their classes were replaced by subclasses: pandas, whose C code knows the genuine ones, ended with SIGSEGV at its
    import, a date was printed as "date(2020, 1, 2)", and was an instance of each subclass of the program."""
    app = write_app(
        tmp_path,
        """
        import datetime, ckpt
        from datetime import date
        comm = ckpt.enable()
        class Holiday(date): pass
        day, moment = date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3)
        assert repr([day, moment]) == "[datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3, 0)]"
        assert type(moment.date()) is date and not isinstance(day, Holiday) and type(Holiday.today()) is Holiday
        assert date.__flags__ & 1 << 9 == 0, "made by a class statement"
        values = [Holiday.today(), datetime.datetime.now(), datetime.datetime.now(datetime.UTC), datetime.datetime.utcnow()]
        print(len({tuple(each) for each in comm.allgather(values)}), type(values[1]) is datetime.datetime)
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0
    assert lines(job) == ["2 True"] * 2 and not named(job)


def test_a_thread_knows_the_time_also_where_nobody_has_asked(start: Start, tmp_path: Path) -> None:
    """Its clocks told 0: it was 1970."""
    app = write_app(
        tmp_path,
        """
        import threading, time
        import ckpt
        comm = ckpt.enable()
        told = []
        thread = threading.Thread(target=lambda: told.append((time.time(), time.time_ns(), time.monotonic())))
        thread.start(), thread.join()
        comm.allgather(told)
        print(told[0][0] > 1.7e9, told[0][1] > 1.7e18, 0 < told[0][2] <= time.monotonic())
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0
    assert lines(job) == ["True True True"] * 2 and not named(job)


def test_what_is_imported_has_the_surroundings_too(start: Start, tmp_path: Path) -> None:
    """While a module was imported its clocks told 0, and a file that it opened for writing was refused; a module that had
    been imported before (`bz2`) kept the genuine `open`."""
    (tmp_path / "imported.py").write_text(
        "import bz2, time, os\nBEGUN, PID = time.time(), os.getpid()\n"
        "with open(f'begun-{PID}', 'w') as file:\n    print('begun', file=file)\n"
        "with bz2.open(f'packed-{PID}', 'wt') as file:\n    print('packed', file=file)\n"
    )
    app = write_app(
        tmp_path,
        """
        import time, ckpt
        import imported
        comm = ckpt.enable()
        assert 0 <= time.time() - imported.BEGUN < 600
        print(len(set(comm.allgather((imported.BEGUN, imported.PID)))))
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0
    assert lines(job) == ["2", "2"] and not named(job)
    assert [len(list(tmp_path.glob(name))) for name in ("begun-*", "packed-*")] == [2, 2]


def test_a_signal_that_a_program_sends_to_itself_comes_once_to_each_replica(
    start: Start, tmp_path: Path
) -> None:
    """`os.getpid` is the leader's, so the leader got the signals of all replicas, and was called wrong."""
    app = write_app(
        tmp_path,
        """
        import os, signal, ckpt
        comm = ckpt.enable()
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getppid(), 0)
        print(comm.allreduce(len(seen)))
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0
    assert lines(job) == ["6", "6"] and not named(job)


def test_uuids_made_of_clocks_are_the_same_in_all_replicas(start: Start, tmp_path: Path) -> None:
    """A library in C makes them: the program ended with code 15."""
    app = write_app(
        tmp_path,
        """
        import threading, uuid, ckpt
        comm = ckpt.enable()
        made = [uuid.uuid1(), uuid.uuid1()]
        threads = [threading.Thread(target=lambda: made.append(uuid.uuid1())) for _ in range(2)]
        for thread in threads:
            thread.start(), thread.join()
        assert {each.version for each in made} == {1}
        print(len(set(sum(comm.allgather(made), []))), len(set(comm.allgather(uuid.getnode()))))
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0
    assert lines(job) == ["8 1", "8 1"] and not named(job)


@pytest.mark.rotate(4)
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("open('result', 'w', opener=posix.open)", "opens a file for writing"),
        ("os.open('result', os.O_WRONLY | os.O_CREAT | os.O_DIRECT)", "opens a file for writing"),
        ("os.mkdir('d', dir_fd=os.open('.', os.O_RDONLY))", "a descriptor of a directory"),
        ("os.system('true')", "starts a process"),
        ("os.fork()", "starts a process"),
        ("os.killpg(1, 0)", "sends a signal to another process"),
        ("sqlite3.connect('result')", "opens a database"),
        (
            "socket.create_connection(('127.0.0.1', 9))",
            "opens a connection (socket.connect: ('127.0.0.1', 9))",
        ),
        ("datagrams.sendto(b'x', ('127.0.0.1', 9))", "sends a datagram (socket.sendto: ('127.0.0.1', 9))"),
        ("datagrams.sendmsg([b'x'], [], 0, ('127.0.0.1', 9))", "sends a datagram"),
        ("shared_memory.SharedMemory(create=True, size=9)", "shares memory"),
        ("h5py.File('result', 'w')", "opens a file for writing"),
        ("in_thread(lambda: os.system('touch result'))", "starts a process"),
        ("in_thread(lambda: os.open('result', os.O_WRONLY | os.O_CREAT))", "only the main thread"),
    ],
)
def test_what_all_replicas_cannot_do_alike_is_refused_before_it_is_done(
    start: Start, tmp_path: Path, statement: str, what: str
) -> None:
    app = write_app(
        tmp_path,
        f"""
        import os, posix, socket, sqlite3
        from concurrent.futures import ThreadPoolExecutor
        from multiprocessing import shared_memory
        import ckpt.errors
        if "h5py" in {statement!r}:
            import h5py
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for each, other in (socket.socketpair(), socket.socketpair(type=socket.SOCK_DGRAM)):
            each.sendmsg([b"x"])
            assert other.recv(9) == b"x"
        in_thread = lambda call: ThreadPoolExecutor().submit(call).result()
        try:
            {statement}
        except ckpt.errors.NotReplicable as refused:
            print(refused)
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    assert job.finish() == 0
    assert what in job.stdout
    assert not {"result", "d"} & set(os.listdir(tmp_path))


def test_a_database_that_is_attached_is_refused_before_it_is_written(start: Start, tmp_path: Path) -> None:
    """All replicas would insert their rows into it: each was there as often as there are replicas."""
    sqlite3.connect(tmp_path / "given").execute("create table numbers (number)").connection.close()
    app = write_app(
        tmp_path,
        """
        import sqlite3
        from sqlite3 import connect
        import ckpt

        def tried(connection, statement, *values):
            try:
                return connection.execute(statement, *values).fetchall()
            except sqlite3.DatabaseError as error:
                return str(error)

        connections = sqlite3.connect(":memory:"), connect("")
        for each in connections:
            print(tried(each, "attach 'result' as other"), tried(each, "attach ? as other", ("result",)))
            print(tried(each, "vacuum into 'result'"), tried(each, "attach ':memory:' as other"), tried(each, "vacuum"))
        read = connect("file:given?mode=ro", uri=True)
        print(tried(read, "attach 'given' as other"), tried(read, "select * from other.numbers"))
        """,
    )
    job = start(app, ranks=1, redundancy=3)
    assert job.finish() == 0, job.report()
    assert lines(job) == sorted(
        ["not authorized not authorized", "authorization denied [] []"] * 2 + ["[] []"]
    )
    assert "under --redundancy the program attaches a database (ATTACH: 'result')" in job.stderr
    assert not (tmp_path / "result").exists()


def test_a_connection_that_an_image_brings_back_attaches_no_database_either(
    start: Start, tmp_path: Path
) -> None:
    """Else a copy would do what the others do not, and be called wrong."""
    app = write_app(
        tmp_path,
        """
        import sqlite3, time
        import ckpt

        comm = ckpt.enable()
        connection = sqlite3.connect(":memory:")
        print("begun", flush=True)
        while ckpt.restarts() == 0:
            comm.barrier()
            time.sleep(0.01)
        try:
            connection.execute("attach 'result' as other")
        except sqlite3.DatabaseError as error:
            print(error)
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    job.wait_for(lambda: job.output(0), "its output")
    assert run_ckpt("checkpoint", "--stop", job.directory).returncode == 0 and job.finish() == 75, (
        job.report()
    )
    again = Job(job.directory, job.directory, verb="restart")
    try:
        assert again.finish() == 0, again.report()
        assert again.output(0) == "begun\nnot authorized\n"
    finally:
        again.close()


@pytest.mark.rotate(2)
@pytest.mark.parametrize(
    ("code", "said"), [("sys.exit(3)", ""), ("raise ValueError('wrong')", "ValueError: wrong")]
)
def test_the_exit_code_is_the_programs(start: Start, tmp_path: Path, code: str, said: str) -> None:
    app = write_app(tmp_path, f"import sys, ckpt\nprint('before')\nif ckpt.enable().rank == 1:\n    {code}\n")
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == (3 if "exit" in code else 1)
    assert lines(job) == ["before", "before"]
    assert job.stderr.count("ValueError: wrong\n") >= bool(said)


@pytest.mark.rotate(4)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--redundancy", "0"], "0: 3 (the odd one of three is found)"),
        (["--redundancy", "4"], "4: 3 (the odd one of three is found)"),
        (["--redundancy=-1"], "-1: 3 (the odd one of three is found)"),
        (["--redundancy", "1.5"], "'1.5' is no whole number"),
        (["--redundancy", "x"], "'x' is no whole number"),
        (["--redundancy", "3", "--on-failure", "continue"], "--on-failure continue: the program is not told"),
        (["--redundancy", "2", "--explicit"], "--explicit: the steps of a program that saves itself"),
        (["--redundancy", "2", "--hosts", "a,b"], "--hosts: replicas are processes of one host yet"),
        (["--compare", "late"], "give --redundancy 2 or 3, too"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, options: list[str], said: str) -> None:
    done = run_ckpt("run", *options, write_app(tmp_path, "print(1)"), cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not done.stdout and not os.path.exists(tmp_path / ".ckpt")


def test_same_names_the_ranks_whose_object_differs(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import ckpt
        from ckpt import redundancy
        comm = ckpt.enable()
        weights = bytearray(b"weights" * 1000)
        print(redundancy.same(comm, weights))
        if comm.rank == 2:
            weights[77] ^= 4
        print(redundancy.same(comm, weights), redundancy.same(comm, comm.rank % 2), redundancy.status())
        """,
    )
    job = start(app, ranks=4)
    assert job.finish() == 0
    assert lines(job) == sorted(["[]", "[2] [0, 1, 2, 3] None"] * 4)


@pytest.mark.parametrize("redundancy", [1, 3])
def test_same_raises_at_all_ranks_where_one_has_what_cannot_be_compared(
    start: Start, tmp_path: Path, redundancy: int
) -> None:
    app = write_app(
        tmp_path,
        """
        import ckpt
        from ckpt import redundancy
        comm = ckpt.enable()
        value = [1.5, lambda: 0] if comm.rank == 1 else [1.5]
        try:
            redundancy.same(comm, value)
        except TypeError as error:
            print(comm.rank, "the object of rank 1 cannot be compared" in str(error), bool(error.__cause__))
        words = [comm.bcast("word", root=0), comm.bcast("word", root=0)]  # one object at rank 0, two at the others
        print(redundancy.same(comm, words), redundancy.result(words))
        one = comm.Split(comm.rank % 2)
        both = one.Create_intercomm(0, comm, 1 - comm.rank % 2)
        print(redundancy.same(one, comm.rank % 2))
        try:
            redundancy.same(both, 1)
        except ValueError as error:
            print("intercommunicator" in str(error))
        """,
    )
    job = start(app, ranks=4, redundancy=redundancy)
    assert job.finish() == 0, job.report()
    said = [f"{rank} True {rank == 1}" for rank in range(4)]
    assert lines(job) == sorted([*said, *["[] ['word', 'word']", "[]", "True"] * 4])


@pytest.mark.rotate(3)
@pytest.mark.parametrize("way", ["late", "sender", "receiver"])
def test_a_program_that_calls_abort_ends_alike_in_all_replicas_with_its_exit_code(
    start: Start, tmp_path: Path, way: str
) -> None:
    app = write_app(
        tmp_path,
        """
        import ckpt

        comm = ckpt.enable()
        for step in range(1000):
            comm.send(step, 1 - comm.rank)
            comm.recv(source=1 - comm.rank)
        if comm.rank == 0:
            comm.Abort(3)
        comm.recv(source=0)
        """,
    )
    job = start(app, ranks=2, redundancy=3, compare=way)
    assert job.finish() == 3, job.report()
    assert not named(job) and not job.events("restarting")
