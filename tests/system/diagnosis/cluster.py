"""Hosts and switches in network namespaces, with cables that lose their link at both ends while both are switched on.

Every cable is a bridge of two veths in a namespace of cables: with both inner ends down, both outer ends are
without a carrier and still administratively up, as with a cable that is pulled. Management is not a network here:
the `shell` of a host or switch enters its namespace.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

SERVER = """
import socket, sys
s = socket.create_server(("", int(sys.argv[1])))
print("ready", flush=True)
while True:
    s.accept()[0].close()
"""
PORT = 7000
SPEED = "10000"
"""What a veth says, in Mbit/s."""


def ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True, capture_output=True, timeout=20)


def shell(namespace: str) -> list[str]:
    # not `ip netns exec`: that mounts another /sys, and is slower
    return ["nsenter", f"--net=/run/netns/{namespace}"]


class Cluster:
    """`hosts`: host → switch. Host n1 has the address 10.87.0.1, and so on. `trunks`: pairs of switches."""

    def __init__(self, hosts: dict[str, str], trunks: Sequence[tuple[str, str]] = ()) -> None:
        self.hosts, self.trunks = hosts, trunks
        self.switches = sorted(set(hosts.values()))
        self.tag = uuid.uuid4().hex[:6]
        self.speeds: dict[str, str] = {}
        """Those that the topology names, where they are not the true ones."""
        self.managed: tuple[str, ...] = ()
        """Who is on the network of management."""
        self.servers: dict[str, subprocess.Popen[str]] = {}

    def namespace(self, name: str) -> str:
        return f"dg-{self.tag}-{name}"

    def address(self, host: str) -> str:
        return f"10.87.0.{host.removeprefix('n')}"

    def lay(self) -> None:
        """Create everything and start a server on each host."""
        for name in ("cables", *self.switches, *self.hosts):
            ip("netns", "add", self.namespace(name))
            ip("-n", self.namespace(name), "link", "set", "lo", "up")
        for switch in self.switches:
            ip("-n", self.namespace(switch), "link", "add", "br0", "type", "bridge")
            ip("-n", self.namespace(switch), "link", "set", "br0", "up")
        for host, switch in self.hosts.items():
            number = host.removeprefix("n")
            self._cable(f"c{number}", (host, "eth0"), (switch, f"port{number}"))
            ip("-n", self.namespace(host), "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        for number, (one, other) in enumerate(self.trunks):
            self._cable(f"t{number}", (one, f"up{number}"), (other, f"down{number}"))
        for host in self.hosts:
            self.serve(host)

    def manage(self, *owners: str) -> dict[str, str]:
        """A second network, for management, of these; returns their addresses on it. Its namespace is `mgmt`."""
        ip("netns", "add", self.namespace("mgmt"))
        ip("-n", self.namespace("mgmt"), "link", "set", "lo", "up")
        self.managed = owners
        ip("-n", self.namespace("mgmt"), "link", "add", "br0", "type", "bridge")
        self._say_nothing("mgmt", "br0")
        ip("-n", self.namespace("mgmt"), "link", "set", "br0", "up")
        self.on("mgmt", "addr", "add", "10.89.0.254/24", "dev", "br0")
        found = {}
        for number, owner in enumerate(owners, 1):
            there, here = (self.namespace(owner), self.namespace("mgmt"))
            ip(
                "link",
                "add",
                "mgmt0",
                "netns",
                there,
                "type",
                "veth",
                "peer",
                "name",
                f"m{number}",
                "netns",
                here,
            )
            self._say_nothing("mgmt", f"m{number}")
            self._say_nothing(owner, "mgmt0")
            ip("-n", here, "link", "set", f"m{number}", "master", "br0", "up")
            found[owner] = f"10.89.0.{number}"
            self.on(owner, "addr", "add", f"{found[owner]}/24", "dev", "mgmt0")
            self.on(owner, "link", "set", "mgmt0", "up")
        return found

    def _say_nothing(self, owner: str, device: str) -> None:
        """No address of IPv6 by itself: the kernel would look for routers and neighbours."""
        ip("-n", self.namespace(owner), "link", "set", device, "addrgenmode", "none")

    def _cable(self, name: str, *ends: tuple[str, str]) -> None:
        cables = self.namespace("cables")
        # a cable lets LLDP through, which a bridge does not by itself
        ip("-n", cables, "link", "add", name, "type", "bridge", "group_fwd_mask", "0x4000")
        ip("-n", cables, "link", "set", name, "up")
        for side, (owner, device) in zip("ab", ends, strict=True):
            namespace = self.namespace(owner)
            inner = f"{name}{side}"
            ip(
                "link",
                "add",
                device,
                "netns",
                namespace,
                "type",
                "veth",
                "peer",
                "name",
                inner,
                "netns",
                cables,
            )
            ip("-n", cables, "link", "set", inner, "master", name, "up")
            ip("-n", namespace, "link", "set", device, "up")
            if owner in self.switches:
                ip("-n", namespace, "link", "set", device, "master", "br0")

    def pull(self, name: str) -> None:
        """Pull a cable: c1 of host n1, t0 the first trunk."""
        for side in "ab":
            ip("-n", self.namespace("cables"), "link", "set", f"{name}{side}", "down")

    def plug(self, name: str) -> None:
        """Plug it in again."""
        for side in "ab":
            ip("-n", self.namespace("cables"), "link", "set", f"{name}{side}", "up")

    def on(self, owner: str, *words: str) -> None:
        ip("-n", self.namespace(owner), *words)

    def shut(self, owner: str, device: str, cable: str, far_side: str) -> None:
        """Shut an interface or a port. The far end of a real cable then has no link: here it has to be told so."""
        self.on(owner, "link", "set", device, "down")
        ip("-n", self.namespace("cables"), "link", "set", f"{cable}{far_side}", "down")

    def filter(self, host: str, source: str) -> None:
        """Drop what comes to `host` from `source`, one way."""
        rules = (
            "add table ip t; add chain ip t c { type filter hook input priority 0; }; "
            f"add rule ip t c ip saddr {self.address(source)} drop"
        )
        subprocess.run((*shell(self.namespace(host)), "nft", rules), check=True, timeout=20)

    def silence(self, host: str) -> None:
        """Nothing comes out of this host or into it, as if it hung; its link stays."""
        rules = "add table netdev h; " + "".join(
            f"add chain netdev h {hook} {{ type filter hook {hook} device eth0 priority 0; policy drop; }}; "
            for hook in ("ingress", "egress")
        )
        subprocess.run((*shell(self.namespace(host)), "nft", rules), check=True, timeout=20)

    def lose(self, host: str, percent: int, source: str | None = None) -> None:
        """Drop so much of what comes to `host`, from everybody or from `source`."""
        of = f"ip saddr {self.address(source)} " if source else ""
        rules = (
            "add table ip l; add chain ip l c { type filter hook input priority 0; }; "
            f"add rule ip l c {of}numgen random mod 100 < {percent} drop"
        )
        subprocess.run((*shell(self.namespace(host)), "nft", rules), check=True, timeout=20)

    def serve(self, host: str) -> None:
        words = [*shell(self.namespace(host)), sys.executable, "-c", SERVER, str(PORT)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.servers[host] = child
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"

    def kill(self, host: str) -> None:
        child = self.servers.pop(host)
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()

    def topology(self, path: Path, without_shell: Sequence[str] = ()) -> Path:
        """Write the file of the topology. `without_shell`: who cannot be asked itself."""
        lines = []
        for host, switch in self.hosts.items():
            lines += [
                f"[host.{host}]",
                f'address = "{self.address(host)}"',
                'interface = "eth0"',
                f'names = {{ mtu = "1500", speed = "{self.speeds.get(host, SPEED)}" }}',
            ]
            lines += [
                f'switch = "{switch}"',
                f'port = "port{host.removeprefix("n")}"',
                *self._shell(host, without_shell),
            ]
        for switch in self.switches:
            lines += [f"[switch.{switch}]", *self._shell(switch, without_shell)]
        for number, (one, other) in enumerate(self.trunks):
            lines += ["[[trunk]]", f'ends = [["{one}", "up{number}"], ["{other}", "down{number}"]]']
        path.write_text("\n".join(lines) + "\n")
        return path

    def _shell(self, name: str, without: Sequence[str]) -> list[str]:
        return [] if name in without else [f"shell = {shell(self.namespace(name))!r}"]

    def remove(self) -> None:
        for host in list(self.servers):
            self.kill(host)
        for name in ("cables", "mgmt", *self.switches, *self.hosts):
            subprocess.run(
                ("ip", "netns", "del", self.namespace(name)), capture_output=True, timeout=20, check=False
            )
