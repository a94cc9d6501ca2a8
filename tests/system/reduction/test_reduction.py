"""Reductions in real jobs: results, what is refused, kill -9 in the middle with and without a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.reduction.reduction_deaths import death, deaths
from tests.system.support import Job, run_ckpt, write_app

pytest.importorskip("numpy")
pytestmark = [pytest.mark.system, pytest.mark.turns(6)]

Start = Callable[..., Job]

HEAD = """
    import hashlib, os, random, sys, threading, time
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    assert "ckpt.reduction" not in sys.modules
    import ckpt.reduction as R

    rank, size = comm.rank, comm.size
    everybody = tuple(range(size))
"""

RESULTS = (
    HEAD
    + """
    a = np.arange(3.0) + rank

    class Sum(R.Body):
        def __init__(self, x):
            self.x = x
        def combine(self, other):
            return Sum(self.x + other.x)
        def size(self):
            return len(self.x)
        def pack(self):
            return self.x.tobytes()
        @classmethod
        def unpack(cls, contents):
            return cls(np.frombuffer(contents))

    comm.barrier()  # the class is there at all ranks
    product = MPI.Op.Create(lambda x, y, _: x @ y, commute=False)
    matrices = [np.array([[each + 1, 1], [0, 1]]) for each in everybody]
    for order in ("tree", "ready"):
        f = R.allreduce(a, order=order)
        x = f.result()
        assert (x == np.arange(3.0) * size + sum(everybody)).all() and f.contributors == everybody and not f.missing
        x[:] = -1  # it is the program's own
        g = R.reduce(a, root=1, order=order)
        assert (g.result() is None) == (rank != 1) and g.root == 1
        x = R.allreduce(matrices[rank], op=product, order=order).result()
        assert (x == np.linalg.multi_dot(matrices)).all()
        assert (R.allreduce(Sum(a), order=order).result().x == np.arange(3.0) * size + sum(everybody)).all()
    for op, wanted in ((MPI.MAX, size), (MPI.MIN, 1), (MPI.PROD, [1, 1, 2, 6, 24][size]), (MPI.BXOR, [0, 1, 3, 0, 4][size])):
        assert R.allreduce(np.array([[rank + 1]]), op=op).result() == wanted
    assert R.allreduce(np.array([True, rank > 0]), op=MPI.LAND).result().tolist() == [True, False]
    frozen = np.arange(6.0)[::2]
    frozen.flags.writeable = False
    assert (R.allreduce(frozen).result() == frozen * size).all()
    assert R.allreduce(np.zeros((0, 3))).result().shape == (0, 3)
    assert R.allreduce(2.5, name=None).result() == 2.5 * size

    # long data in parts: the same bits, whichever rank has them
    long = np.random.default_rng(rank).random((100, 1000))
    want = R.allreduce(long).result()
    for order, op, wanted in (("tree", MPI.SUM, want), ("ready", MPI.MIN, R.allreduce(long, op=MPI.MIN).result())):
        f = R.allreduce(long, parts=5, order=order, op=op)
        assert (f.result() == wanted).all() and f.result().shape == long.shape and f.contributors == everybody
        assert f.weight == size and f.result() is f.result() and f.stats()["messages_sent"]
    f = R.reduce(long, root=2, parts=3, check=True, name="parts")
    assert (f.result() is None) == (rank != 2) and (rank != 2 or (f.result() == want).all())
    assert (R.allreduce(long, parts=7, quorum=size).result() == want).all()  # in one part
    class Map(R.Body):
        def __init__(self, x):
            self.x = x
        def combine(self, other):
            return Map(self.x + other.x)
        def split(self, count):
            return [Map(each) for each in np.array_split(self.x, count)]
        @classmethod
        def join(cls, parts):
            return cls(np.concatenate([part.x for part in parts]))
    comm.barrier()
    pending = [R.allreduce(Map(long), parts=count, name=f"map {count}") for count in (1, 2, 9)]
    assert all((f.result().x == want).all() and "\\0" not in "".join(R.pending()) for f in pending)

    # threads that reduce at once on a communicator of which there was no reduction yet
    new, together, sums = comm.Dup(), threading.Barrier(4), []
    def reduces(number):
        together.wait()
        sums.append(R.allreduce(np.array([number]), comm=new, name=f"thread {number}").result() == number * size)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=reduces, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    sys.setswitchinterval(switching)
    assert len(sums) == 4 and all(sums)
    assert sum(each.comm == new for each in R._services) == 1
    R.free(new)

    many = [R.allreduce(np.full(1000, n), name=f"n{n}" if n % 2 else "") for n in range(30)]
    assert [f.result()[0] for f in reversed(many)] == [size * n for n in reversed(range(30))]
    part = comm.Split(rank % 2, rank)
    for _ in range(2):
        f = R.allreduce(np.array([rank]), comm=part)
        if part.size > 1 and not f.done():
            try:
                R.free(part)
                assert f.done()
            except R.ReductionError as error:
                assert "not done" in str(error)
        assert f.result() == sum(range(rank % 2, size, 2))
        R.free(part)
    assert sum(each.name == "ckpt.reduction" for each in threading.enumerate()) == 1

    called, later = [], []
    f = R.allreduce(a)
    f.add_done_callback(lambda f: called.append(f.result()[0]))
    f.add_done_callback(lambda f: later.append(R.allreduce(a, name="from a callback")))
    assert f.result()[0] == sum(everybody)
    while not (called and later):
        time.sleep(0.001)
    assert later[0].result()[0] == called[0] == sum(everybody)

    # who computes does not keep the others waiting
    f = R.allreduce(a)
    if rank == 1:
        n = 0
        while not f.done():
            n += 1
    assert f.result()[0] == sum(everybody)

    # … and who waits for something else in the library: rank 0 has tasks, and rank 1 has the result before it sends
    f = R.allreduce(np.arange(100000.0))
    if rank == 0:
        assert comm.recv(source=1) == "done"
    if rank == 1:
        f.result()
        comm.send("done", dest=0)
    assert f.result()[1] == size
    if rank == 2:
        R.reduce(a, root=0, name="the last")  # and its program ends
    else:
        last = R.reduce(a, root=0, name="the last").result()
        assert rank or last[0] == sum(everybody)
    print("all right")
