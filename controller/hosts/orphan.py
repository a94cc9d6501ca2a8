"""An agent whose controller's node is lost makes Slurm start the job again. (driver)

A job with --no-kill lives on when a node is lost, and where that node ran the batch script, nobody is left who would do
anything: the allocation would stand idle until its time limit. So the agents that are left ask Slurm, as long as their
controller is silent (`OrphanWatch`), and for a while when their leases are over, whether the job has lost the node of its
batch script. If so, they run the command that the script has left in `CKPT_ORPHANED`: `scontrol requeue JOB`, or `scancel
JOB` where another job waits for its end. While the script lives, it starts another controller, which goes on with the ranks.

That starts no ranks beside others: whoever takes the job over waits for the leases first.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Mapping

from ckpt.controller.errors import UsageError
from ckpt.controller.hosts.engine import CommandFailed, ask
from ckpt.controller.hosts.slurm import hosts_of

__all__ = ["VARIABLE", "OrphanWatch", "has_lost_its_script", "start_the_job_again"]

VARIABLE = "CKPT_ORPHANED"
_LIMIT_S = 1200.0
"""Slurm gives a silent node up after SlurmdTimeout, 300 s by default."""
_PAUSE_S = 2.0
_COMMAND_LIMIT_S = 60.0


def has_lost_its_script(shown: str) -> bool:
    """Does `scontrol show job` show a running job that has lost the node of its batch script? Pure."""
    words = dict(re.findall(r"(\w+)=(\S+)", shown))
    try:
        return words.get("JobState") == "RUNNING" and words["BatchHost"] not in hosts_of(words["NodeList"])
    except (KeyError, UsageError):
        return False


def start_the_job_again(environment: Mapping[str, str]) -> None:
    """See the module's header. Returns at once where there is no such command; else it waits for the end of the job."""
    job, command = environment.get("SLURM_JOB_ID"), environment.get(VARIABLE)
    if not job or not command:
        return
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        _look(job, command)
        time.sleep(_PAUSE_S)


class OrphanWatch:
    """The same beside the agent's work, in a thread, for as long as `watch` is told so."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._job, self._command = environment.get("SLURM_JOB_ID"), environment.get(VARIABLE)
        self._end: threading.Event | None = None  # set: the thread is to end

    def watch(self, is_silent: bool) -> None:
        """Is the controller silent now? Does nothing where there is no such command."""
        if self._job and self._command and is_silent and self._end is None:
            self._end = threading.Event()
            words = (self._job, self._command, self._end)
            threading.Thread(target=_look_on, args=words, name="ckpt-orphan", daemon=True).start()
        elif not is_silent and self._end is not None:
            self._end.set()
            self._end = None


def _look_on(job: str, command: str, end: threading.Event) -> None:
    while not end.wait(_PAUSE_S):
        _look(job, command)


def _look(job: str, command: str) -> None:
    if has_lost_its_script(_output(["scontrol", "show", "job", job])):
        print(f"ckpt agent: the node of the batch script is lost: {command}", flush=True)
        _output(shlex.split(command))


def _output(words: list[str]) -> str:
    """ "" where nothing can be known now: it is asked again."""
    with contextlib.suppress(CommandFailed):
        return ask(words, _COMMAND_LIMIT_S)
    return ""
