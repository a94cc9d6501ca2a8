"""All that a real cluster is asked with, at once: 4 hosts on 2 switches with a trunk, snmpd and lldpd on each switch, lldpd
on each host, a management controller for each host (ipmi_sim for two, Redfish for two), sshd and a file system of a server.

n1 and n2 hang on sw1, n3 and n4 on sw2; the controllers of n1 and n4 speak IPMI, those of n2 and n3 Redfish.

`apart`: the network of management is another one than that of the job. Otherwise there is one network: switches have their
addresses on it, each controller that of its host, and no host but n1 can be asked itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import SPEED, shell
from tests.system.diagnosis.jobbed import NETWORK, JobCluster
from tests.system.diagnosis.lldpd import Neighbours
from tests.system.diagnosis.services import RemoteFiles, RemoteShell
from tests.system.support import Job

HOSTS = {"n1": "sw1", "n2": "sw1", "n3": "sw2", "n4": "sw2"}
BY_IPMI, BY_REDFISH = ("n1", "n4"), ("n2", "n3")
NEEDED = ("ip", "nsenter", "nft", "snmpd", "lldpd", "lldpcli", "ipmitool", "ipmi_sim", "openssl")
MANAGEMENT = "10.89.0.254"


class Plant:
    """`folder`: for all files; it becomes the user's directory of settings, with the credentials."""

    def __init__(self, folder: Path, *, apart: bool = True) -> None:
        self.folder, self.apart = folder, apart
        self.cluster = JobCluster(HOSTS, [("sw1", "sw2")])
        self.agents: dict[str, devices.Agent] = {}
        self.controllers: dict[str, devices.Controller] = {}
        self.services: dict[str, devices.Service] = {}
        self.daemons: dict[str, Neighbours] = {}
        self.bmc: dict[str, str] = {}
        self._mounts: dict[str, int] = {}
        self.remote_shell: RemoteShell | None = None
        self.files: RemoteFiles | None = None
        self._ends = contextlib.ExitStack()

    def start(self) -> None:
        """Everything runs, and every table of neighbours is filled, when this returns."""
        self._ends.callback(self._remove)
        self.cluster.lay()
        owners = (*HOSTS, "sw1", "sw2")
        addresses = self.cluster.manage(*owners) if self.apart else self._in_band()
        for switch in ("sw1", "sw2"):
            (self.folder / switch).mkdir()
            within = shell(self.cluster.namespace(switch))
            self.agents[switch] = devices.Agent(self.folder / switch, within, addresses[switch])
            self._ends.callback(self.agents[switch].end)
        for host in HOSTS:
            self._give_controller(host)
        # Before namespaces of mounts are made, or it would not be in these
        self.files = RemoteFiles(self.folder)
        self._ends.callback(self.files.end)
        self.remote_shell = RemoteShell(self.cluster, "n3", self.folder)
        self._ends.callback(self.remote_shell.end)
        for owner in owners:
            agent = self.agents.get(owner)
            self.daemons[owner] = Neighbours(
                self.cluster,
                owner,
                self.folder / f"{owner}.log",
                subagents=None if agent is None else agent.subagents,
            )
            self._ends.callback(self.daemons[owner].end)
        self.daemons["sw1"].wait("n1", "n2", "sw2")
        self.daemons["sw2"].wait("n3", "n4", "sw1")
        for host in HOSTS:  # held, for when the daemon is ended
            self._mounts[host] = os.open(self.daemons[host].mounts, os.O_RDONLY)
            self._ends.callback(os.close, self._mounts[host])
        self._write_credentials()

    def _remove(self) -> None:
        for name in HOSTS:
            self.cluster.send(name, signal.SIGKILL)
        self.cluster.remove()

    def _in_band(self) -> dict[str, str]:
        found = {"sw1": "10.87.0.101", "sw2": "10.87.0.102"}
        for switch, address in found.items():
            self.cluster.on(switch, "addr", "add", f"{address}/24", "dev", "br0")
        return found

    def _give_controller(self, host: str) -> None:
        folder = self.folder / f"bmc-{host}"
        folder.mkdir()
        owner, address = ("mgmt", MANAGEMENT) if self.apart else (host, self.cluster.address(host))
        namespace = self.cluster.namespace(owner)
        if host in BY_IPMI:
            self.controllers[host] = devices.Controller(folder, shell(namespace), address)
            self.bmc[host] = self.controllers[host].address
            self._ends.callback(self.controllers[host].end)
        else:
            self.services[host] = devices.Service(folder, address, namespace)
            self.bmc[host] = self.services[host].address
            self._ends.callback(self.services[host].end)

    def _write_credentials(self) -> None:
        text = f'[snmp]\ncommunity = "{devices.SECRET}"\n'
        of_host = {host: ("redfish", service.secret) for host, service in self.services.items()}
        of_host |= dict.fromkeys(self.controllers, ("ipmi", devices.IPMI))
        for host, (part, secret) in of_host.items():  # who speaks no IPMI is not asked, and not waited for
            text += f'[{part}."{self.bmc[host]}"]\n'
            text += "".join(f'{key} = "{each}"\n' for key, each in secret.items())
        path = self.folder / "ckpt" / "credentials.toml"
        path.parent.mkdir(exist_ok=True)
        path.touch(0o600)
        path.write_text(text)

    def topology(self) -> Path:
        """The file, with all that can be asked; the switches' ports are compared with LLDP."""
        lines = ["lldp = true"]
        for host, switch in HOSTS.items():
            assert self.files is not None
            more = f', shared = "{self.files.mount}", ssh_port = "22"' if host == "n3" else ""
            lines += [f"[host.{host}]", f'address = "{self.cluster.address(host)}"', 'interface = "eth0"']
            lines += [f'switch = "{switch}"', f'port = "port{host[1:]}"', f'bmc = "{self.bmc[host]}"']
            lines += [f'names = {{ mtu = "1500", speed = "{SPEED}"{more} }}', f"python = {sys.executable!r}"]
            if self.apart or host == "n1":
                lines.append(f"shell = {self.shell(host)!r}")
        for switch, agent in self.agents.items():
            lines += [f"[switch.{switch}]", f'snmp = ["{agent.address}"]']
        lines += ["[[trunk]]", 'ends = [["sw1", "up0"], ["sw2", "down0"]]']
        path = self.folder / "topology.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def shell(self, host: str) -> list[str]:
        """Words before a command that is to run on a host; each use is a line in the file `shells`."""
        words = " ".join(self._enter(host))
        hangs = f"test ! -e {self.folder}/hangs-{host} || exec sleep 1000"
        return ["sh", "-c", f'echo "$1" >>{self.folder}/shells; {hangs}; exec {words} "$@"', "shell"]

    def _enter(self, host: str) -> list[str]:
        return [*shell(self.cluster.namespace(host)), f"--mount=/proc/{os.getpid()}/fd/{self._mounts[host]}"]

    def asked(self) -> list[str]:
        """What was run by these shells so far."""
        path = self.folder / "shells"
        return path.read_text().splitlines() if path.exists() else []

    def diagnose(self, *words: object) -> tuple[int, dict[str, Any]]:
        """`ckpt diagnose` on n1: exit code and answer."""
        command = [*self.cluster.within("n1"), sys.executable, "-m", "ckpt", "diagnose", *map(str, words)]
        environment = {**os.environ, "XDG_CONFIG_HOME": str(self.folder)}
        done = subprocess.run(
            [*command, "--json"], capture_output=True, text=True, check=False, timeout=120, env=environment
        )
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, json.loads(done.stdout)

    def job(
        self,
        directory: Path,
        app: Path,
        *arguments: object,
        ranks: int = 8,
        hosts: str = "n1:3,n2:3,n3:3,n4:3",
        every: float = 0.5,
        lease: float = 8,
        env: dict[str, str] | None = None,
    ) -> Job:
        """A job on these hosts, started on n1."""
        flags = {
            "-n": ranks,
            "--hosts": hosts,
            "--interface": NETWORK,
            "--engine-command": self.cluster.engine(),
            "--topology": self.topology(),
            "--every": every,
            "--lease": lease,
        }
        words = [word for flag in flags.items() for word in flag]
        settings = {"XDG_CONFIG_HOME": str(self.folder), **(env or {})}
        return Job(directory, *words, "--", app, *arguments, env=settings, within=self.cluster.within("n1"))

    def end(self) -> None:
        self._ends.close()

    # ---- what can be done to it ---------------------------------------------------------------------------

    def hang(self, host: str) -> None:
        """Nothing comes out of it or into it; its link stays, its controller says that it is on."""
        self.cluster.silence(host)
        (self.folder / f"hangs-{host}").touch()

    def power_off_switch(self, switch: str) -> None:
        """All that hangs on it has no link, and nothing of it answers."""
        number = switch[2:]
        for cable in [f"c{host[1:]}" for host, each in HOSTS.items() if each == switch] + ["t0"]:
            self.cluster.pull(cable)
        self.agents[f"sw{number}"].end()
        self.daemons[f"sw{number}"].end()

    def power_off(self, host: str) -> None:
        """Its processes are gone, its link, too; its controller says so."""
        (self.folder / f"hangs-{host}").touch()
        self.cluster.kill_host(host)
        self.say(host, power="off")
        self.cluster.pull(f"c{host[1:]}")

    def cook(self, host: str) -> None:
        """The fan nearly stands, the processor is hot, the power goes off."""
        self.say(host, fan=250, heat=99)
        self.power_off(host)

    def say(
        self, host: str, *, fan: int | None = None, heat: int | None = None, power: str | None = None
    ) -> None:
        """What the controller of a host is to tell: RPM, degrees C, "on" or "off"."""
        if host in self.controllers:
            told = {"fan": None if fan is None else fan // 50, "heat": heat, "power": power}
            self.controllers[host].set(**{name: value for name, value in told.items() if value is not None})
            return
        resources, root = self.services[host].resources, "/redfish/v1"
        thermal = resources[f"{root}/Chassis/1/Thermal"]
        if fan is not None:
            thermal["Fans"][1]["Reading"] = fan
        if heat is not None:
            thermal["Temperatures"][0]["ReadingCelsius"] = heat
        if power is not None:
            resources[f"{root}/Systems/1"]["PowerState"] = power.capitalize()

    def fail(self, host: str, part: str) -> None:
        """A part that the controller (Redfish) calls critical."""
        resources, root = self.services[host].resources, "/redfish/v1"
        status = {
            "memory": lambda: resources[f"{root}/Systems/1"]["MemorySummary"],
            "disk": lambda: resources[f"{root}/Systems/1/Storage/1/Drives/0"],
            "supply": lambda: resources[f"{root}/Chassis/1/Power"]["PowerSupplies"][0],
        }[part]()
        status["Status"]["Health"] = "Critical"

    def stop_controller(self, host: str) -> None:
        (self.controllers.get(host) or self.services[host]).end()
