"""A real lldpd on a host or switch of the cluster, with its own host name and its own /run, as on a machine of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.system.diagnosis.cluster import Cluster, shell
from tests.system.diagnosis.devices import program, until

# told every second: by itself it would be every thirty
_START = (
    'hostname "$0" && mount -t tmpfs lldpd /run && mkdir /run/lldpd && '
    'echo "configure lldp tx-interval 1" >/run/lldpd.conf && exec "$@"'
)


class Neighbours:
    """`name`: what it calls itself. `subagents`: of the snmpd that tells its table. `shell`: words before a command."""

    def __init__(
        self,
        cluster: Cluster,
        owner: str,
        log: Path,
        *,
        name: str | None = None,
        subagents: Path | None = None,
    ) -> None:
        words = [*shell(cluster.namespace(owner)), "unshare", "--uts", "--mount", "sh", "-c", _START]
        words += [
            name or owner,
            str(program("lldpd")),
            "-d",
            "-O",
            "/run/lldpd.conf",
            "-I",
            "eth*,port*,up*,down*",
        ]
        words += [] if subagents is None else ["-x", "-X", str(subagents)]
        with open(log, "wb") as file:
            self._child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.mounts = f"/proc/{self._child.pid}/ns/mnt"
        self.shell = [*shell(cluster.namespace(owner)), f"--mount={self.mounts}"]

    def wait(self, *systems: str) -> None:
        """Until it hears of all of these."""
        until(lambda: set(systems) <= self._heard(), f"{self.shell}: {systems}")

    def _heard(self) -> set[str]:
        words = [*self.shell, str(program("lldpcli")), "-f", "json0", "show", "neighbors"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            return set()  # not there yet
        interfaces = json.loads(done.stdout)["lldp"][0].get("interface", [])
        return {each["chassis"][0]["name"][0]["value"] for each in interfaces if "name" in each["chassis"][0]}

    def end(self) -> None:
        self._child.terminate()
        self._child.wait()
