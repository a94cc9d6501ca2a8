"""Hosts for tests: each a network namespace on a common switch; what runs on one has its own process ids and host name.

A host named hK has the address 10.88.0.K, or with IPv6 only fd88::K. Cables can be pulled; a host can be killed (the
first process of its process ids is, and so the kernel kills all of them at once) or frozen. The job directory is on a
file system that all hosts see.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

SSHD = "/usr/sbin/sshd"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_START = 'hostname "$0" && exec "$@"'


def ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True, capture_output=True, timeout=20)


class Hosts:
    """The hosts h1, h2, …, as many as `count`."""

    def __init__(self, count: int, *, ipv6: bool = False) -> None:
        self.network = "fd88::/64" if ipv6 else "10.88.0.0/16"
        self.names = [f"h{number}" for number in range(1, count + 1)]
        self.tag = uuid.uuid4().hex[:6]
        self.boots: Path | None = None
        self._held: list[int] = []

    def address(self, name: str) -> str:
        return f"fd88::{name[1:]}" if ":" in self.network else f"10.88.0.{name[1:]}"

    def namespace(self, name: str) -> str:
        return f"ho-{self.tag}-{name}"

    def lay(self) -> None:
        """Make the namespaces and the cables."""
        switch = self.namespace("sw")
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for name in self.names:
            host, port = self.namespace(name), f"p-{name}"
            ip("netns", "add", host)
            veth = ("type", "veth", "peer", "name", port, "netns", switch)
            ip("link", "add", "eth0", "netns", host, *veth)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", host, "link", "set", "lo", "up")
            # Else it could not be used for a second
            more = ("/64", "nodad") if ":" in self.network else ("/24",)
            ip("-n", host, "addr", "add", self.address(name) + more[0], "dev", "eth0", *more[1:])
            ip("-n", host, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Kill what is left on the hosts, and remove the namespaces."""
        while self._held:
            os.close(self._held.pop())
        for name in self.names:
            for pid in self.processes(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for name in (*self.names, "sw"):
            words = ("ip", "netns", "del", self.namespace(name))
            subprocess.run(words, capture_output=True, timeout=20, check=False)

    def on(self, name: str) -> tuple[str, ...]:
        """Words before a command that is to run in the network of this host."""
        return ("nsenter", f"--net=/run/netns/{self.namespace(name)}")

    def engine(self, private: Path | None = None, boots: Path | None = None) -> str:
        """The `--engine-command`. `private`: a directory of which each host is to have its own; `boots`: a directory where
        the present boot of each host is written down, so that `reset` can be known from its end; then hosts have no process
        ids of their own."""
        own = "" if private is None else f"mount -t tmpfs tmpfs {private} && "
        ids = "--fork --pid --mount-proc"
        if boots is not None:
            self.boots = boots
            for name in self.names:
                self._boot(name)
            ids, own = "--mount", own + f"mount --bind {boots}/{{host}} {_BOOT_ID} && "
        enter = f"nsenter --net=/run/netns/{self.namespace('{host}')} "
        return enter + f"unshare {ids} --uts sh -c '{own}{_START}' {{host}} {{agent}}"

    def sshd(self, name: str, directory: Path, force: str = "") -> subprocess.Popen[bytes]:
        """A real sshd on this host; returns when it listens. `directory`: for its keys and its configuration, and those of
        the client (`ssh_config`); `force`: a command that gets the client's in SSH_ORIGINAL_COMMAND."""
        key, host_key = directory / "key", directory / f"host-{name}"
        for path in (key, host_key):
            if not path.exists():
                words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
                subprocess.run(words, check=True, timeout=20)
        (directory / "authorized_keys").write_text((directory / "key.pub").read_text())
        config = directory / f"sshd-{name}"
        config.write_text(
            f"HostKey {host_key}\nAuthorizedKeysFile {directory}/authorized_keys\nStrictModes no\nPidFile none\n"
            "PermitRootLogin prohibit-password\nUsePAM no\n" + (f"ForceCommand {force}\n" if force else "")
        )
        addresses = "".join(f"Host {each}\n HostName {self.address(each)}\n" for each in self.names)
        (directory / "ssh_config").write_text(
            f"{addresses}Host *\n IdentityFile {key}\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
        )
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        words = (*self.on(name), SSHD, "-D", "-e", "-f", str(config))
        server = subprocess.Popen(words, stderr=subprocess.PIPE)
        assert server.stderr is not None
        for line in server.stderr:
            if b"listening on" in line:
                return server
        raise AssertionError(f"sshd ended: {server.wait()}")

    def cable(self, name: str, state: str) -> None:
        """Pull ("down") or plug in ("up") the cable of a host, at the switch."""
        ip("-n", self.namespace("sw"), "link", "set", f"p-{name}", state)

    def processes(self, name: str) -> list[int]:
        """The processes on this host, the oldest first."""
        wanted = os.stat(f"/run/netns/{self.namespace(name)}").st_ino
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdecimal() and os.stat(f"/proc/{entry}/ns/net").st_ino == wanted:
                    found.append(int(entry))
        return sorted(found)

    def named(self, name: str, word: str) -> int:
        """The oldest process on this host whose command line has this word."""
        for pid in self.processes(name):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                if word.encode() in file.read():
                    return pid
        raise AssertionError(f"no process {word!r} on {name}")

    def first(self, name: str) -> int:
        """The first process of the host's own process ids: its death is the host's."""
        for pid in self.processes(name):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
                numbers = next(line for line in file if line.startswith("NSpid:")).split()[1:]
            if len(numbers) > 1 and numbers[-1] == "1":
                return pid
        raise AssertionError(f"nothing runs on {name}")

    def kill(self, name: str) -> None:
        """The host loses its power."""
        pid = self.first(name)
        # As long as somebody has them open, its process ids are not given to what an engine starts there afterwards.
        self._held.append(os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC))
        os.kill(pid, signal.SIGKILL)

    def reset(self, name: str) -> None:
        """The host loses its power, and is there again at once."""
        self._boot(name)
        self.send(name, signal.SIGKILL)

    def _boot(self, name: str) -> None:
        assert self.boots is not None
        new = self.boots / f"{name}.new"
        new.write_text(f"{uuid.uuid4()}\n")
        new.rename(self.boots / name)  # what runs there keeps the former file

    def send(self, name: str, number: int) -> None:
        """A signal to everything on the host: SIGSTOP freezes it."""
        for pid in self.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait_until_empty(self, names: Sequence[str], patience_s: float = 30.0) -> None:
        """Nothing of a job may be left on these hosts."""
        deadline = time.monotonic() + patience_s
        while left := {name: found for name in names if (found := self.processes(name))}:
            assert time.monotonic() < deadline, left
            time.sleep(0.02)


def needs_hosts() -> None:
    """Skip the test, and say why, where there can be no such hosts."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    for tool in ("ip", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    probe = subprocess.run(
        ("unshare", "--net", "--fork", "--pid", "--mount-proc", "--uts", "true"),
        capture_output=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"no namespaces here: {probe.stderr.decode().strip()}")
