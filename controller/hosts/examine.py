"""What an agent finds on its host when `ckpt doctor` asks: the facts that `health.py` compares; and what it says of its host
when it dials in (`processor`, `script_of`). (driver)

    marker        a file that the controller has just written: is it the same directory?
    lock          a file that the controller holds locked: does a lock of one host reach another?
    winner        a name that all hosts try to create by link(2) at once: exactly one may succeed
    seen-NAME     written here, read by the controller

Nothing here raises: a fact that cannot be found is its error, as text.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from ckpt.version import VERSION

__all__ = ["LOCK", "MARKER", "SEEN", "WINNER", "facts_of_host", "processor", "script_of"]

MARKER, LOCK, WINNER, SEEN = "marker", "lock-of-doctor", "winner", "seen-"
_FORK = "import os\npid = os.fork()\nif not pid: os._exit(7)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
_FORK_LIMIT_S = 60.0


def facts_of_host(directory: str, host: str, address: str) -> dict[str, Any]:
    """The facts, as JSON can hold them. `directory`: the shared one; `address`: at which ranks would listen here."""
    import importlib.metadata  # slow, and agents of a job do not need it

    return {
        "node": os.uname().nodename,
        "python": platform.python_version(),
        "ckpt": VERSION,
        "cpu": processor(),
        "address": address,
        "packages": {
            each.name.lower(): each.version for each in importlib.metadata.distributions() if each.name
        },
        "fork": _fork(),
        "marker": _read(os.path.join(directory, MARKER)),
        "wrote": _write(os.path.join(directory, SEEN + host), host),
        "won": _create(directory, host),
        "lock": _lock(os.path.join(directory, LOCK)),
        "open_files": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
        "shm_bytes": _shm_bytes(),
        "time": time.time(),
    }


def _fork() -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=_FORK_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return "" if done.stdout.strip() == "7" else f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        return f"error: {error}"


def _write(path: str, text: str) -> str:
    """ "" or an error."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return str(error)
    return ""


def _create(directory: str, host: str) -> bool | str:
    """Has this host created the name? Text: an error. As the journal does it: the number of links decides."""
    own = os.path.join(directory, f"try-{host}")
    if problem := _write(own, host):
        return problem
    try:
        with contextlib.suppress(FileExistsError):
            os.link(own, os.path.join(directory, WINNER))
        return os.stat(own).st_nlink == 2
    except OSError as error:
        return str(error)


def _lock(path: str) -> str:
    """ "held": the controller's lock is seen here; "free": it is not; else an error."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return str(error)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "free"
    except BlockingIOError:
        return "held"
    except OSError as error:
        return str(error)
    finally:
        os.close(fd)


def _shm_bytes() -> int:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def script_of(options: Mapping[str, Any], directory: str) -> str | None:
    """The digest of the job's script as this host sees it; "": it is not there; None: the job has none. `directory`: in
    which the job works."""
    noted = options.get("script")
    if not isinstance(noted, dict):
        return None
    try:
        with open(os.path.join(directory, noted["path"]), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def processor() -> str:
    """The model of this host's processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