"""
)


@pytest.mark.rotate(2)
@pytest.mark.parametrize("ranks", [3, 4])
def test_results(start: Start, tmp_path: Path, ranks: int) -> None:
    job = start(write_app(tmp_path, RESULTS), ranks=ranks, every=0.5)
    assert job.finish() == 0, job.report()
    for rank in range(ranks):
        assert job.output(rank) == "all right\n"


BAD = (
    HEAD
    + """
    one, a = rank == 1, np.arange(3.0)

    class Bad(R.Body):
        def __init__(self, how):
            self.how = how
        def combine(self, other):
            if self.how == "raise":
                raise ZeroDivisionError("by design")
            if self.how == "result":
                R.allreduce(a, name="inner").result()
            if self.how == "recv":
                comm.recv(source=0)
            if self.how == "begin":
                R.allreduce(a, name=f"begun in combine by rank {rank}")
            if self.how == "exit":
                sys.exit(3)
            if self.how == "change":
                self.changed = True
                return Bad("change")
            return self if self.how == "self" else None if self.how == "none" else Bad("larger")
        def size(self):
            return 2 if self.how == "larger" else 1

    def show(what, call):
        try:
            call().result(60)
            print(what, "passed")
        except (R.ReductionError, ValueError, TypeError, NotImplementedError) as error:
            print(what, "-", type(error).__name__, getattr(error, "ranks", ""), str(error).partition(" (/")[0])

    comm.barrier()
    show("shape", lambda: R.allreduce(np.zeros(4 if one else 3)))
    show("type", lambda: R.allreduce(np.zeros(3, "i4" if one else "f8")))
    show("operation", lambda: R.allreduce(a, op=MPI.MAX if one else MPI.SUM))
    show("root", lambda: R.reduce(a, root=1 if one else 0))
    show("objects", lambda: R.allreduce(np.array([None]) if one else a))
    show("text", lambda: R.allreduce("text" if one else a))
    show("maxloc", lambda: R.allreduce(a, op=MPI.MAXLOC))
    show("raises", lambda: R.allreduce(Bad("raise")))
    show("returns nothing", lambda: R.allreduce(Bad("none")))
    show("returns itself", lambda: R.allreduce(Bad("self")))
    show("returns another size", lambda: R.allreduce(Bad("size")))
    show("waits for a result", lambda: R.allreduce(Bad("result")))
    show("receives", lambda: R.allreduce(Bad("recv")))
    show("begins a reduction", lambda: R.allreduce(Bad("begin")))
    show("ends the program", lambda: R.allreduce(Bad("exit")))
    show("changes itself", lambda: R.allreduce(Bad("change"), check=True))
    show("cannot be pickled at one rank", lambda: R.allreduce(Bad((lambda: 0) if one else "x"), check=True))
    show("masked", lambda: R.allreduce(np.ma.masked_array(a, a > 1) if one else a))
    show("cannot be pickled", lambda: R.allreduce(type("Hidden", (Bad,), {})("x"), copies=0))
    class Parted(Bad):
        def split(self, count):
            if self.how == "class":
                return [Bad("other class")]
            return [Parted(self.how)] * (count + (one and self.how == "count"))
        def combine(self, other):
            return Parted(self.how)
    comm.barrier()
    show("parts", lambda: R.allreduce(np.zeros(100_000), parts=5 if one else 2))
    show("parts again", lambda: R.allreduce(np.zeros(100_000), parts=1 if one else 3))
    show("long and short", lambda: R.allreduce(np.zeros(100 if one else 100_000), parts=4))
    show("split into another class", lambda: R.allreduce(Parted("class"), parts=2))
    show("split into other numbers", lambda: R.allreduce(Parted("count"), parts=2))
    show("no join", lambda: print(R.allreduce(Parted("x"), parts=2).result(60)))
    show("writes to its argument", lambda: R.allreduce(a.copy(), op=MPI.Op.Create(lambda x, y, _: np.add(x, y, out=y))))
    early = np.zeros(3)
    if one:
        f = R.allreduce(early, check=True, name="early")
        early[0] = 1
        comm.barrier()
    else:
        comm.barrier()
        f = R.allreduce(early, check=True, name="early")
    found = f.exception(60)  # at the others, too, if it was found before the end
    assert isinstance(found, R.InputChanged) and found.ranks == (1,) if one else isinstance(found, R.InputChanged | None)
    print("written to - InputChanged (1,)")
    show("no such root", lambda: R.reduce(a, root=size))
    show("a float as root", lambda: R.reduce(a, root=1.0))
    show("no root", lambda: R.reduce(a, root=-1))
    show("no such time", lambda: R.allreduce(a, deadline_s="1"))
    show("no time", lambda: R.allreduce(a, deadline_s=0))
    show("no such warning", lambda: R.allreduce(a, warn_after_s=-1))
    show("no such communicator", lambda: R.allreduce(a, comm="world"))
    show("no such number of copies", lambda: R.allreduce(a, copies=3))
    show("a float as copies", lambda: R.allreduce(a, copies=1.0))
    show("a truth value as copies", lambda: R.allreduce(a, copies=True))
    show("an operation for a body", lambda: R.allreduce(Bad("x"), op=MPI.MAX if one else MPI.SUM))
    plain = R.allreduce(a)
    show("no callback", lambda: plain.add_done_callback(None))
    plain.result()
    show("no such order", lambda: R.allreduce(a, order="fast"))
    show("no such option", lambda: R.allreduce(a, speed=1))
    show("no such number of parts", lambda: R.allreduce(a, parts=0))
    show("no such name", lambda: R.allreduce(a, name="a\\0b"))
    show("no such quorum", lambda: R.allreduce(a, quorum=size + 1))
    if one:
        f = R.allreduce(a, name="twice")
        show("twice", lambda: R.allreduce(a, name="twice"))
        comm.barrier()
    else:
        comm.barrier()
        f = R.allreduce(a, name="twice")
        print("twice - NameInUse () a reduction 'twice' of this rank has not ended yet: wait for its result")
    f.result()
    seen, mine = [], []
    def waits(f):
        try:
            mine.append(R.allreduce(a, name=f"in a callback of rank {rank}"))
            mine[-1].result()  # nobody else has called it yet
        except R.WouldDeadlock:
            seen.append("WouldDeadlock")
    if one:
        comm.barrier()
    with R._services[0].channel.lock:  # it is not done before there is a callback
        f = R.allreduce(a, name="before")
        f.add_done_callback(waits)
    if not one:
        comm.barrier()
    f.result()
    while not seen:
        time.sleep(0.001)
    print(seen[0])
    comm.barrier()  # all have seen it
    mine += [R.allreduce(a, name=f"in a callback of rank {each}") for each in range(size) if each != rank]
    for each in mine:
        each.result()
