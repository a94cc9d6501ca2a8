"""Engines start one command on a host. (driver)

    ssh        `ssh -o BatchMode=yes HOST COMMAND`: the system's ssh, with the user's configuration, agents and jump hosts
    command    --engine-command 'rsh {host} {agent}': any command that runs another one on a named host and ends with it.
               What is called ssh or rsh gives its words to a shell: so they are quoted for it

A command runs in a session of its own, so that Ctrl-C in the terminal of `ckpt run` does not end it. Its standard input is
empty; what it prints goes to `JOB/output/host-NAME.log`.

What becomes of an engine's command proves nothing about the host: a killed ssh client leaves the remote command running.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence

from ckpt.controller.errors import LaunchFailed, UsageError
from ckpt.store.disk.privacy import open_regular

__all__ = ["Engine", "Started"]

_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=20 {host} {agent}"
_SHELLS = ("ssh", "rsh")
_TAIL_BYTES = 1500


class Started:
    """The command that was started for one host."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: str) -> None:
        self.process = process
        self.log_path = log_path

    def end(self) -> str | None:
        """How the command has ended, with the end of what it printed; None: it runs."""
        status = self.process.poll()
        if status is None:
            return None
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                said = log.read().decode(errors="replace").strip()
        except OSError:
            said = ""
        return f"the engine's command ended with {how}" + (f": {said}" if said else "")

    def stop(self, patience_s: float) -> None:
        """Wait for the command's end, at most so long; then kill it and its process group."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Engine:
    """`template`: the command, with {host} and {agent}; None: ssh. Raises UsageError for one that lacks them."""

    def __init__(self, template: str | None) -> None:
        try:
            self.words = shlex.split(_SSH if template is None else template)
        except ValueError as error:
            raise UsageError(f"--engine-command {template!r}: {error}") from None
        self.is_ssh = bool(self.words) and os.path.basename(self.words[0]) in _SHELLS
        text = " ".join(self.words)
        if "{hosts}" in text:
            raise UsageError(
                "--engine-command with {hosts}, one command for all hosts, is not there yet: use one with {host}, for each"
            )
        if "{host}" not in text or "{agent}" not in self.words:
            raise UsageError(
                "--engine-command: it has to have {host}, and {agent} as a word of its own, as in 'rsh {host} {agent}'"
            )

    def start(self, host: str, agent: Sequence[str], log_path: str) -> Started:
        """Start `agent` on `host`. Raises LaunchFailed."""
        words: list[str] = []
        for word in self.words:
            if word == "{agent}":
                words += [shlex.join(agent)] if self.is_ssh else agent
            else:
                words.append(word.replace("{host}", host))
        try:
            log = open_regular(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            finally:
                os.close(log)
        except OSError as error:
            raise LaunchFailed(f"host {host}: the engine's command cannot be started: {error}") from error
        return Started(process, log_path)
