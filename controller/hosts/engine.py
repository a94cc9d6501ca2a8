"""Engines start the agents of a job on its hosts: one command for each host, or one command for all of them. (driver)

    ssh        `ssh -o BatchMode=yes HOST COMMAND`: the system's ssh, with the user's configuration, agents and jump hosts
    command    --engine-command 'rsh {host} {agent}': any command that runs another one on a named host and ends with it.
               What is called ssh or rsh gives its words to a shell: so they are quoted for it
               --engine-command 'mpiexec -n {hosts} -ppn 1 {agent}': one command that runs another one once on each host.
               An agent that it starts finds out by itself which of the hosts it is on (`addresses.own_name`)
    slurm      one step of the allocation with a task for each node (`slurm.py`)

A command runs in a session of its own, so that Ctrl-C in the terminal of `ckpt run` does not end it. What it prints
goes to `JOB/output/host-NAME.log`, or `JOB/output/hosts.log`.

Its standard input has one line, which an agent reads only if its host cannot read the key of the job in the job's directory:

    ssh        the key: ssh encrypts it
    slurm      a credential of munge, which this user alone can decode on a node of the cluster: what srun sends is not
               encrypted. Without munge, the reason why there is no key
    others     nothing: it is not known what they do with it

A key is never a word of a command, in an environment, or in a batch script, which others may read or Slurm keeps.

What becomes of an engine's command proves nothing about the host: a killed ssh client leaves the remote command running.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from ckpt.controller.errors import LaunchFailed, UsageError
from ckpt.store.disk.privacy import open_regular

__all__ = ["AGENT", "CommandFailed", "Engine", "Started", "ask", "key_from_engine"]

AGENT = "{agent}"
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=20 {host} {agent}"
_SHELLS = ("ssh", "rsh")
_TAIL_BYTES, _TAIL_LINES = 1500, 12
_TERM_PATIENCE_S = 3.0
_ENCRYPTING = "ssh"
_MUNGE_LIMIT_S = 10.0
_CHANNEL_LIMIT_S = 10.0
_LINE_BYTES = 1 << 16
_SOCKET = re.compile(r"^AuthInfo\s*=.*\bsocket=([^,\s]+)", re.MULTILINE)


class CommandFailed(LaunchFailed):
    """A command of the engine's own has failed. `is_missing`: there is no such command here."""

    def __init__(self, reason: str, *, is_missing: bool = False) -> None:
        super().__init__(reason)
        self.is_missing = is_missing