"""
)

REFUSED = """\
shape - Mismatch
type - Mismatch
operation - Mismatch
root - Mismatch
objects - InvalidInput (1,) reduction 4: rank 1: an array of Python objects cannot be reduced
text - InvalidInput (1,) reduction 5: rank 1: an array of
maxloc - InvalidInput
raises - CombineFailed
returns nothing - CombineFailed
returns itself - CombineFailed
returns another size - CombineFailed
waits for a result - CombineFailed
receives - CombineFailed
begins a reduction - CombineFailed
ends the program - CombineFailed
changes itself - CombineFailed
cannot be pickled at one rank - InvalidInput (1,)
masked - InvalidInput (1,)
cannot be pickled - InvalidInput
parts - Mismatch
parts again - Mismatch
long and short - Mismatch
split into another class - InvalidInput
split into other numbers - Mismatch
no join - NotImplementedError  Parted has split() and no join()
writes to its argument - CombineFailed
written to - InputChanged (1,)
no such root - ValueError  root is a rank below 3, not 3
a float as root - ValueError  root is a rank below 3, not 1.0
no root - ValueError  root is a rank below 3, not -1
no such time - ValueError  deadline_s is a number from 0 on, not '1'
no time - ValueError  deadline_s is a number of seconds above 0, not 0
no such warning - ValueError  warn_after_s is a number from 0 on, not -1
no such communicator - ValueError  comm is a communicator of one group of ranks, not 'world'
no such number of copies - ValueError  copies is one of 0, 1, 2, not 3
a float as copies - ValueError  copies is one of 0, 1, 2, not 1.0
a truth value as copies - ValueError  copies is one of 0, 1, 2, not True
an operation for a body - InvalidInput (1,)
no callback - TypeError  a callback is a function of one argument, not None
no such order - ValueError  order is one of 'tree', 'ready', not 'fast'
no such option - TypeError  reductions have no option 'speed'
no such number of parts - ValueError  parts is a number from 1 to 1024, not 0
no such name - ValueError  name is a text without NUL characters, not 'a\\x00b'
no such quorum - ValueError  quorum is a number of ranks from 1 to 3, not 4
twice - NameInUse () a reduction 'twice' of this rank has not ended yet
WouldDeadlock"""


def test_what_is_wrong_is_told_to_all_ranks_alike(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, BAD), ranks=3, every=100)
    assert job.finish() == 0, job.report()
    assert job.output(0) == job.output(1) == job.output(2)
    lines = job.output(0).splitlines()
    assert len(lines) == len(REFUSED.splitlines()), job.report()
    for line, wanted in zip(lines, REFUSED.splitlines(), strict=True):
        assert line.startswith(wanted), job.report()
        # the call that comes first is what others are compared with
        assert "Mismatch" not in line or ("asks for another reduction: " in line and " elsewhere" in line)


PARTIAL = (
    HEAD
    + """
    def wait(path):
        while not os.path.exists(path):
            time.sleep(0.001)

    go = os.environ["CKPT_TEST_GO"] + "-for-rank-1-"
    R.allreduce(np.zeros(1)).result()  # there is a channel: ranks 0 and 2 call within the deadline
    if rank == 1:
        wait(go)  # the others have ended it
    ones = np.ones(20_000)
    f = R.allreduce(ones, name="mean", deadline_s=1.0, weight=2)
    assert f.result()[0] == 2 and f.contributors == (0, 2) and f.missing == (1,) and f.weight == 4, (f, f.weight)
    open(go, "w").close()
    f = R.allreduce(ones, name="mean", weight=2, parts=2)
    assert (f.result() == 4).all() and f.contributors == everybody and f.weight == 8  # the late one was carried
    for late in ("drop", "raise"):
        comm.barrier()
        if rank == 1:
            wait(go + late)
        f = R.allreduce(np.array([1.0]), quorum=0.5, late=late)
        try:
            assert f.result() == 2 and f.contributors == (0, 2)
            assert late == "drop" or rank != 1
        except R.LateContribution as error:
            assert late == "raise" and rank == 1 and error.ranks == (1,)
        if rank == 0:
            open(go + late, "w").close()
        assert R.allreduce(np.array([1.0])).result() == 3

    # what is carried is what was given: the program uses its memory again, once it was told of the end
    class Bag(R.Body):
        def __init__(self, x):
            self.x = x
        def combine(self, other):
            if "no" in other.x:
                raise KeyError("no")
            return Bag(self.x + other.x)

    small, large, bag = np.ones(1), np.ones(20_000), Bag([rank])
    comm.barrier()
    if rank == 1:
        wait(go + "again")
    given = {"small": small, "large": large, "bag": bag, "no": bag}
    pending = [R.allreduce(each, name=name, quorum=2) for name, each in given.items()]
    assert [f.contributors for f in pending if f.exception() is None] == [(0, 2)] * 4
    if rank == 0:
        open(go + "again", "w").close()
    small[:], large[:], bag.x[:] = 10, 10, ["next", rank]
    assert R.allreduce(small, name="small").result() == 31
    assert (R.allreduce(large, name="large").result() == 31).all()
    assert R.allreduce(bag, name="bag").result().x == ["next", 0, 1, "next", 1, "next", 2]
    bag.x[0] = "no" if rank == 1 else "yes"
    # … and a result that one rank alone gave is the same for those who call when it has used its memory again
    comm.barrier()
    if rank != 1:
        wait(go + "alone")
    alone = {"one": np.array([rank]), "many": np.full(20_000, rank), "body": Bag([rank]), "large": Bag([rank] * 50_000)}
    found = [R.allreduce(each, name=name, quorum=1, late="drop").result() for name, each in alone.items()]
    if rank == 1:
        for each in alone.values():
            (each.x if isinstance(each, Bag) else each)[:] = [7]
        open(go + "alone", "w").close()
    assert found[0] == [1] and (found[1] == 1).all() and found[2].x == [1] and found[3].x == [1] * 50_000

    bag.x[0] = "no" if rank == 1 else "yes"
    error = R.allreduce(bag, name="no").exception()  # the operation raises at rank 1, in its call
    assert isinstance(error, R.InvalidInput) and error.ranks == (1,) and "came too late" in str(error), error
    print("all right")
