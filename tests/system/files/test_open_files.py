"""Files that a program keeps open over restarts, or opens, locks and closes while images are taken: whoever opened them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_ready import run_killed
from tests.system.libraries.test_ready_science import needs
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

UNTIL = """
    import os
    def committed():
        with open(os.environ["CKPT_JOB"] + "/events.jsonl") as events:
            return events.read().count('"committed"')
"""


def killed(start: Start, app: Path, kills: int, *, every: float = 0.1) -> Job:
    """The job, its only rank killed that often, each time behind one more line. It ends when the test lets it go on."""
    job = start(app, ranks=1, every=every)
    for kill in range(1, kills + 1):
        job.wait_event("committed", count=len(job.events("committed")) + 2)
        job.kill_rank(0)
        job.wait_event("restarted", count=kill)
    job.wait_event("committed", count=len(job.events("committed")) + 2)
    assert job.finish() == 0, job.report()
    return job


HELD = """
    import os, time
    def held():
        time.sleep(0.001)
        return not os.path.exists(os.environ["CKPT_TEST_GO"])
"""


def test_a_file_that_is_gone_for_all_ranks_is_told_once(start: Start, tmp_path: Path) -> None:
    """Each rank printed it. Another rank's other reason is told, too, if there is time for it."""
    app = write_app(
        tmp_path,
        """
        import os, signal, time
        import ckpt
        comm = ckpt.enable()
        with open("x" if comm.rank else "y", "rb") as file:
            ckpt.checkpoint()
            if comm.rank == 0:
                while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
                    time.sleep(0.002)
                os.kill(os.getpid(), signal.SIGKILL)
            comm.barrier()
        """,
    )
    for name in "xy":
        (tmp_path / name).write_bytes(bytes(2 << 20))  # smaller ones are in images
    job = start(app, ranks=4, files="off", max_restarts=0)
    assert job.finish() == 14, job.report()
    for name in "xy":
        (tmp_path / name).unlink()
    done = run_ckpt("restart", job.directory)
    assert done.returncode == 12, done.stderr
    told = [done.stderr.count(f"the file '{tmp_path}/{name}', which the program had open") for name in "xy"]
    assert set(told) <= {0, 1} and any(told), done.stderr


