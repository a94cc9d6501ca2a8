"""★ Starting an agent process: the first thing that `ckpt run` does.

An agent needs longer than anything else to get ready, because it imports what ranks need. So it is started before this
process imports anything itself, arguments' parser included: this module takes only what every interpreter has loaded
already, and the C halves of `subprocess` and `socket`, which are a hundredth of the whole.

    spawn_agent      the process begins to import     Spawned.take       it belongs to a launcher, which ends it
                                                      Spawned.discard    nobody wants it: killed and reaped

Not here: what an agent is told and says (`launch.local`), what it does (`launch.agent`), when (`cli`, `cli_run`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys

import ckpt
from ckpt.controller.errors import LaunchFailed

TYPE_CHECKING = False  # what typing has, without importing it
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DEFAULT_ENTRY = "ckpt.rank.boot:run_rank"
"""What a forked child becomes, module:function."""

MARK = "CKPT_AGENT"
"""The variable that holds a word of every agent's own: what its ranks have started is found by it (`launch.strays`)."""

_HASH_SEED_MAX = 4294967295
_SIGKILL = 9
_STREAMS = 3
"""Descriptors below this one are standard streams."""

# `-c` puts the current directory first on the path, where it could shadow the standard library.
_BOOT = """
import sys
del sys.path[0]
try:
    from ckpt.controller.launch.agent import main
except ModuleNotFoundError:
    sys.path.append(sys.argv.pop())
    from ckpt.controller.launch.agent import main
else:
    del sys.argv[-1]
main()
"""


class AgentProcess:
    """A child process of ours, until it is reaped. `status` as `os.waitstatus_to_exitcode`; None: not reaped."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None

    def wait(self, patience_s: float | None = None) -> int:
        """Reap it; returns `status`. Raises TimeoutError when it does not end in time."""
        if self.status is None:
            if patience_s is not None:
                self._await_end(patience_s)
            try:
                self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:
                self.status = 0  # somebody else has reaped it; how it ended is not known
        return self.status

    def _await_end(self, patience_s: float) -> None:
        import select

        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return  # reaped by somebody else
        try:
            if not select.select([fd], [], [], patience_s)[0]:
                raise TimeoutError(f"process {self.pid} has not ended after {patience_s} s")
        finally:
            os.close(fd)

    def kill(self) -> None:
        """SIGKILL, unless it has been reaped."""
        if self.status is None:
            try:
                os.kill(self.pid, _SIGKILL)
            except ProcessLookupError:
                pass  # reaped by somebody else


class Interpreter:
    """What an agent, and so every rank, runs under: path and options of a Python that has this version of ckpt."""

    __slots__ = ("executable", "options")

    def __init__(self, executable: str, options: Sequence[str] = ()) -> None:
        self.executable = executable
        self.options = tuple(options)

    def saved(self) -> dict[str, Any] | None:
        """For `job.json`; None: the one that runs this command, whichever that is at a restart, without options."""
        if self.executable == sys.executable and not self.options:
            return None
        return {"executable": self.executable, "options": list(self.options)}


class Spawned:
    """An agent that has begun to import, and our end of the socket pair to it.

    One that is not wanted after all ends by itself once the connection is closed. `mark`: the word of its own in its
    environment, and in that of all that it starts.
    """

    def __init__(
        self,
        process: AgentProcess,
        connection: _socket.socket,
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
        self._connection: _socket.socket | None = connection

    def take(self) -> int:
        """The descriptor of the connection, which is the caller's from now on, as is the process."""
        assert self._connection is not None, "taken already"
        connection, self._connection = self._connection, None
        return connection.detach()

    def discard(self) -> None:
        """End it, if nobody has taken it. May be called again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self.process.kill()
            self.process.wait()


def new_hash_seed() -> int:
    """Of a new job, any that PYTHONHASHSEED takes, but 0, which would turn hashing's randomness off."""
    return int.from_bytes(os.urandom(4), "little") % _HASH_SEED_MAX + 1


def spawn_agent(
    *,
    hash_seed: int,
    entry: str = DEFAULT_ENTRY,
    cwd: str | None = None,
    interpreter: Interpreter | None = None,
) -> Spawned:
    """Start an agent with this hash seed, in `cwd` if there is such a directory, else here. Raises LaunchFailed."""
    interpreter = Interpreter(sys.executable) if interpreter is None else interpreter
    ours, theirs = (_above_the_streams(end) for end in _socket.socketpair())
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


def _above_the_streams(end: _socket.socket) -> _socket.socket:
    """The same socket, with another number if it has that of a standard stream that was closed."""
    if end.fileno() >= _STREAMS:
        return end
    import fcntl

    moved = fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, _STREAMS)
    end.close()
    return _socket.socket(fileno=moved)


def _start(
    control_fd: int, environment: dict[str, str], entry: str, cwd: str | None, interpreter: Interpreter
) -> int:
    """Its pid. In a session of its own, with no descriptor of ours but `control_fd`; OSError when it cannot be."""
    executable = interpreter.executable
    command = [executable, *interpreter.options, "-c", _BOOT]
    command += ["--control-fd", str(control_fd), "--entry", entry, _root()]
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        *(((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),) if _is_closed(2) else ()),
        (os.POSIX_SPAWN_DUP2, 2, 1),  # until it belongs to a job; from then on its log
        *((os.POSIX_SPAWN_CLOSE, fd) for fd in _handed_down() if fd != control_fd),
    ]
    if "-u" in interpreter.options:
        environment["PYTHONUNBUFFERED"] = (
            "1"  # which a rank's streams look at: they are made by the rank, not by Python
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
    """Signals that were ignored stay so, as in every program; but SIGCHLD, or no death is noticed. None is blocked."""
    return os.posix_spawn(
        command[0],
        command,
        environment,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=(_signal.SIGCHLD,),
    )


def _handed_down() -> list[int]:
    """Descriptors that every child of ours would get: those that were handed down to us."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if fd >= _STREAMS and os.get_inheritable(fd):
                found.append(fd)
        except OSError:
            continue  # the one that listed the directory
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
    above = environment.get(MARK)  # this job runs inside a rank of another one
    environment[MARK] = (above + ":" if above else "") + mark
    environment["PYTHONHASHSEED"] = str(hash_seed)
    # One computing thread per rank unless the user says otherwise: ranks share the cores, and a sum must
    # not depend on how many cores the machine of a restart has.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.setdefault(name, "1")
    return environment


def _root() -> str:
    """The directory that holds this package, for an agent that would not find it by itself."""
    return os.path.dirname(os.path.dirname(os.path.abspath(ckpt.__file__)))
