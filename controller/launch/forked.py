"""One rank as its agent sees it: a process that the agent has forked, on the other end of a packet socket.

`fork_rank` makes the pair of sockets and the process. The child never returns from `fork_rank`: it raises SystemExit, which
passes through all frames of the agent. The parent keeps a `ForkedRank`: the identity of the process (pid with start time,
pidfd), its exit code if it has reported one, and the packets that the socket's buffer could not take yet (a rank that hangs
in C does not read, and the agent does not wait for it).

A rank begins as the leader of its own process group, so that its image children can be killed with it. The kernel sends it
SIGKILL when the agent dies. Before the entry function runs, the child closes everything that belongs to the agent.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import importlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, Final, NoReturn

from ckpt.controller.launch import procinfo
from ckpt.controller.supervision import messages

Entry = Callable[[dict[str, Any], int], NoReturn]

WHERE_SIGNAL: Final = signal.SIGRTMAX - 1
"""A rank answers this signal: it writes its main thread's stack to `where_path`."""

BUFFER_BYTES: Final = 1 << 20
_EXIT_NEVER_BECAME_A_RANK: Final = 70


class ForkedRank:
    """One forked rank, alive or just reaped. `status`: as from `os.waitstatus_to_exitcode`; None: the rank is alive."""

    def __init__(self, rank: int, incarnation: int, pid: int, control: socket.socket) -> None:
        self.rank = rank
        self.incarnation = incarnation
        self.pid = pid
        self.ticks = procinfo.start_ticks(pid) or 0
        self.pidfd = os.pidfd_open(pid)
        self.control = control
        self.outbox: collections.deque[bytes] = collections.deque()
        self.finished: int | None = None
        self.failed: int | None = None
        self.status: int | None = None
        self.is_late = self.may_fail = False
        """It was started later, by the program; and it is not there yet: what it fails at concerns who has asked for it."""
        self.token = ""  # of the request that it was started for

    @property
    def is_alive(self) -> bool:
        return self.status is None

    def describe(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "incarnation": self.incarnation,
            "pid": self.pid,
            "start_ticks": self.ticks,
            "alive": self.is_alive,
            "finished": self.finished,
        }

    def kill(self, number: int) -> None:
        """Send a signal to exactly this process, also after it has called `setpgid` or `setsid`."""
        with contextlib.suppress(OSError):  # the process has ended, and is about to be reaped
            signal.pidfd_send_signal(self.pidfd, number)

    def pass_on(self, number: int) -> None:
        """Send a signal as a shell does: SIGSTOP and SIGCONT go to the whole process group."""
        self.kill(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    def send(self, data: bytes) -> None:
        """Queue one packet, and write as much of the queue as the socket takes now."""
        self.outbox.append(data)
        self.flush()

    def flush(self) -> None:
        try:
            while self.outbox:
                self.control.send(self.outbox[0])
                self.outbox.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.outbox.clear()  # the rank is dying; its pidfd becomes readable

    def receive(self, buffer: bytearray) -> bytes | None:
        """One packet; None: no packet has come; empty: the rank has closed its end (the pidfd reports its death)."""
        try:
            size = self.control.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError:
            size = 0
        return bytes(memoryview(buffer)[:size])

    def note(self, packet: messages.Packet) -> None:
        """Remember the exit code that the rank reports: the module `alone` needs it."""
        if packet["m"] == "finished":
            self.finished = packet["exit_code"]
        elif packet["m"] == "hello":
            self.may_fail = False
        elif packet["m"] == "error" and not self.may_fail:
            self.failed = packet["exit_code"]

    def close(self) -> None:
        self.control.close()
        os.close(self.pidfd)


def load_entry(name: str) -> Entry:
    """Import ``module:function``, and call the module's function `preload`, if there is one, to import what ranks need."""
    module_name, _, function = name.partition(":")
    module = importlib.import_module(module_name)
    preload = getattr(module, "preload", None)
    if preload is not None:
        preload()
    entry: Entry = getattr(module, function)
    return entry


def where_path(runtime_dir: str, rank: int) -> str:
    """The file into which a rank writes its stack when it gets `WHERE_SIGNAL`."""
    return os.path.join(runtime_dir, f"where-{rank}")


def fork_rank(spec: dict[str, Any], entry: Entry, drop: Callable[[], None]) -> ForkedRank:
    """Fork one rank. `drop` is called in the child: it closes everything that belongs to the agent."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    agent_pid = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _become_rank(spec, entry, theirs.detach(), agent_pid, drop, mask)
        except SystemExit:
            raise  # the rank has ended in good order; its interpreter finalizes
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(_EXIT_NEVER_BECAME_A_RANK)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    theirs.close()
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # parent and child both do this, so neither has to wait
    ours.setblocking(False)
    rank = ForkedRank(spec["rank"], spec["incarnation"], pid, ours)
    rank.is_late = rank.may_fail = "parent" in spec
    rank.token = spec.get("parent", {}).get("token", "")
    return rank


def _become_rank(
    spec: dict[str, Any],
    entry: Entry,
    control_fd: int,
    agent_pid: int,
    drop: Callable[[], None],
    mask: set[int | signal.Signals],
) -> NoReturn:
    """``mask``: the agent's, in force again once the rank no longer ignores what the agent ignores: a signal to the job that
    comes before is not lost."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    procinfo.die_with_parent(agent_pid)
    drop()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _answer_where(spec)
    entry(spec, control_fd)


def _answer_where(spec: dict[str, Any]) -> None:
    """Let the rank write its stack even while C code keeps the interpreter lock: faulthandler's handler is written in C."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    fd = os.open(where_path(spec["runtime_dir"], spec["rank"]), flags, 0o600)
    faulthandler.register(WHERE_SIGNAL, file=fd, all_threads=False, chain=False)
