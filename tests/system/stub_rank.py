"""A rank without transport and without process images: speaks the control channel, nothing else.

For tests of the controller alone. The program (argv[0]) is executed with ``stub`` in its globals: what it
puts into ``stub.state`` is its image, and ``stub.step(seconds)`` is where it obeys the controller. Images
are written by a forked child through the real store, like a real rank's.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import sys
import time
import traceback
from typing import Any, NoReturn


class Stub:
    def __init__(self, spec: dict[str, Any], control_fd: int) -> None:
        self.spec = spec
        self.rank: int = spec["rank"]
        self.size: int = spec["size"]
        self.argv: list[str] = spec["argv"]
        self.control = socket.socket(fileno=control_fd)
        self.state: dict[str, Any] = {}
        self.epoch: int = spec["epoch"]
        self.children: list[int] = []
        self.connected = False
        self.released = False
        self.vote_delay_s = 0.0  # how long the image child takes
        self.refuse = ""  # a reason: no image now
        self.vectors: dict[str, list[int]] = {str(peer): [0, 0, 0] for peer in range(self.size)}

    def say(self, **packet: Any) -> None:
        self.control.send(json.dumps(packet).encode())

    def where(self) -> str:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"

    def step(self, seconds: float = 0.0) -> None:
        """Obey the controller for this long."""
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, end - time.monotonic())
            if select.select([self.control], [], [], left)[0]:
                data = self.control.recv(1 << 20)
                if not data:
                    os._exit(70)
                self.obey(json.loads(data))
            elif left <= 0:
                break
        self.children = [pid for pid in self.children if os.waitpid(pid, os.WNOHANG) == (0, 0)]

    def hold(self) -> None:
        """Obey the controller until the test lets the job go on (`Job.go`)."""
        go = os.environ.get("CKPT_TEST_GO")
        while go is not None and not os.path.exists(go):
            self.step(0.01)

    def obey(self, packet: dict[str, Any]) -> None:
        match packet["m"]:
            case "table":
                self.connected = True
            case "ask":
                self.say(m="ready", epoch=packet["epoch"])
            case "checkpoint":
                self.image(packet["epoch"])
            case "release":
                self.released = True
            case "stop":
                self.flush()
                os._exit(packet["exit_code"])
            case "status":
                self.say(m="status", where=self.where(), epoch=self.epoch, counters={"retransmissions": 3})

    def image(self, epoch: int) -> None:
        if self.refuse:
            self.say(m="refused", epoch=epoch, reason=self.refuse, where=self.where(), since_ns=0)
            return
        self.flush()
        lengths = [os.fstat(fd).st_size for fd in (1, 2)]
        previous, self.epoch = self.epoch, epoch
        pid = os.fork()
        if pid == 0:
            try:
                self.write_image(previous, epoch, lengths)
            except BaseException as error:
                self.say(m="failed", epoch=epoch, reason=f"{type(error).__name__}: {error}", where="")
            finally:
                os._exit(0)
        self.children.append(pid)
        self.say(m="captured", epoch=epoch, previous=previous, pause_ns=1_500_000, mode="fork")

    def write_image(self, previous: int, epoch: int, lengths: list[int]) -> None:
        from ckpt.store import ImageWriter, JobDirectory

        time.sleep(self.vote_delay_s)
        writer = ImageWriter(
            JobDirectory.open(self.spec["job_dir"]),
            rank=self.rank,
            incarnation=self.spec["incarnation"],
            label=(previous, epoch),
        )
        writer.write(pickle.dumps((self.state, lengths)))
        receipt = writer.finish({})
        self.say(
            m="voted",
            epoch=epoch,
            label=[previous, epoch],
            manifest=receipt.manifest_path,
            digest=receipt.digest,
            bytes_raw=receipt.bytes_raw,
            bytes_written=receipt.bytes_written,
            vectors=self.vectors,
            timings=receipt.timings_ns,
        )

    def load(self) -> None:
        from ckpt.store import ImageReader, JobDirectory

        reader = ImageReader(
            JobDirectory.open(self.spec["job_dir"]), epoch=self.spec["resume"], rank=self.rank
        )
        self.state, lengths = pickle.load(reader.stream())
        for fd, length in zip((1, 2), lengths, strict=True):
            os.ftruncate(fd, length)

    def flush(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()


def run_rank(spec: dict[str, Any], control_fd: int) -> NoReturn:
    stub = Stub(spec, control_fd)
    for fd, stream in ((1, "out"), (2, "err")):
        path = os.path.join(spec["job_dir"], "output", f"rank-{stub.rank}.{stream}")
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(opened, fd)
        os.close(opened)
        if spec["resume"] is None and spec["restarts"]:
            os.ftruncate(fd, 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        if spec["resume"] is not None:
            stub.load()
    except BaseException as error:
        code = getattr(error, "exit_code", 1)
        stub.say(m="error", exit_code=code, traceback=traceback.format_exc())
        os._exit(code)
    stub.say(m="hello", rank=stub.rank, incarnation=spec["incarnation"], pid=os.getpid(), address="nowhere")
    while not stub.connected:
        stub.step(0.01)
    try:
        with open(stub.argv[0], encoding="utf-8") as script:
            exec(compile(script.read(), stub.argv[0], "exec"), {"stub": stub, "__name__": "__main__"})
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
        stub.flush()
        stub.say(m="error", exit_code=1, traceback=traceback.format_exc())
        os._exit(1)
    stub.flush()
    if code:
        stub.say(m="error", exit_code=code, traceback="")
        os._exit(code)
    stub.say(m="finished", exit_code=0)
    while not stub.released:
        stub.step(0.01)
    os._exit(0)
