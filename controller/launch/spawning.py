"""Starting an agent process: the first thing that `ckpt run` does.

An agent needs more time than any other part of the start, because it imports what ranks need. So the command starts the
agent before it imports anything itself, the argument parser included. This module imports only modules that every
interpreter has loaded already, and the C modules below `subprocess` and `socket`, which need a hundredth of the time.

    spawn_agent      the process begins to import     Spawned.take       a launcher takes the agent over, and will end it
                                                      Spawned.discard    no launcher needs the agent: it is killed and reaped

Not here: the packets to and from an agent (`launch.local`), the agent itself (`launch.agent`), the moment of its start
(`ckpt.controller.cli`).
"""

from __future__ import annotations

import os
import sys

import ckpt
from ckpt.compat.accelerators import signal, socket
from ckpt.controller.errors import LaunchFailed

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without importing typing
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ckpt.compat.accelerators import Socket

DEFAULT_ENTRY = "ckpt.rank.boot:run_rank"
"""The entry function of a rank, as module:function."""

MARK = "CKPT_AGENT"
"""The environment variable with a random word for each agent: its ranks' processes are found by it (`launch.strays`)."""

_HASH_SEED_MAX = 4294967295
_SIGKILL = 9
_STREAMS = 3
"""Descriptors below this one are standard streams."""

_BOOT = os.path.join(os.path.dirname(os.path.dirname(__file__)), "boot.py")
"""The script that the process begins with."""


class AgentProcess:
    """The agent as a child process. `status`: as from `os.waitstatus_to_exitcode`; None: it has not been reaped."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None

    def wait(self, patience_s: float | None = None) -> int:
        """Reap the process; returns `status`. Raises TimeoutError when it does not end within `patience_s` seconds."""
        if self.status is None:
            if patience_s is not None:
                self._await_end(patience_s)
            try:
                self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:
                self.status = 0  # other code of this process has reaped it; its status is not known
        return self.status

    def _await_end(self, patience_s: float) -> None:
        import select

        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return  # other code of this process has reaped it
        try:
            if not select.select([fd], [], [], patience_s)[0]:
                raise TimeoutError(f"process {self.pid} has not ended after {patience_s} s")
        finally:
            os.close(fd)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has been reaped."""
        if self.status is None:
            try:
                os.kill(self.pid, _SIGKILL)
            except ProcessLookupError:
                pass  # other code of this process has reaped it


class Interpreter:
    """The interpreter of an agent and of its ranks: path and options of a Python that has this version of ckpt."""

    __slots__ = ("executable", "options")

    def __init__(self, executable: str, options: Sequence[str] = ()) -> None:
        self.executable = executable
        self.options = tuple(options)

    def saved(self) -> dict[str, Any] | None:
        """The interpreter as `job.json` keeps it; None: no options, and the interpreter that runs the command `ckpt`.

        For None, a restart uses the interpreter that runs `ckpt restart`.
        """
        if self.executable == sys.executable and not self.options:
            return None
        return {"executable": self.executable, "options": list(self.options)}


class Spawned:
    """An agent that has begun to import, and this process's end of the socket pair to the agent.

    An agent ends by itself when the connection is closed before it was taken. `mark`: the agent's word in its environment
    (`MARK`) and in the environment of all processes that it starts.
    """

    def __init__(
        self,
        process: AgentProcess,
        connection: Socket,
        *,
        mark: str,
        hash_seed: int,
        entry: str,
        interpreter: Interpreter,
    ) -> None:
        self.process = process
        self.mark = mark
        self.hash_seed = hash_seed
        self.entry = entry
        self.interpreter = interpreter
        self._connection: Socket | None = connection

    def take(self) -> int:
        """The descriptor of the connection. Descriptor and process belong to the caller from now on."""
        assert self._connection is not None, "taken already"
        connection, self._connection = self._connection, None
        return connection.detach()

    def discard(self) -> None:
        """End the agent, unless it has been taken. Further calls do nothing."""
        if self._connection is not None:
            self.process.kill()  # before the connection is closed: an agent that sees that ends by itself, with status 0
            self._connection.close()
            self._connection = None
            self.process.wait()


