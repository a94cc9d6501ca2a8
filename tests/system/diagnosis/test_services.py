"""Faults of hosts and switches that are no cable's: a service that is gone, a file system whose server does not answer, a
supply that has failed, a switch without power, filters at both ends. Real parts: sshd, FUSE, Redfish, cables, nftables.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ckpt.diagnosis import Request
from ckpt.diagnosis.library import credentials as load_credentials
from ckpt.diagnosis.library import load as load_models
from ckpt.diagnosis.library import topology as load_topology
from tests.system.diagnosis import devices, services
from tests.system.diagnosis.cluster import PORT, Cluster

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.nightly, pytest.mark.timeout(300)]

LONG_S = 40  # how busy the machine is decides nothing
HOSTS = {"n1": "sw1", "n2": "sw1", "n3": "sw2", "n4": "sw2"}


@pytest.fixture
def hosts() -> dict[str, str]:
    return HOSTS


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


def test_a_remote_shell_that_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    if missing := services.missing():
        pytest.skip(f"needs {', '.join(missing)}")
    server = services.RemoteShell(cluster, "n2", tmp_path)
    try:
        found = asked(cluster, tmp_path, "n2", "ECONNRESET", names="ssh_port = '22'")
        assert not found.verdict.found, found.verdict
        assert "remote-shell.gone@n2" in found.verdict.clear
    finally:
        server.end()
    found = asked(cluster, tmp_path, "n2", "ECONNRESET", names="ssh_port = '22'")
    assert named(found) == {"remote-shell.gone@n2"}, found.verdict


def test_a_file_system_whose_server_does_not_answer(cluster: Cluster, tmp_path: Path) -> None:
    """As NFS when its server is gone: whoever looks at it waits."""
    if missing := services.missing():
        pytest.skip(f"needs {', '.join(missing)}")
    files = services.RemoteFiles(tmp_path)
    names = f"shared = '{files.mount}'"
    try:
        found = asked(cluster, tmp_path, "n2", "ECONNRESET", names=names)
        assert not found.verdict.found, found.verdict
        assert {"file-system.hangs@n2", "file-system.gone@n2"} <= set(found.verdict.clear)
        files.stop()
        began = time.monotonic()
        found = asked(cluster, tmp_path, "n2", "ECONNRESET", names=names)
        assert named(found) == {"file-system.hangs@n2"}, found.verdict
        assert time.monotonic() - began < LONG_S, "nothing waited for it"
    finally:
        files.end()


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
