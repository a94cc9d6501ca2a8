"""Who does not belong to the job: refused, said, counted, and the job unharmed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire
from tests.system.apps import RING
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]
NOBODY = 65534


def sockets_of_ranks(job: Job) -> list[Path]:
    directory = job.runtime_directory()
    return sorted(path for path in directory.iterdir() if path.name.startswith("r") and path.is_socket())


def running_ring(start: Start, tmp_path: Path, name: str = "job") -> Job:
    job = start(write_app(tmp_path, RING), 600, 0.001, ranks=2, every=0.3, name=name)
    job.wait_event("committed", 1)
    return job


# ---------------------------------------------------------------------- strangers on the ranks' sockets


def raw_noise(path: Path) -> None:
    """Bytes that are no ZMTP, and a greeting that claims to need no authentication."""
    for noise in (b"GET / HTTP/1.1\r\n\r\n" * 50, b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as knocker, contextlib.suppress(OSError):
            knocker.connect(str(path))
            knocker.sendall(noise)
            knocker.settimeout(0.2)
            knocker.recv(64)


def test_strangers_are_refused_counted_and_the_job_ends_as_it_would_have(
    start: Start, tmp_path: Path
) -> None:
    undisturbed = start(write_app(tmp_path, RING), 600, 0.001, ranks=2, name="undisturbed")
    assert undisturbed.finish() == 0
    job = running_ring(start, tmp_path)
    strangers = [
        ZmqWire(f"ipc://{tmp_path}/other", curve=CurveKeys.from_secret(b"the key of another job")),
        ZmqWire(f"ipc://{tmp_path}/plain"),
    ]
    try:
        until = time.monotonic() + 1
        for path in sockets_of_ranks(job):
            for index, stranger in enumerate(strangers):
                stranger.connect(index, f"ipc://{path}")
            raw_noise(path)
        while time.monotonic() < until:
            for stranger in strangers:
                for index in (0, 1):
                    with contextlib.suppress(Exception):
                        stranger.send(index, (b"x" * 1000,))
            time.sleep(0.01)
        told = json.loads(run_ckpt("status", job.directory, "--json").stdout)
        assert "handshakes_refused" in json.dumps(told)
    finally:
        for stranger in strangers:
            stranger.close()
    refused = job.wait_event("handshakes-refused")
    assert refused["count"] >= 1
    assert job.finish() == 0, job.report()
    assert job.output(0) == undisturbed.output(0)


class Tap:
    """Stands between a client and a server's Unix socket, passes everything on and keeps what the client said."""

    def __init__(self, path: Path, server: Path) -> None:
        self.heard: list[bytes] = []
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._server))
        while True:
            for ready in select.select([client, server], [], [])[0]:
                data = ready.recv(1 << 16)
                if not data:
                    return
                if ready is client:
                    self.heard.append(data)
                (server if ready is client else client).sendall(data)


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[ZmqWire]:
    wire = ZmqWire(f"ipc://{tmp_path}/inside", curve=CurveKeys.from_secret(b"job"))
    yield wire
    wire.close()


def first_frame(wire: ZmqWire, patience_s: float) -> object:
    until = time.monotonic() + patience_s
    frame = None
    while frame is None and time.monotonic() < until:
        frame = wire.receive()
        time.sleep(0.001)
    return frame