def new_hash_seed() -> int:
    """The hash seed for a new job: the user's, if PYTHONHASHSEED has one: sets of strings iterate as in plain Python then.
    Else one from 1 to 4294967295, as PYTHONHASHSEED allows; 0, which only a user asks for, turns hash randomization off."""
    asked = os.environ.get("PYTHONHASHSEED", "")
    if asked.isdecimal() and int(asked) <= _HASH_SEED_MAX:
        return int(asked)
    return int.from_bytes(os.urandom(4), "little") % _HASH_SEED_MAX + 1


def spawn_agent(
    *,
    hash_seed: int,
    entry: str = DEFAULT_ENTRY,
    cwd: str | None = None,
    interpreter: Interpreter | None = None,
) -> Spawned:
    """Start an agent with this hash seed. Raises LaunchFailed.

    The agent starts in the directory `cwd` if that exists, else in the present one.
    """
    interpreter = Interpreter(sys.executable) if interpreter is None else interpreter
    ours, theirs = (_above_the_streams(end) for end in socket.socketpair())
    mark = os.urandom(8).hex()
    try:
        os.set_inheritable(theirs.fileno(), True)
        process = AgentProcess(
            _start(theirs.fileno(), _environment(hash_seed, mark), entry, cwd, interpreter)
        )
    except OSError as error:
        ours.close()
        raise LaunchFailed(f"the agent cannot be started: {error}") from error
    finally:
        theirs.close()
    return Spawned(process, ours, mark=mark, hash_seed=hash_seed, entry=entry, interpreter=interpreter)


def _above_the_streams(end: Socket) -> Socket:
    """Give the socket a higher descriptor if its own is that of a standard stream that was closed."""
    if end.fileno() >= _STREAMS:
        return end
    import fcntl

    moved = fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, _STREAMS)
    end.close()
    return socket.socket(fileno=moved)


def _start(
    control_fd: int, environment: dict[str, str], entry: str, cwd: str | None, interpreter: Interpreter
) -> int:
    """Start the agent in a session of its own, with no descriptor but `control_fd` and standard streams; returns its pid.

    Raises OSError.
    """
    executable = interpreter.executable
    command = [executable, *interpreter.options, _BOOT]
    command += ["--control-fd", str(control_fd), "--entry", entry, _root()]
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        *(((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),) if _is_closed(2) else ()),
        (os.POSIX_SPAWN_DUP2, 2, 1),  # until the agent opens the job's log
        *((os.POSIX_SPAWN_CLOSE, fd) for fd in _handed_down() if fd != control_fd),
    ]
    if "-u" in interpreter.options:
        environment["PYTHONUNBUFFERED"] = (
            "1"  # a rank makes its standard streams itself, and looks at this variable
        )
    if cwd is None or not os.path.isdir(cwd):
        return _spawn(command, environment, actions)
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(cwd)
        return _spawn(command, environment, actions)
    finally:
        os.fchdir(here)
        os.close(here)


def _spawn(command: list[str], environment: dict[str, str], actions: list[tuple[Any, ...]]) -> int:
    """Start the process; returns its pid. No signal is blocked.

    Ignored signals stay ignored, as in every program, except SIGCHLD: else no death of a child would be noticed.
    """
    return os.posix_spawn(
        command[0],
        command,
        environment,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGCHLD,),
    )


def _handed_down() -> list[int]:
    """Inheritable descriptors of this process, which every child would get: this process has inherited them itself."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if fd >= _STREAMS and os.get_inheritable(fd):
                found.append(fd)
        except OSError:
            continue  # the descriptor that listdir has used, closed by now
    limit = os.sysconf("SC_OPEN_MAX")
    for fd in found:
        if 0 <= limit <= fd:  # opened before the limit was lowered: posix_spawn refuses to name it
            os.set_inheritable(fd, False)
    return [fd for fd in found if not 0 <= limit <= fd]


def _is_closed(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return True
    return False


def _environment(hash_seed: int, mark: str) -> dict[str, str]:
    environment = dict(os.environ)
    above = environment.get(MARK)  # set if this job runs inside a rank of another job
    environment[MARK] = (above + ":" if above else "") + mark
    environment["PYTHONHASHSEED"] = str(hash_seed)
    # One computing thread per rank unless the user says otherwise: ranks share the cores, and a sum must
    # not depend on how many cores the machine of a restart has.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.setdefault(name, "1")
    return environment


def _root() -> str:
    """The directory that holds this package, for an agent that does not find the package on its own path."""
    return os.path.dirname(os.path.dirname(os.path.abspath(ckpt.__file__)))
