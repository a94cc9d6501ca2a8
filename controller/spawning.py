"""★ Starting an agent process: the first thing that `ckpt run` does.

An agent needs longer than anything else to get ready, because it imports what ranks need. So it is started before this
process imports what it needs itself, and nothing is imported here that could wait.

Not here: what an agent is told and says (`launch.local`), what it does (`launch.agent`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from controller.errors import LaunchFailed

DEFAULT_ENTRY = "ckpt.boot:run_rank"
"""What a forked child becomes, module:function."""

# `-c` puts the current directory first on the path, where it could shadow the standard library.
_BOOT = """
import sys
del sys.path[0]
try:
    from controller.launch.agent import main
except ModuleNotFoundError:
    sys.path.append(sys.argv.pop())
    from controller.launch.agent import main
else:
    del sys.argv[-1]
main()
"""


class Spawned:
    """An agent that has begun to import, and our end of the socket pair to it, not blocking.

    One that is not wanted after all ends by itself once `connection` is closed.
    """

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self.process = process
        self.connection = connection


def spawn_agent(*, cwd: str, hash_seed: int, entry: str) -> Spawned:
    """Start an agent in `cwd`, with this hash seed. Raises LaunchFailed."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _BOOT, "--control-fd", str(theirs.fileno())),
                    *("--entry", entry, _root()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,  # until it belongs to a job; from then on its log
                cwd=cwd if os.path.isdir(cwd) else None,
                env=_environment(hash_seed),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise LaunchFailed(f"the agent cannot be started: {error}") from error
    ours.setblocking(False)
    return Spawned(process, ours)


def _environment(hash_seed: int) -> dict[str, str]:
    environment = dict(os.environ)
    environment["PYTHONHASHSEED"] = str(hash_seed)
    # One computing thread per rank unless the user says otherwise: ranks share the cores, and a sum must
    # not depend on how many cores the machine of a restart has.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.setdefault(name, "1")
    return environment


def _root() -> str:
    """The directory that holds this package, for an agent that would not find it by itself."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