"""
)


def test_who_does_not_wait_gets_the_same_as_all_others(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, PARTIAL), ranks=3, every=100)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(3)] == ["all right\n"] * 3


NEVER = (
    HEAD
    + """
    import logging

    said = os.environ["CKPT_TEST_GO"] + "-said"

    class Handler(logging.Handler):
        def emit(self, record):
            print(record.getMessage())
            open(said, "w").close()
            logging.getLogger("ckpt.reduction").removeHandler(self)

    logging.getLogger("ckpt.reduction").addHandler(Handler())
    R.allreduce(np.zeros(1)).result()  # there is a channel
    while rank == 1 and not os.path.exists(said):
        time.sleep(0.001)
    if rank == 0:
        comm.recv(source=2)  # which has called: its call came before
    f = R.allreduce(np.array([rank]), name="all", warn_after_s=0.05)
    if rank == 2:
        comm.send(None, dest=0)
    assert f.result() == 3
    if rank == 1:
        while not os.path.exists(said + "-result"):
            time.sleep(0.001)
    f = R.allreduce(np.array([rank]), name="timeout", warn_after_s=0)
    try:
        f.result(timeout=0.05 if rank == 0 else None)
    except TimeoutError as error:
        assert not f.done()
        print(error)
        open(said + "-result", "w").close()
    assert f.result() == 3