def test_a_recorded_handshake_and_its_frames_are_worth_nothing_later(inside: ZmqWire, tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", tmp_path / "inside")
    friend = ZmqWire(f"ipc://{tmp_path}/friend", curve=CurveKeys.from_secret(b"job"))
    try:
        friend.connect(0, f"ipc://{tmp_path}/tap")
        until = time.monotonic() + 10
        while not friend.send(0, (b"pay the bearer",)) and time.monotonic() < until:
            time.sleep(0.001)
        assert first_frame(inside, 10) == (b"pay the bearer",)
    finally:
        friend.close()
    recorded = b"".join(tap.heard)
    assert b"pay the bearer" not in recorded, "it travelled in the clear"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as replayer:
        replayer.connect(str(tmp_path / "inside"))
        with contextlib.suppress(OSError):
            replayer.sendall(recorded)
        assert first_frame(inside, 0.5) is None
    assert inside.counters()["handshakes_refused"] >= 1


# ---------------------------------------------------------------------- another user of the machine


def as_nobody(work: Callable[[], str]) -> str:
    """What `work` returns in a process of another user."""
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(write_fd, work().encode())
        finally:
            os._exit(0)
    os.close(write_fd)
    with open(read_fd, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_can_neither_read_nor_connect_nor_kill(start: Start, tmp_path: Path) -> None:
    job = running_ring(start, tmp_path)
    for parent in (tmp_path, *tmp_path.parents):
        if parent != Path("/") and parent.stat().st_mode & 0o001 == 0:
            if parent == Path("/tmp"):
                break
            parent.chmod(parent.stat().st_mode | 0o011)  # the job directory itself has to keep others out
    runtime = job.runtime_directory()
    names = [path.name for path in runtime.iterdir()]
    pids = [job.pid(0), job.pid(1), job.process.pid]

    def intrude() -> str:
        done = []

        def attempt(what: str, work: Callable[[], object]) -> None:
            try:
                work()
            except PermissionError:
                return
            except OSError as error:
                done.append(f"{what}: {error}")
                return
            done.append(what)

        attempt("list the job", lambda: os.listdir(job.directory))
        attempt("list its sockets", lambda: os.listdir(runtime))
        for name in ("key", "job.json", "events.jsonl", "control", "images", "output"):
            attempt(f"open {name}", lambda name=name: os.open(job.directory / name, os.O_RDONLY))
        for name in names:
            peer = socket.socket(socket.AF_UNIX)
            attempt(f"connect to {name}", lambda peer=peer, name=name: peer.connect(str(runtime / name)))
        for pid in pids:
            attempt(f"kill {pid}", lambda pid=pid: os.kill(pid, signal.SIGKILL))
            attempt(f"read memory of {pid}", lambda pid=pid: os.open(f"/proc/{pid}/mem", os.O_RDONLY))
        attempt("write into the job", lambda: os.open(job.directory / "new", os.O_CREAT | os.O_WRONLY))
        return "; ".join(done) or "nothing"

    assert as_nobody(intrude) == "nothing"
    assert job.finish() == 0, job.report()


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_everything_of_a_job_belongs_to_its_owner_alone(start: Start, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        job = running_ring(start, tmp_path)
    finally:
        os.umask(before)
    runtime = job.runtime_directory()
    job.kill_rank(1)
    job.wait_event("restarted")
    open_to_others = [
        f"{path} {stat.filemode(path.lstat().st_mode)}"
        for root in (job.directory, runtime)
        for path in (root, *root.rglob("*"))
        if not path.is_symlink()
        and (path.lstat().st_mode & 0o077 or path.lstat().st_uid != os.geteuid())
        # a socket's own mode matters less than that of its directory, which keeps others out
        and not path.is_socket()
    ]
    assert open_to_others == []
    assert stat.S_IMODE((job.directory / "key").stat().st_mode) == 0o600
    assert job.finish() == 0, job.report()


# ---------------------------------------------------------------------- images that are not ours


def test_an_image_of_another_job_is_refused_by_name_and_nothing_changes(start: Start, tmp_path: Path) -> None:
    jobs = [running_ring(start, tmp_path, name) for name in ("one", "two")]
    for job in jobs:
        done = run_ckpt("checkpoint", job.directory, "--stop")
        assert done.returncode == 0, done.stderr
        assert job.finish() == 75
    one, two = (job.directory for job in jobs)
    victim = max((one / "images").rglob("*.json"))
    donor = max((two / "images").rglob("*.json"))
    mine = victim.read_bytes()
    victim.chmod(0o600)
    victim.write_bytes(donor.read_bytes())
    verified = run_ckpt("verify", one)
    assert verified.returncode in (3, 12) and victim.name in verified.stdout + verified.stderr
    victim.write_bytes(mine)
    assert run_ckpt("verify", one).returncode == 0
    assert run_ckpt("restart", one, timeout_s=120).returncode == 0
