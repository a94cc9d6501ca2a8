"""The interpreter that the ranks run under, when the command line names one: `ckpt run -n 4 /venv/bin/python app.py`.

The word is looked up on PATH as a shell does. The interpreter that runs this command is recognised by its path and not
asked. Any other interpreter is run once and asked for its version of Python and of ckpt; it is used if it has this version
of ckpt. The job's record (`job.json`) names the interpreter, and a restart uses it again.

Not here: how the command line tells an interpreter from a script (`command`), how an agent is started (`spawning`).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt.controller.errors import NotCompatible, UsageError
from ckpt.controller.launch.spawning import Interpreter
from ckpt.version import VERSION

_ANSWER_LIMIT_S = 60
_QUESTION = """
import sys
del sys.path[0]
import json, platform
try:
    import ckpt.controller.launch.spawning
    from ckpt.version import VERSION
except ImportError:
    VERSION = None
print(json.dumps([sys.executable, platform.python_version(), VERSION]))
"""


def named(word: str | None, options: Sequence[str] = ()) -> tuple[Interpreter, str]:
    """The interpreter that a command line names (None: this one), and its version as "3.11.7".

    Raises:
        UsageError: there is none of that name, or it does not start.
        NotCompatible: it has no ckpt, or another version of it.
    """
    path = sys.executable if word is None else shutil.which(word)
    if path is None:
        raise UsageError(f"there is no {word} on PATH")
    if word is None or _is_this(path):
        return Interpreter(sys.executable, options), platform.python_version()
    executable, version, theirs = _ask(path)
    if executable == sys.executable:
        return Interpreter(executable, options), version
    if theirs is None:
        raise NotCompatible(
            f"{word} is {executable} (Python {version}), which has no ckpt: install it there "
            f"({executable} -m pip install PATH/OF/THE/REPOSITORY), or leave {word!r} out to run with {sys.executable}"
        )
    if theirs != VERSION:
        raise NotCompatible(
            f"{word} is {executable}, which has ckpt {theirs}; this command is ckpt {VERSION}. "
            f"Use its own: {os.path.join(os.path.dirname(executable), 'ckpt')}"
        )
    return Interpreter(executable, options), version


def of_job(options: Mapping[str, Any]) -> tuple[Interpreter, str]:
    """The interpreter that a job was started with, and its version. `options`: of the job's record. Raises as `named`."""
    saved = options.get("interpreter")
    return named(None) if saved is None else named(saved["executable"], saved["options"])


def _is_this(path: str) -> bool:
    """Is `path` this interpreter in this environment? Several virtual environments may link to the same file."""
    ours = os.path.dirname(sys.executable)
    return os.path.samefile(path, sys.executable) and os.path.samefile(os.path.dirname(path) or ".", ours)


def _ask(path: str) -> tuple[str, str, str | None]:
    """Run the interpreter: (its `sys.executable`, its version, the version of its ckpt or None). Raises UsageError."""
    try:
        done = subprocess.run(
            [path, "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_LIMIT_S,
            check=True,
        )
        executable, version, theirs = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise UsageError(f"{path} does not run as a Python interpreter: {last}") from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise UsageError(f"{path} does not run as a Python interpreter: {error}") from error
    return executable, version, theirs