"""
)


def test_who_does_not_call_is_named_and_a_wait_may_have_an_end(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, NEVER), ranks=3, every=100)
    assert job.finish() == 0, job.report()
    assert job.output(0) == (
        "reduction 'all' waits for ranks [1], which have not called\n"
        "reduction 'timeout' is not done after 0.05 s\n"
    ) and not job.output(1), job.report()


LOOP = (
    HEAD
    + """
    steps = int(sys.argv[1])

    def held():
        return not os.path.exists(os.environ["CKPT_TEST_GO"])

    x = np.random.default_rng(rank).random(10000)
    total, called = np.zeros(10000), 0
    def count(f):
        global called
        called += 1
    for step in range(steps):
        while step == steps // 2 and held():
            sum(range(1000))
        f = R.allreduce(x * (step + 1))
        f.add_done_callback(count)
        g = R.reduce(np.array([rank, step]), root=step % size, name=f"r{step % 3}")
        sum(range(20000))
        total += f.result()
        if rank == step % size:
            assert g.result().tolist() == [sum(everybody), step * size]
        else:
            assert g.result() is None
    while called < steps:
        time.sleep(0.001)
    print(rank, called, hashlib.sha256(total.tobytes()).hexdigest())
"""
)


def test_pending_reductions_survive_kills_with_the_same_bytes(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, LOOP)
    quiet = start(app, 40, ranks=3, every=100, name="quiet")
    assert quiet.finish() == 0, quiet.report()
    job = start(app, 40, ranks=3, every=0.2, name="killed")
    for restarts, rank in enumerate((0, 2)):
        job.wait_event("committed", restarts + 1)
        job.kill_rank(rank)
        job.wait_event("restarting", restarts + 1)
    assert job.finish() == 0, job.report()
    for rank in range(3):
        assert job.output(rank) == quiet.output(rank) != ""
    nothing_is_left_of(job)


def nothing_is_left_of(job: Job) -> None:
    """No memory of the host, also of ranks that were killed."""
    for event in job.events("agent-started"):
        assert not list(Path("/dev/shm").glob(f"ckpt-reduction-{event['pid']}-*"))


LARGE = (
    HEAD
    + """
    class Pair(R.Body):
        def __init__(self, x, n):
            self.x, self.n = x, n
        def combine(self, other):
            return Pair(self.x + other.x, self.n + other.n)
        def split(self, count):
            return [Pair(self.x[:20_000], self.n), Pair(self.x[20_000:], 0)]
        @classmethod
        def join(cls, parts):
            return cls(np.concatenate([part.x for part in parts]), sum(part.n for part in parts))
        def pack(self):
            return self.x, self.n
        @classmethod
        def unpack(cls, contents):
            return cls(*contents)

    steps, digest, kept = int(sys.argv[1]), hashlib.sha256(), []
    norm = MPI.Op.Create(lambda x, y, _: np.sqrt(x * x + y * y), commute=True)
    x = np.random.default_rng(rank).random(300_000)  # combined by the worker, or by who waits
    long = np.random.default_rng(rank).random(int(sys.argv[2]))
    comm.barrier()
    for step in range(steps):
        while step == steps // 2 and not os.path.exists(os.environ["CKPT_TEST_GO"]):
            sum(range(1000))
        pending = [
            R.allreduce(x * step, copies=2),
            R.reduce(long - step, root=step % size, name="long", parts=1 + step % 4),
            R.allreduce(x + step, op=norm, copies=0),
            R.allreduce(Pair(x[:50_000] * step, rank), parts=1 + step % 2),
        ]
        sum(range(20000))
        results = [f.result() for f in pending]
        assert results[3].n == sum(everybody) and (results[1] is None) == (rank != step % size)
        kept = [*kept[-2:], results[0]]  # what the program has stays, though the memory of what it has let go is used again
        for each in (results[0], results[1] if results[1] is not None else x, results[2], results[3].x):
            digest.update(each.tobytes())
        for each in kept:
            digest.update(each.tobytes())
    print(digest.hexdigest())
