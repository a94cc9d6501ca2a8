"""Faults of hosts and switches that are no cable's: a service that is gone, a file system whose server does not answer, a
supply that has failed, a switch without power, filters at both ends. Real parts: sshd, FUSE, Redfish, cables, nftables.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.diagnosis import Request
from ckpt.diagnosis.library import credentials as load_credentials
from ckpt.diagnosis.library import load as load_models
from ckpt.diagnosis.library import topology as load_topology
from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import PORT, Cluster, shell

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.nightly, pytest.mark.timeout(300)]

LONG_S = 40  # how busy the machine is decides nothing
HOSTS = {"n1": "sw1", "n2": "sw1", "n3": "sw2", "n4": "sw2"}
SSHD = "/usr/sbin/sshd"


@pytest.fixture(autouse=True)
def no_models_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    for tool in ("ip", "nsenter", "nft"):
        if shutil.which(tool) is None:
            pytest.skip("needs ip (iproute2), nsenter (util-linux) and nft (nftables)")
    found = Cluster(HOSTS, [("sw1", "sw2")])
    try:
        found.lay()
        yield found
    finally:
        found.remove()


def asked(
    cluster: Cluster,
    folder: Path,
    there: str,
    error: str,
    *,
    without: tuple[str, ...] = (),
    credentials: Path | None = None,
    **more: str,
) -> Request:
    """The answer about `there`, of whom the topology has these lines more."""
    path = cluster.topology(folder / "topology.toml", without)
    lines = "".join(f"{key} = {value}\n" for key, value in more.items() if key != "names")
    text = path.read_text().replace(f"[host.{there}]\n", f"[host.{there}]\n{lines}")
    if "names" in more:
        head, mark, rest = text.partition(f"[host.{there}]\n")
        text = head + mark + rest.replace("names = {", f"names = {{ {more['names']},", 1)
    path.write_text(text)
    topology = load_topology(str(path))
    secrets = load_credentials(None if credentials is None else str(credentials))
    found = Request(
        error, "n1", there, topology=topology, models=load_models(), port=PORT, credentials=secrets
    )
    found.query(LONG_S)
    return found


def named(request: Request) -> set[str]:
    return {each.id for each in request.faults}


def sshd(cluster: Cluster, host: str, folder: Path) -> subprocess.Popen[bytes]:
    """A real sshd on this host; returns when it listens."""
    key, config = folder / "host-key", folder / "sshd_config"
    words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    subprocess.run(words, check=True, timeout=20)
    config.write_text(f"HostKey {key}\nStrictModes no\nPidFile none\nUsePAM no\n")
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    server = subprocess.Popen(
        (*shell(cluster.namespace(host)), SSHD, "-D", "-e", "-f", str(config)), stderr=subprocess.PIPE
    )
    assert server.stderr is not None
    for line in server.stderr:
        if b"listening on" in line:
            return server
    raise AssertionError(f"sshd ended: {server.wait()}")


def end(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()
    if server.stderr is not None:
        server.stderr.close()


def test_a_remote_shell_that_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    if not os.path.exists(SSHD):
        pytest.skip("needs sshd (openssh-server)")
    server = sshd(cluster, "n2", tmp_path)
    try:
        found = asked(cluster, tmp_path, "n2", "ECONNRESET", names="ssh_port = '22'")
        assert not found.verdict.found, found.verdict
        assert "remote-shell.gone@n2" in found.verdict.clear
    finally:
        end(server)
    found = asked(cluster, tmp_path, "n2", "ECONNRESET", names="ssh_port = '22'")
    assert named(found) == {"remote-shell.gone@n2"}, found.verdict


def test_a_file_system_whose_server_does_not_answer(cluster: Cluster, tmp_path: Path) -> None:
    """As NFS when its server is gone: whoever looks at it waits."""
    for tool in ("fusefat", "mkfs.vfat"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    image, mount = tmp_path / "image", tmp_path / "shared"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(8 << 20)
    subprocess.run(("mkfs.vfat", str(image)), check=True, capture_output=True, timeout=20)
    server = subprocess.Popen(("fusefat", "-f", "-o", "rw+", str(image), str(mount)))
    names = f"shared = '{mount}'"
    try:
        devices.until(lambda: os.path.ismount(mount), "the file system")
        found = asked(cluster, tmp_path, "n2", "ECONNRESET", names=names)
        assert not found.verdict.found, found.verdict
        assert {"file-system.hangs@n2", "file-system.gone@n2"} <= set(found.verdict.clear)
        server.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        found = asked(cluster, tmp_path, "n2", "ECONNRESET", names=names)
        assert named(found) == {"file-system.hangs@n2"}, found.verdict
        assert time.monotonic() - began < LONG_S, "nothing waited for it"
    finally:
        server.kill()
        server.wait()
        subprocess.run(("umount", "-l", str(mount)), check=False, capture_output=True, timeout=20)


def test_a_supply_that_has_failed_and_the_power_that_went_with_it(cluster: Cluster, tmp_path: Path) -> None:
    if devices.program("openssl") is None:
        pytest.skip("needs openssl")
    service = devices.Service(tmp_path)
    secrets = tmp_path / "credentials.toml"
    secrets.touch(0o600)
    secrets.write_text("[redfish]\n" + "".join(f'{key} = "{each}"\n' for key, each in service.secret.items()))
    bmc = f'"{service.address}"'
    root = "/redfish/v1"
    try:
        found = asked(cluster, tmp_path, "n2", "ETIMEDOUT", credentials=secrets, bmc=bmc)
        assert not found.verdict.found, found.verdict
        assert {"power.off@n2", "power.supply@n2"} <= set(found.verdict.clear)
        supplies = service.resources[f"{root}/Chassis/1/Power"]["PowerSupplies"]
        supplies[0]["Status"]["Health"] = "Critical"
        service.resources[f"{root}/Systems/1"]["PowerState"] = "Off"
        cluster.pull("c2")  # a host without power has no link
        found = asked(cluster, tmp_path, "n2", "ETIMEDOUT", without=("n2",), credentials=secrets, bmc=bmc)
        assert named(found) == {"power.supply@n2"}, found.verdict
        consequences = {name for name, _ in found.verdict.consequences}
        assert {"power.off@n2", "cable.dark-at-port@n2:eth0-sw1:port2"} <= consequences
    finally:
        service.end()


def test_a_switch_without_power_names_none_of_its_cables(cluster: Cluster, tmp_path: Path) -> None:
    """All of its cables are dark, and it does not answer: it is suspected, and so is what hangs on it; nothing is named."""
    for cable in ("c3", "c4", "t0"):
        cluster.pull(cable)
    found = asked(cluster, tmp_path, "n3", "ETIMEDOUT", without=("sw2",))
    assert named(found) == set(), found.verdict
    possible = {each for suspect in found.suspects for each in (suspect.id, *suspect.instead)}
    assert "switch.off@sw2" in possible, found.verdict
    assert "switch.off@sw2" not in found.verdict.clear


def test_filters_at_both_ends_are_both_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.filter("n1", "n2")
    cluster.filter("n2", "n1")
    found = asked(cluster, tmp_path, "n2", "ETIMEDOUT")
    assert named(found) == {"filter.drops@n1", "filter.drops@n2"}, found.verdict