@needs("h5py")
def test_hdf5_files_kept_open_over_restarts_have_all_that_was_written(start: Start, tmp_path: Path) -> None:
    """A file with its data sets, one that only a data set holds, one opened twice, one of the latest format."""
    import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]

    text = (
        HELD
        + """
    import h5py
    import ckpt
    ckpt.enable()
    names = ("plain.h5", "held.h5", "twice.h5", "latest.h5")
    plain, held_by, twice = (h5py.File(name, "w", locking=True) for name in names[:3])
    latest = h5py.File(names[3], "w", libver="latest")
    files = [plain, held_by, twice, latest]
    sets = [file.create_dataset("frames", (0, 50), "i8", maxshape=(None, 50), chunks=(1, 50)) for file in files]
    again = h5py.File("twice.h5", "r+", locking=True)
    notes = again.create_dataset("notes", (1,), "i8")
    attributes = plain["frames"].attrs
    del held_by, files[1]
    step = 0
    while held() or step < 50:
        for each in sets:
            each.resize(step + 1, 0)
            each[step] = step + 1
        notes[0] = attributes["steps"] = step = step + 1
    print(step, *(int(each[:, 0].sum()) for each in sets))
    sets[1].file.close()
    for each in (again, *files):
        each.close()
    """
    )
    job = killed(start, write_app(tmp_path, text), 3)
    steps, *sums = map(int, job.output(0).split())
    assert sums == [steps * (steps + 1) // 2] * 4, job.report()
    for name in ("plain.h5", "held.h5", "twice.h5", "latest.h5"):
        with h5py.File(tmp_path / name) as file:
            assert file["frames"][:].tolist() == [[n] * 50 for n in range(1, steps + 1)], name
            assert "notes" not in file or file["notes"][0] == steps
            assert "steps" not in file["frames"].attrs or file["frames"].attrs["steps"] == steps
    assert "Exception ignored" not in job.stderr


@needs("netCDF4")
def test_netcdf_files_kept_open_over_restarts_have_all_that_was_written(start: Start, tmp_path: Path) -> None:
    import netCDF4  # type: ignore[import-not-found, import-untyped, unused-ignore]

    text = (
        HELD
        + """
    import netCDF4
    import ckpt
    ckpt.enable()
    stores = [netCDF4.Dataset(f"{kind}.nc", "w", format=kind) for kind in ("NETCDF4", "NETCDF3_64BIT_OFFSET")]
    for store in stores:
        store.createDimension("time", None)
    rows = [store.createVariable("rows", "i4", ("time",)) for store in stores]
    step = 0
    while held() or step < 50:
        for each in rows:
            each[step] = step + 1
        step += 1
    print(step)
    for store in stores:
        store.close()
    """
    )
    job = killed(start, write_app(tmp_path, text), 2)
    for kind in ("NETCDF4", "NETCDF3_64BIT_OFFSET"):
        with netCDF4.Dataset(tmp_path / f"{kind}.nc") as store:
            assert store["rows"][:].tolist() == [*range(1, int(job.output(0)) + 1)], kind


@needs("h5py", "filelock")
def test_files_opened_locked_and_closed_while_images_are_written(start: Start, tmp_path: Path) -> None:
    """A program is rid of a lock when it has closed its file, whatever a child that writes an image has open."""
    text = (
        UNTIL
        + """
    import fcntl, h5py, filelock
    import ckpt
    ckpt.enable()
    lock = filelock.FileLock("lock", timeout=0)
    step = 0
    while committed() < 12:
        with h5py.File("steps.h5", "a", locking=True) as file:
            file.attrs["step"] = step = step + 1
            with lock, open("flocked", "a") as flocked:
                fcntl.flock(flocked, fcntl.LOCK_EX | fcntl.LOCK_NB)
                total = sum(range(2000))
    print("through")
    """
    )
    job = start(write_app(tmp_path, text), ranks=1, every=0.02)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "through\n"


@needs("filelock")
def test_a_lock_that_is_held_over_a_restart_is_held(start: Start, tmp_path: Path) -> None:
    job = run_killed(
        start,
        tmp_path,
        """
        import subprocess, sys
        import filelock
        import ckpt
        from tools import die_once
        ckpt.enable()
        ASK = "import filelock; filelock.FileLock('lock').acquire(timeout=0)"
        def is_free():
            return subprocess.run([sys.executable, "-c", ASK], capture_output=True).returncode == 0
        with filelock.FileLock("lock") as lock:
            ckpt.checkpoint()
            die_once()
            print(lock.is_locked, is_free())
        print(lock.is_locked, is_free())
        """,
    )
    assert job.output(0) == "True False\nFalse True\n"


def test_output_put_into_a_log_with_dup2_comes_back_line_by_line(start: Start, tmp_path: Path) -> None:
    """Of a program that is killed twice: every line once, in the file where it belongs."""
    text = (
        HELD
        + """
    import os, sys
    import ckpt
    ckpt.enable()
    print("begin", flush=True)
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    kept = os.dup(1)
    os.dup2(log, 1)
    step = 0
    while held() or step < 50:
        print("step", step)
        if step % 5 == 0:
            os.write(kept, b"beside %d\\n" % step)
        step += 1
    print("steps", step, flush=True)
    os.dup2(kept, 1)
    print("end", step, flush=True)
    """
    )
    job = killed(start, write_app(tmp_path, text), 2)
    lines = job.output(0).splitlines()
    steps = int(lines[-1].split()[1])
    assert lines == ["begin", *(f"beside {n}" for n in range(0, steps, 5)), f"end {steps}"]
    assert (tmp_path / "log.txt").read_text().splitlines() == [
        *(f"step {n}" for n in range(steps)),
        f"steps {steps}",
    ]


def test_a_large_file_that_is_gone_is_named_with_rank_and_remedy(start: Start, tmp_path: Path) -> None:
    """Of the input, not of the image, which is whole. (With --files auto it would be put back.)"""
    app = write_app(
        tmp_path,
        """
        import os, signal, time
        import ckpt
        ckpt.enable()
        with open("input", "wb") as file:
            file.truncate(2 << 20)
        with open("input", "rb") as file:
            file.read(1000)
            ckpt.checkpoint()
            while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
                time.sleep(0.002)
            if ckpt.restarts() == 0:
                os.remove("input")
                os.kill(os.getpid(), signal.SIGKILL)
            print(len(file.read()), os.path.exists("input"))
        """,
    )
    job = start(app, ranks=1, files="off")
    assert job.finish() == 0, job.report()
    said = " ".join(job.stderr.split())
    assert (
        "rank 0 cannot go on from epoch 1, and there is no other checkpoint, trying the start of the program: module"
        in said
    )
    assert (
        f"variable 'file': the file '{tmp_path}/input', which the program had open for reading when the"
        in said
    )
    assert (
        "No such file or directory. Put it back, and run `ckpt restart" in said
        and "cannot be read" not in said
    )
    assert job.output(0) == f"{(2 << 20) - 1000} True\n"


@needs("h5py")
def test_an_image_inside_the_lock_of_h5py_holds_it_again(start: Start, tmp_path: Path) -> None:
    """`with phil:` is around everything that h5py does, twice often."""
    job = run_killed(
        start,
        tmp_path,
        """
        from h5py._objects import phil
        import ckpt
        from tools import die_once
        ckpt.enable()
        with phil:
            with phil:
                ckpt.checkpoint()
                die_once()
            print(phil._is_owned())
        print(phil._is_owned())
        """,
    )
    assert job.output(0) == "True\nFalse\n"


def test_event_numbers_of_the_program_are_no_other_file_and_those_of_the_library_no_loss(
    start: Start, tmp_path: Path
) -> None:
    """An eventfd that does not block and an event poll looked like the port's: their numbers were given away again."""
    text = (
        HELD
        + """
    import ctypes, errno
    import ckpt
    comm = ckpt.enable()
    other = 1 - comm.rank
    quiet = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    poll = ctypes.CDLL(None).epoll_create1(0)
    payload = bytes(1 << 20)
    while comm.allreduce(int(held())):
        request = comm.isend(payload, other)
        assert comm.recv(source=other) == payload
        request.wait()
    later = {os.open(os.devnull, os.O_RDONLY) for _ in range(20)}
    said = []
    for number in (quiet, poll):
        try:
            os.write(number, b"lost!!!!")
        except OSError as failure:
            said.append(errno.errorcode[failure.errno])
    kept = [name for name in os.listdir("/proc/self/fd") if int(name) not in later | {0}]
    lost = 0
    for name in kept:
        try:
            with open(f"/proc/self/fdinfo/{name}") as info:
                lost += bool(int(info.read().split("flags:")[1].split()[0], 8) & os.O_PATH)
        except OSError:
            continue
    print(said, lost)
    """
    )
    job = start(write_app(tmp_path, text), ranks=2, every=0.1)
    for kill in (1, 2):
        job.wait_event("committed", count=len(job.events("committed")) + 2)
        job.kill_rank(0)
        job.wait_event("restarted", count=kill)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["['EBADF', 'EBADF'] 2\n"] * 2


def test_a_file_that_never_had_a_name_may_be_given_one_after_a_restart(start: Start, tmp_path: Path) -> None:
    """linkat(2) found no such file, since it had been made again with a name, which was removed."""
    job = run_killed(
        start,
        tmp_path,
        """
        import os, stat
        import ckpt
        from tools import die_once
        ckpt.enable()
        def nameless(access):
            return os.open(".", os.O_TMPFILE | access, 0o640)
        def link(fd, name):
            os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=0, follow_symlinks=True)
        later, named = nameless(os.O_RDWR), nameless(os.O_WRONLY)
        os.write(later, b"then,")
        os.write(named, b"then,")
        link(named, "named")
        ckpt.checkpoint()
        die_once()
        os.write(later, b"now")
        os.write(named, b"now")
        link(later, "later")
        print(open("later").read(), oct(stat.S_IMODE(os.stat("later").st_mode)), open("named").read())
        """,
    )
    assert job.output(0) == "then,now 0o640 then,now\n"


def test_what_is_written_to_a_file_gets_to_the_name_that_is_left(start: Start, tmp_path: Path) -> None:
    """It was written to a copy without a name, and nobody was told."""
    job = run_killed(
        start,
        tmp_path,
        """
        import os
        import ckpt
        from tools import die_once
        ckpt.enable()
        file, odd = open("first", "w"), open("odd (deleted)", "w")
        os.link("first", "second")
        os.unlink("first")
        for each in file, odd:
            print("then,", end="", file=each, flush=True)
        ckpt.checkpoint()
        for each in file, odd:
            print("now", end="", file=each, flush=True)
        die_once()
        print(open("second").read(), open("odd (deleted)").read(), os.path.exists("first"))
        """,
    )
    assert job.output(0) == "then,now then,now False\n"


def test_numbers_of_devices_are_no_other_files_after_a_restart(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    """The number of a device was free after a restart: the next file that was opened was read as random bytes."""
    app = write_app(
        tmp_path,
        """
    import os, time
    numbers = [os.open(f"/dev/{name}", os.O_RDONLY) for name in ("urandom", "random", "zero", "full")]
    other = os.open("/dev/tty0", os.O_PATH) if os.path.exists("/dev/tty0") else os.open("/dev/kmsg", os.O_PATH)
    with open("data.txt", "w") as file:
        file.write("A" * 1000)
    while os.environ["CKPT_RESTARTS"] == "0":
        time.sleep(0.001)
    with open("data.txt", "rb", buffering=0) as file:
        print(*(os.read(number, 8) == b"A" * 8 for number in numbers), os.read(numbers[2], 2), file.fileno() == other)
    """,
    )
    job = start(app, ranks=1, every=0.2)
    job.wait_event("committed")
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "False False False False b'\\x00\\x00' False\n"


def test_a_pseudo_terminal_is_refused_by_name(tmp_path: Path, start: Callable[..., Job]) -> None:
    """Its numbers were closed after a restart."""
    app = write_app(
        tmp_path,
        """
    import os, time
    ours, theirs = os.openpty()
    while True:
        time.sleep(0.01)
    """,
    )
    job = start(app, ranks=1, every=0.2)
    assert "a pseudo-terminal" in job.wait_event("failed")["reason"], job.report()


def test_watches_of_files_are_refused_by_name(tmp_path: Path, start: Callable[..., Job]) -> None:
    """Their number was closed after a restart, and an observer of watchdog heard of no change any more."""
    app = write_app(
        tmp_path,
        """
    import ctypes, time
    assert ctypes.CDLL(None).inotify_init() >= 0
    while True:
        time.sleep(0.01)
    """,
    )
    job = start(app, ranks=1, every=0.2)
    assert "inotify" in job.wait_event("failed")["reason"], job.report()