"""
)


@pytest.mark.parametrize(
    ("rank", "long"),
    [(1, 160_000), *(pytest.param(rank, 2_200_000, marks=pytest.mark.nightly) for rank in range(3))],
)
def test_what_lies_in_the_hosts_memory_survives_kills_with_the_same_bytes(
    start: Start, tmp_path: Path, rank: int, long: int
) -> None:
    app = write_app(tmp_path, LARGE)
    quiet = start(app, 8, long, ranks=3, every=100, name="quiet")
    assert quiet.finish() == 0, quiet.report()
    job = start(app, 8, long, ranks=3, every=0.2, name="killed")
    for restarts in range(1 if long < 1_000_000 else 3):
        job.wait_event("committed", restarts + 1)
        job.kill_rank(rank)
        job.wait_event("restarting", restarts + 1)
    assert job.finish() == 0, job.report()
    assert [job.output(each) for each in range(3)] == [quiet.output(each) for each in range(3)]
    nothing_is_left_of(job)


ELSEWHERE = (
    HEAD
    + """
    import glob
    x = np.full(100_000, float(rank + 1))
    for step in range(4):
        seen = ckpt.epoch()
        while step == 2 and ckpt.epoch() < seen + 2:  # the second image at the latest is one of after the first calls
            time.sleep(0.001)
        if step == 2 and not ckpt.restarts() and rank == 1:
            for path in glob.glob(f"/dev/shm/ckpt-reduction-{os.getppid()}-calls-*"):
                os.unlink(path)
            os.kill(os.getpid(), 9)
        total = R.allreduce(x * step).result()[0]
    print(total, ckpt.restarts())
"""
)


def test_a_restart_does_not_need_what_lay_in_the_hosts_memory(start: Start, tmp_path: Path) -> None:
    """It is gone on another host, and after a reboot: the table of calls was an open file of the images, so none could be
    loaded there."""
    job = start(write_app(tmp_path, ELSEWHERE), ranks=2, every=0.2)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["9.0 1\n"] * 2, job.report()


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(50))
def test_kills_at_random_moments_give_the_same_bytes(start: Start, tmp_path: Path, number: int) -> None:
    app = write_app(tmp_path, LOOP)
    quiet = start(app, 30, ranks=3, every=100, name="quiet")
    assert quiet.finish() == 0, quiet.report()
    job = start(app, 30, ranks=3, every=0.3, name="killed")
    job.wait_event("committed", 1 + number % 4)
    job.kill_rank(number % 3)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(3)] == [quiet.output(rank) for rank in range(3)]


DEATH = (
    HEAD
    + """
    victims, root, copies = set(map(int, sys.argv[1].split(","))), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(sys.argv[4])
    x, spans = np.full(100000, float(rank + 1)), []
    for step in range(3):
        began = time.perf_counter()
        assert R.allreduce(x, copies=copies).result()[0] == size * (size + 1) / 2
        spans.append(time.perf_counter() - began)
    moments = [chance.random() * spans[-1] for each in range(size)]
    try:
        comm.barrier()
    except MPI.Exception:
        pass  # one was out of it, and is dead already

    def die():
        time.sleep(moments[rank])
        os.kill(os.getpid(), 9)

    if rank in victims:
        threading.Thread(target=die, daemon=True).start()
    options = dict(copies=copies, on_loss="raise")
    f = R.allreduce(x, **options) if root < 0 else R.reduce(x, root=root, **options)
    try:
        result = f.result(100)
        assert f.contributors == everybody, f.contributors
        assert result is None if root not in (-1, rank) else (result == size * (size + 1) / 2).all(), result
        how = "whole"
    except R.ReductionError as error:
        assert set(error.ranks) <= victims, error
        how = type(error).__name__
    if rank in victims:
        time.sleep(1000)
    rest = R.allreduce(x, on_loss="partial")  # the living go on
    assert rest.result(100)[0] == sum(each + 1 for each in rest.contributors), rest.contributors
    assert set(rest.missing) == victims, rest.missing
    print(how)