def ask(words: Sequence[str], limit_s: float, told: str = "") -> str:
    """What this command of the engine's (`squeue`, `scontrol`, `sbatch`, …) prints. `told`: its standard input. Raises
    CommandFailed: it cannot be started, refuses, or has not ended within `limit_s`."""
    try:
        done = subprocess.run(
            list(words),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            input=told,
        )
    except FileNotFoundError:
        raise CommandFailed(f"there is no {words[0]} here", is_missing=True) from None
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"{words[0]} has not answered within {limit_s:g} s") from None
    except OSError as error:
        raise CommandFailed(f"{words[0]}: {error}") from error
    if done.returncode:
        raise CommandFailed(f"{words[0]} refuses: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def _munged(key: str) -> dict[str, str]:
    """The line for agents that Slurm starts. The key goes to munge by a pipe."""
    found = None
    with contextlib.suppress(CommandFailed):  # then munge is where it usually is
        found = _SOCKET.search(ask(["scontrol", "show", "config"], _MUNGE_LIMIT_S))
    place = ["--socket", found[1]] if found else []
    try:
        made = ask(["munge", "--restrict-uid", str(os.geteuid()), *place], _MUNGE_LIMIT_S, told=key)
    except CommandFailed as failed:
        return {"missing": f"Slurm could bring it with munge alone; where `ckpt run` is: {failed}"}
    return {"munge": made.strip(), "socket": found[1] if found else ""}


def key_from_engine(fd: int) -> str:
    """The job's key as the engine has brought it to this agent, whose standard input is `fd`. Raises LaunchFailed."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
        if not select.select([fd], [], [], _CHANNEL_LIMIT_S)[0]:
            break
        if not (piece := os.read(fd, _LINE_BYTES)):
            break
        line += piece
    try:
        told: dict[str, str] = json.loads(line)
        if "missing" in told:
            raise LaunchFailed(told["missing"])
        return told["key"] if "key" in told else _unmunged(told["munge"], told["socket"])
    except (ValueError, TypeError, KeyError):
        raise LaunchFailed(
            "the engine's command has not brought it: ssh does, and srun where there is munge"
        ) from None


def _unmunged(credential: str, place: str) -> str:
    words = ["unmunge", "--metadata", os.devnull, *(["--socket", place] if place else [])]
    try:
        return ask(words, _MUNGE_LIMIT_S, told=credential)
    except CommandFailed as failed:
        raise LaunchFailed(f"munge could not decode what came with the engine's command: {failed}") from None


class Started:
    """A command that was started for one host, or (`is_shared`) for all hosts."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: str, *, is_shared: bool = False) -> None:
        self.process = process
        self.log_path = log_path
        self.is_shared = is_shared

    def end(self) -> str | None:
        """How the command has ended, with the end of what it printed; None: it runs."""
        status = self.process.poll()
        if status is None:
            return None
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        said = self.said()
        return f"the engine's command ended with {how}" + (f": {said}" if said else "")

    def said(self) -> str:
        """The last lines of what the command, and the agents that it has started, have printed; no control characters, since
        it goes to a terminal."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                lines = log.read().decode(errors="ignore").strip().splitlines()[-_TAIL_LINES:]
        except OSError:
            return ""
        return "\n".join("".join(filter(str.isprintable, line)) for line in lines)

    def stop(self, patience_s: float) -> None:
        """Wait for the command's end, at most so long; then kill it and its process group.

        A command for all hosts is asked to end first (SIGTERM): so it ends what is left of its agents. Idempotent.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        if self.is_shared and self.process.poll() is None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self.process.terminate()
                self.process.wait(_TERM_PATIENCE_S)
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Engine:
    """`words`: the command, with {agent} and {host} or {hosts} in it. `name`: for people and the event log.

    `naming`: the environment variable with the host's name in the agents that one command for all hosts starts; None: they
    find out by themselves.
    """

    def __init__(self, words: Sequence[str], *, name: str, naming: str | None = None) -> None:
        self.words = list(words)
        self.name = name
        self.naming = naming
        self.is_ssh = bool(self.words) and os.path.basename(self.words[0]) in _SHELLS
        self.is_shared = not any("{host}" in word for word in self.words)
        self.encrypts = bool(self.words) and os.path.basename(self.words[0]) == _ENCRYPTING

    @classmethod
    def of_template(cls, template: str | None) -> Engine:
        """The engine of `--engine-command`; None: ssh. Raises UsageError for one that lacks a word it needs."""
        try:
            words = shlex.split(_SSH if template is None else template)
        except ValueError as error:
            raise UsageError(f"--engine-command {template!r}: {error}") from None
        text = " ".join(words)
        if ("{host}" in text) == ("{hosts}" in text) or AGENT not in words:
            raise UsageError(
                "--engine-command: it has to have {agent} as a word of its own, and {host}, as in 'rsh {host} {agent}', or "
                "{hosts}, as in 'mpiexec -n {hosts} -ppn 1 {agent}'"
            )
        return cls(words, name="ssh" if template is None else "command")

    def start(
        self,
        hosts: Mapping[int, str],
        agent: Callable[[int | None], Sequence[str]],
        directory: str,
        *,
        key: str,
        appends: bool = False,
    ) -> dict[int, Started]:
        """Start the agents of all hosts, given by index. `key`: of the job, for hosts that cannot read it. Raises
        LaunchFailed.

        `agent`: returns the words of the agent of one host, or (None) of whatever host it is started on. `directory`: for
        what is printed; `appends`: behind what earlier agents of these hosts have printed.
        """
        how = os.O_APPEND if appends else os.O_TRUNC
        line = self._line(key)
        if self.is_shared:
            log = os.path.join(directory, "hosts.log")
            started = self._start({"{hosts}": str(len(hosts))}, agent(None), log, "the hosts", how, line)
            return dict.fromkeys(hosts, started)
        return {
            index: self._start(
                {"{host}": name},
                agent(index),
                os.path.join(directory, f"host-{name}.log"),
                f"host {name}",
                how,
                line,
            )
            for index, name in hosts.items()
        }

    def _line(self, key: str) -> bytes:
        """What the agents can read from their standard input."""
        if self.name == "slurm":
            return json.dumps(_munged(key)).encode() + b"\n"
        return json.dumps({"key": key}).encode() + b"\n" if self.encrypts else b""

    def _start(
        self,
        values: Mapping[str, str],
        agent: Sequence[str],
        log_path: str,
        whose: str,
        how: int,
        line: bytes,
    ) -> Started:
        words: list[str] = []
        for word in self.words:
            if word == AGENT:
                words += [shlex.join(agent)] if self.is_ssh else agent
            else:
                for name, value in values.items():
                    word = word.replace(name, value)
                words.append(word)
        try:
            log = open_regular(log_path, os.O_WRONLY | os.O_CREAT | how)
            try:
                stdin, entrance = os.pipe2(os.O_CLOEXEC)
                try:
                    os.write(entrance, line)  # shorter than the least buffer of a pipe
                finally:
                    os.close(entrance)
                try:
                    process = subprocess.Popen(
                        words, stdin=stdin, stdout=log, stderr=log, start_new_session=True
                    )
                finally:
                    os.close(stdin)
            finally:
                os.close(log)
        except OSError as error:
            raise LaunchFailed(f"{whose}: the engine's command cannot be started: {error}") from error
        return Started(process, log_path, is_shared=self.is_shared)
