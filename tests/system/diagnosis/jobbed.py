"""Hosts and switches with real cables, on which a job of several hosts runs (`cluster`, `tests.system.hosts.bed`)."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.system.diagnosis.cluster import Cluster, shell
from tests.system.hosts.bed import Hosts

_START = 'hostname "$0" && exec "$@"'
NETWORK = "10.87.0.0/24"


class JobCluster(Cluster):
    """As Cluster; what runs on a host has its own process ids and host name."""

    processes, first, kill_host, send = Hosts.processes, Hosts.first, Hosts.kill, Hosts.send  # type: ignore[assignment]

    def __init__(self, hosts: dict[str, str], trunks: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(hosts, trunks)
        self._held: list[int] = []  # by `kill_host`

    def remove(self) -> None:
        while self._held:
            os.close(self._held.pop())
        super().remove()

    def serve(self, host: str) -> None:
        """No server: the job is there."""

    def within(self, host: str) -> tuple[str, ...]:
        """Words before a command that is to run in the network of this host."""
        return tuple(shell(self.namespace(host)))

    def ranks_on(self, host: str) -> list[int]:
        """The processes of ranks on a host: forks of its fork server that lead their process groups."""
        found = []
        for pid in self.processes(host):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"--control-fd" in words and os.getpgid(pid) == pid and os.getsid(pid) != pid:
                    found.append(pid)
        return found

    def engine(self) -> str:
        """The `--engine-command`."""
        enter = f"nsenter --net=/run/netns/{self.namespace('{host}')} "
        return enter + f"unshare --fork --pid --mount-proc --uts sh -c '{_START}' {{host}} {{agent}}"

    def flap(self, cable: str, state: str) -> None:
        """A cable without a link (down), and again with one (up)."""
        for side in "ab":
            subprocess.run(
                ("ip", "-n", self.namespace("cables"), "link", "set", f"{cable}{side}", state),
                check=True,
                timeout=20,
            )