"""
)


LOSS = (
    HEAD
    + """
    x, total = np.full(100000, float(rank + 1)), 0.0
    for step in range(6):
        while step == 3 and ckpt.epoch() < 1:
            time.sleep(0.001)
        if step == 3 and rank == 1 and not ckpt.restarts():
            os.kill(os.getpid(), 9)
        total += R.allreduce(x, copies=2, on_loss="restart", parts=1 + step % 2).result()[0]
    print(rank, total, ckpt.restarts())
"""
)


def test_a_loss_sends_the_job_back_to_its_last_checkpoint(start: Start, tmp_path: Path) -> None:
    """Rank 1 dies before it calls; under `--on-failure continue` all the same all ranks are there again."""
    job = start(write_app(tmp_path, LOSS), ranks=3, every=0.1, on_failure="continue")
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(3)] == [f"{rank} 36.0 1\n" for rank in range(3)], job.report()
    (lost,) = job.events("reduction-lost")
    assert lost["ranks"] == [1] and lost["rank"] == 0
    assert "what these ranks gave is lost" in job.events("restarting")[0]["reason"]


SEEN = (
    HEAD
    + """
    go = os.environ["CKPT_TEST_GO"]
    x = np.full(100000, float(rank + 1))
    assert R.allreduce(x, copies=2).result()[0] == 10
    if rank == 3:
        R.allreduce(x, copies=2, name="saved")
        while not os.path.exists(go + "-saved"):
            time.sleep(0.001)
        os.kill(os.getpid(), 9)
    if rank == 2:  # the pair of rank 3, whose item waits for it
        channel = R._services[0].channel
        while (rank and "saved" not in str(R.pending())) or not os.path.exists(go):
            time.sleep(0.001)  # rank 3 has called, and the job was asked for its status
        open(go + "-saved", "w").close()
        while not comm.Get_failed().size:
            time.sleep(0.001)
    assert R.allreduce(x, copies=2, name="saved").result()[0] == 10
    assert R.allreduce(x, on_loss="partial").result()[0] == 6
    print("all right")
"""
)


def test_what_is_pending_and_what_deaths_have_done_is_seen(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, SEEN), ranks=4, every=1000, on_failure="continue")
    wanted = "reductions pending: 'saved' waits for ranks 2"
    said = ""
    while wanted not in said:
        assert job.process.poll() is None, job.report()
        said = run_ckpt("status", job.directory).stdout
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(3)] == ["all right\n"] * 3, job.report()
    (saved,) = job.events("reduction-recovered")
    assert (saved["reduction"], saved["ranks"], saved["dead"]) == ("saved", [3], [3])
    (partial,) = job.events("reduction-partial")
    assert partial["missing"] == [3]


UNCALLED = (
    HEAD
    + """
    class Sum(R.Body):
        def __init__(self, x):
            self.x = x
        def combine(self, other):
            return Sum(self.x + other.x)

    go = os.environ["CKPT_TEST_GO"] + "-called"
    body = Sum(np.full(int(sys.argv[1]), float(rank + 1)))
    R.allreduce(np.ones(3)).result()
    if rank == 3:
        R.allreduce(body, name="sum")
        while "waits" in str(R.pending()) or not os.path.exists(go):
            time.sleep(0.001)
        os.kill(os.getpid(), 9)
    if rank == 0:
        while "sum 0" not in R.pending():  # rank 3 has called, and this rank holds a copy
            time.sleep(0.001)
        open(go, "w").close()
        while not R._services[0].members.dead:
            time.sleep(0.001)
        open(go + "-known", "w").close()  # else rank 2 may get the task, and reads what rank 3 has left
        while R._services[0].kept == {}:  # a task with this copy, which has to wait for the class
            time.sleep(0.001)
    if rank in (1, 2):
        while not os.path.exists(go + "-known") or not comm.Get_failed().size:
            time.sleep(0.001)
    assert R.allreduce(body, name="sum").result().x.tolist() == [10.0] * len(body.x)
    print("all right")
"""
)


@pytest.mark.parametrize("long", [10, 20_000])
def test_a_rank_that_has_not_called_yet_gets_a_task_with_a_copy(
    start: Start, tmp_path: Path, long: int
) -> None:
    """Rank 0 holds what the dead rank 3 gave, and is to combine it with that of rank 2."""
    job = start(write_app(tmp_path, UNCALLED), long, ranks=4, every=1000, on_failure="continue")
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(3)] == ["all right\n"] * 3, job.report()


IN_THE_CALL = (
    HEAD
    + """
    from ckpt.reduction.future import Ending
    from ckpt.reduction.messages import End
    from ckpt.reduction.service import Service

    when, victim, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    x = np.full(int(sys.argv[4]), float(rank + 1))
    assert R.allreduce(x, parts=parts).result()[0] == 10
    if rank == victim and when == "called":  # before there is a copy, and before anybody was told
        Service._take_carried = lambda *_: os.kill(os.getpid(), 9)
    if rank == victim and when == "ended":  # it has the result, and nobody else has heard of the end
        plain = Service._send
        Service._send = lambda self, step: None if isinstance(step.message, End) else plain(self, step)
        Ending._end = lambda *_: os.kill(os.getpid(), 9)
    f = R.allreduce(x, parts=parts)
    assert f.result()[-1] == 10 and f.contributors == everybody
    print("whole")
"""
)


@pytest.mark.rotate(2)
@pytest.mark.parametrize(
    ("when", "victim", "parts", "long"),
    [("called", 0, 3, 100_000), ("called", 2, 1, 100), ("ended", 0, 1, 100_000), ("ended", 0, 3, 100_000)],
)
def test_what_a_rank_gave_is_there_if_it_is_killed_in_its_call(
    start: Start, tmp_path: Path, when: str, victim: int, parts: int, long: int
) -> None:
    """Of 100 jobs whose master was killed 10 lost its contribution, most since it used the memory of its original again,
    where the others had their copies, before its word of the end was out."""
    app = write_app(tmp_path, IN_THE_CALL)
    job = start(app, when, victim, parts, long, ranks=4, every=1000, on_failure="continue")
    assert job.finish() == 0, job.report()
    living = [rank for rank in range(4) if rank != victim]
    assert [job.output(rank) for rank in living] == ["whole\n"] * 3, job.report()


def die(
    start: Start, app: Path, number: int, victims: tuple[int, ...], root: int, copies: int, ranks: int
) -> str:
    """One job in which ranks are killed at random moments of a reduction; how it ended, for all that live alike."""
    text = ",".join(map(str, victims))
    name = f"job{number}-{text}-{root}-{copies}"
    job = start(app, text, root, copies, number, ranks=ranks, every=1000, on_failure="continue", name=name)
    assert job.finish(110) == 0, job.report()
    outputs = {job.output(rank) for rank in range(ranks) if rank not in victims}
    assert len(outputs) == 1, job.report()
    return outputs.pop().strip()


CASES = [
    # who dies, the root, copies, ranks
    ((1,), -1, 1, 4),
    ((0,), -1, 1, 4),
    ((0,), 2, 2, 3),
    ((2,), 2, 1, 3),
    ((0, 1), -1, 2, 4),
    ((1, 2), 0, 1, 4),
    ((1,), -1, 0, 3),
]


@pytest.mark.rotate(3)
@pytest.mark.parametrize(("victims", "root", "copies", "ranks"), CASES)
def test_the_living_go_on_after_deaths_and_agree(
    start: Start, tmp_path: Path, victims: tuple[int, ...], root: int, copies: int, ranks: int
) -> None:
    """Rank 1, the master, the root, two at once: the result is right, or all that live have the same error."""
    how = die(start, write_app(tmp_path, DEATH), seed_of_the_commit(), victims, root, copies, ranks)
    assert how in ("whole", "ContributionLost", "RootLost")
    assert how != "RootLost" or root in victims


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_deaths_of_rank_1_at_random_moments(figures: Callable[[str, int], None]) -> None:
    """As in table 2 of the paper, with two copies: forty runs, of which nearly all are whole."""
    found = deaths(seed_of_the_commit() * 40, 40, nbytes=8 << 20)
    figures("reductions whole of 40 with a death", found["whole"])
    assert found["whole"] >= 36, found


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(7))
def test_deaths_of_rank_1_as_in_the_paper(part: int, soaked: Callable[..., None]) -> None:
    """Table 2: 32 MB, seven times 100 runs. The paper lost 11 of 700."""
    found = deaths(100 * part, 100, nbytes=32 << 20)
    assert found["whole"] >= 95, found
    soaked("reductions", 100, whole=found["whole"], ContributionLost=found["ContributionLost"])


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("victim", range(4))
def test_deaths_of_any_rank_over_a_lossy_network(victim: int) -> None:
    env = {"CKPT_FAULTS": f"seed={seed_of_the_commit() % 1000},loss=0.02,dup=0.02"}
    found = deaths(
        seed_of_the_commit() * 10, 10, nbytes=1 << 20, victim=victim, parts=1 + victim % 2 * 2, env=env
    )
    assert found["whole"] + found["ContributionLost"] == 10 and found["whole"] >= 7, found


def test_reductions_over_a_lossy_network_with_a_death(tmp_path: Path) -> None:
    how = death(
        tmp_path,
        seed_of_the_commit(),
        nbytes=1 << 20,
        parts=3,
        env={"CKPT_FAULTS": "seed=1,loss=0.02,dup=0.02"},
    )
    assert how.split()[0] in ("whole", "ContributionLost")
