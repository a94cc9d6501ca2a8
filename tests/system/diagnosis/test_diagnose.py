"""`ckpt diagnose` on a host of a small cluster: the switch by SNMP, the peer's controller by IPMI, over a second network.

The peer itself cannot be asked, as when it hangs: what only it could say stays open, and nothing else is made of it.
"""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.cli.main import main
from ckpt.diagnosis import Request
from ckpt.diagnosis.errors import BadCredentials, BadTopology, DiagnosisError
from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import PORT, Cluster, shell

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.turns(8)]
CABLE, OWN = "cable.dark-at-port@n2:eth0-sw1:port2", "cable.dark-at-port@n1:eth0-sw1:port1"


class Bench:
    """Two hosts, a switch with an agent, a controller of n2, and the files for `ckpt diagnose`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Cluster({"n1": "sw1", "n2": "sw1"})
        self.agent: devices.Agent | None = None
        self.controller: devices.Controller | None = None

    def start(self) -> None:
        self.cluster.lay()
        addresses = self.cluster.manage("n1", "sw1")
        for name in ("agent", "controller"):
            (self.folder / name).mkdir()
        self.agent = devices.Agent(
            self.folder / "agent", shell(self.cluster.namespace("sw1")), addresses["sw1"]
        )
        self.controller = devices.Controller(
            self.folder / "controller", shell(self.cluster.namespace("mgmt")), "10.89.0.254"
        )
        host = 'address = "10.87.0.{0}"\ninterface = "eth0"\nswitch = "sw1"\nport = "port{0}"\n'
        (self.folder / "topology.toml").write_text(
            f"[host.n1]\n{host.format(1)}shell = []\n[host.n2]\n{host.format(2)}"
            f'bmc = "{self.controller.address}"\n[switch.sw1]\nsnmp = ["{self.agent.address}"]\n'
        )
        secrets = self.folder / "credentials.toml"
        secrets.touch(0o600)
        parts = {"snmp": devices.V2C, "ipmi": devices.IPMI}
        secrets.write_text(
            "".join(
                f"[{part}]\n" + "".join(f'{k} = "{v}"\n' for k, v in each.items())
                for part, each in parts.items()
            )
        )
        devices.until(lambda: self.is_clear("power.off@n2", "switch.off@sw1"), "it")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        files = [f"--{name}={self.folder}/{name}.toml" for name in ("topology", "credentials")]
        command = [
            *shell(self.cluster.namespace("n1")),
            sys.executable,
            "-m",
            "ckpt",
            "diagnose",
            *words,
            *files,
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def says(self, age: str = "1ms") -> dict[str, Any]:
        done = self.run("n1", "n2", "--port", str(PORT), "--age", age, "--json")
        assert done.stderr == ""
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["exit_code"] == done.returncode == (0 if found["found"] else 1)
        return found

    def is_clear(self, *names: str) -> bool:
        return set(names) <= set(self.says(age="60")["clear"])

    def end(self) -> None:
        for each in (self.agent, self.controller):
            if each is not None:
                each.end()
        self.cluster.remove()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name in ("ip", "nsenter", "snmpd", "ipmitool", "ipmi_sim"):
        if devices.program(name) is None:
            pytest.skip(f"{name} is not installed")
    pytest.importorskip("ezsnmp", reason="ezsnmp is not installed")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    found = Bench(tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.end()


def ids(found: dict[str, Any], key: str) -> set[str]:
    return {each["id"] for each in found[key]}


def cook(bench: Bench) -> None:
    """The fan nearly stands, the processor is hot, the power goes off, and with it the link."""
    assert bench.controller is not None
    bench.controller.set(fan=5, heat=99, power="off")
    bench.cluster.pull("c2")


def dead_controller(bench: Bench) -> None:
    assert bench.controller is not None
    bench.controller.end()
    bench.cluster.pull("c2")


def dead_agent(bench: Bench) -> None:
    assert bench.agent is not None
    bench.agent.end()
    bench.cluster.pull("c1")


CASES: dict[str, tuple[Callable[[Bench], None], set[str], set[str], set[str]]] = {
    # faults, suspects, and some of what the suspects may be instead
    "own cable": (lambda b: b.cluster.pull("c1"), {OWN, "cable.dark-at-interface@n1:eth0-sw1:port1"}, set(), set()),
    "peer's cable": (lambda b: b.cluster.pull("c2"), set(), {CABLE}, {"interface.shut@n2:eth0"}),
    "peer's port": (lambda b: b.cluster.shut("sw1", "port2", "c2", "a"), {"port.shut@sw1:port2"}, set(), set()),
    "own port": (lambda b: b.cluster.shut("sw1", "port1", "c1", "a"), {"port.shut@sw1:port1"}, set(), set()),
    "own interface": (lambda b: b.cluster.shut("n1", "eth0", "c1", "b"), {"interface.shut@n1:eth0"}, set(), set()),
    "process": (lambda b: b.cluster.kill("n2"), {"process.gone@n2"}, set(), set()),
    "fan, heat, power": (cook, {"fan.speed@n2"}, set(), set()),
    "cable, and the controller is dead": (dead_controller, set(), {CABLE}, {"power.off@n2", "fan.speed@n2"}),
    "cable, and the switch is mute": (
        dead_agent,
        set(),
        {"cable.dark-at-interface@n1:eth0-sw1:port1"},
        {"switch.off@sw1", "port.shut@sw1:port1"},
    ),
}  # fmt: skip


@pytest.mark.rotate(9)
@pytest.mark.parametrize("case", CASES)
def test_what_was_done_is_named(case: str, bench: Bench) -> None:
    do, faults, suspects, instead = CASES[case]
    do(bench)
    found: dict[str, Any] = {}

    def is_seen() -> bool:
        """Agents answer from caches of a second: what they said before is no answer to what was done."""
        nonlocal found
        found = bench.says()
        assert ids(found, "faults") <= faults | (
            {"cable.dark-at-interface@n1:eth0-sw1:port1"} if case == "own cable" else set()
        )
        return ids(found, "faults") == faults and ids(found, "suspects") == suspects

    devices.until(is_seen, case)
    assert instead <= {each for suspect in found["suspects"] for each in suspect["instead"]}
    if case == "fan, heat, power":
        assert {"cpu.temperature@n2", "power.off@n2"} <= ids(found, "consequences")
    assert devices.SECRET[:10] not in json.dumps(found)


def test_text_and_check(bench: Bench) -> None:
    def all_answer() -> bool:
        checked = json.loads(bench.run("--check", "n1", "--json").stdout)
        assert checked["credentials"] == ["ipmi", "snmp"]
        return {"snmp", "ipmi", "netlink"} <= {
            row["source"].partition(" ")[0] for row in checked["asked"] if row["answers"]
        }

    devices.until(all_answer, "what is asked")
    text = bench.run("--check", "n1")
    assert text.returncode == 1  # no Redfish there
    assert "no credentials for redfish" in text.stdout
    assert "n2 cannot be asked itself: the topology gives it no shell" in text.stdout
    bench.cluster.kill("n2")
    words = ("n1", "n2", "--error", "ECONNREFUSED", "--port", str(PORT))
    devices.until(lambda: bench.run(*words).returncode == 0, "the answer")
    said = bench.run(*words)
    assert (
        "fault        the process at port 7000 of host n2 is gone (refused, says tcp 10.87.0.2)"
        in said.stdout
    )
    assert devices.SECRET[:10] not in text.stdout + said.stdout


BOTH = """
import json, sys
from ckpt.diagnosis import Request, library
from ckpt.diagnosis.manager import query_all
topology, secrets, models = library.topology(sys.argv[1]), library.credentials(sys.argv[2]), library.load()
both = [
    Request("silent", here, there, topology=topology, models=models, credentials=secrets, age_s=age_s)
    for here, there, age_s in (("n1", "n2", 60.0), ("n2", "n1", 0.0))
]
query_all(both, 40)
print(json.dumps([[each.id for each in both[0].faults], [each.id for each in both[1].suspects],
                  sorted({reply.asked_s for each in both for reply in each.replies.values()})]))
"""


def test_a_suspicion_that_another_error_explains_is_not_asked_about_again(bench: Bench) -> None:
    """n2 lost n1 just now: what the switch says may be older. But n1 had lost n2 before, and so it is known what it is."""
    bench.cluster.pull("c1")
    command = [*shell(bench.cluster.namespace("n1")), sys.executable, "-c", BOTH]
    files = [f"{bench.folder}/{name}.toml" for name in ("topology", "credentials")]
    found: list[Any] = []

    def is_seen() -> bool:
        nonlocal found
        done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=120, check=True)
        found = json.loads(done.stdout)
        return OWN in found[0]

    devices.until(is_seen, "the cable")
    assert found[2] == [0.0], "asked again"


@pytest.mark.serial
def test_whatever_is_dead_it_ends_in_five_seconds(tmp_path: Path) -> None:
    """Controller, switch, peer and the shells to three machines: nothing answers."""
    silent = devices.Broken(garbage=False)
    try:
        host = 'address = "127.0.0.{0}"\ninterface = "eth0"\nswitch = "sw1"\nport = "p{0}"\nshell = ["sleep", "1000"]\n'
        (tmp_path / "t.toml").write_text(
            f'[host.n1]\n{host.format(1)}[host.n2]\n{host.format(2)}bmc = "{silent.address}"\n'
            f'[switch.sw1]\nsnmp = ["{silent.address}", "{silent.address}"]\nshell = ["sleep", "1000"]\n'
        )
        secrets = tmp_path / "c.toml"
        secrets.touch(0o600)
        secrets.write_text(
            '[snmp]\ncommunity = "x"\n[ipmi]\nuser = "x"\npassword = "x"\n[redfish]\nuser = "x"\npassword = "x"\n'
        )
        words = [
            "n1",
            "n2",
            "--topology",
            f"{tmp_path}/t.toml",
            "--credentials",
            str(secrets),
            "--json",
            "--port",
            "1",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "ckpt", "diagnose", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        silent.end()
    found = json.loads(done.stdout)
    assert found["seconds"] < 5
    assert (done.returncode, found["faults"], found["suspects"], found["clear"]) == (1, [], [], [])
    assert len(found["unknown"]) > 20


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "name two hosts"),
        (["n1"], "n1 is no job directory; between two hosts: ckpt diagnose n1 n7"),
        (["n1", "n3"], "no host n3 in the topology"),
        (["n1", "n2", "--error", "ENOENT"], "ENOENT says nothing about a place"),
        (["--explain", "cabel"], "no fault cabel; "),
        (["n1", "n2", "--models", "{tmp}/none"], "No such file"),
        (["n1", "n2", "--models", "{tmp}"], "bad.toml:1: "),
        (["n1", "n2", "--credentials", "{tmp}/open.toml"], "others can read"),
        (["n1", "n2", "--topology", "{tmp}/none.toml"], "No such file"),
        (["--check", "n1", "n2"], "with --check name the host"),
        (["n1", "n2", "--counters", "{tmp}/none.json"], "none.json: this is no file of counters; make one: "),
        (["n1", "n2", "--counters", "{tmp}"], "of the counters at the start of this job there are none"),
        (["--baseline", "n1"], "--baseline asks all hosts and switches of the topology: name no hosts"),
        (["--baseline", "--keep", "x.toml"], "its name has to end in .json"),
        (["n1", "n2", "--keep", "x.json"], "--keep is for --lldp and --baseline"),
    ],
)
def test_bad_input_is_refused(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.toml").write_text("name = 7\n")
    (tmp_path / "open.toml").write_text('[ipmi]\nuser = "x"\n')
    (tmp_path / "open.toml").chmod(0o644)
    topology = tmp_path / "topology" / "topology.toml"
    topology.parent.mkdir()
    topology.write_text("".join(f'[host.n{n}]\naddress = "127.0.0.{n}"\ninterface = "lo"\n' for n in (1, 2)))
    filled = [word.replace("{tmp}", str(tmp_path)) for word in words]
    if "--topology" not in words:
        filled += ["--topology", str(topology)]
    assert main(["diagnose", *filled]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err
    assert said.err.startswith("ckpt: ")
    assert len(said.err.splitlines()) == 1


def test_list_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--list", "--json"]) == 0
    faults = {row["fault"] for row in json.loads(capsys.readouterr().out)["faults"]}
    assert {
        "cable.dark-at-port",
        "fan.speed",
        "power.off",
        "process.gone",
        "route.gone",
        "trunk.dark",
    } <= faults
    assert main(["diagnose", "--explain", "process"]) == 0
    said = capsys.readouterr().out
    assert "may be caused by:\n" in said
    assert "\n  power.off\n    cpu.temperature\n      fan.speed\n" in said
    assert "hidden by: " in said
    for fault in faults:
        assert main(["diagnose", "--explain", fault, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["fault"] == fault


def test_another_machine_is_not_taken_for_the_host(tmp_path: Path) -> None:
    """Without a shell to it, nothing is said of n1: this machine has no device of that name, but n1 may have."""
    (tmp_path / "t.toml").write_text(
        "".join(
            f'[host.{name}]\naddress = "127.0.0.{number}"\ninterface = "no9"\n'
            for number, name in ((8, "not-this-one"), (9, "n2"))
        )
    )
    words = ["not-this-one", "n2", "--topology", f"{tmp_path}/t.toml", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "ckpt", "diagnose", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = json.loads(done.stdout)
    assert (found["faults"], found["suspects"], found["clear"]) == ([], [], [])
    reasons = {each["reason"] for each in found["unknown"] if each["id"].startswith("interface.")}
    assert all(
        "cannot be asked itself: the topology gives it no shell, and this machine is" in each
        for each in reasons
    )


def test_a_model_of_ones_own_is_all_that_new_hardware_needs(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "coolant.toml").write_text(
        'name = "coolant"\ntext = "the pump {pump} of host {host}"\nplace = "host"\nside = "there"\n'
        'errors = ["silent"]\nneeds = ["pump"]\n[[element]]\nname = "flow"\ntext = "pumps too little"\n'
        'queries = [{ handler = "command", value = "number", run = ["echo", "1.5 of {pump}"], pattern = "[0-9.]+" }]\n'
        'low = 2.5\nunit = "l/min"\nproves = true\n'
    )
    (tmp_path / "t.toml").write_text(
        '[host.n1]\naddress = "127.0.0.1"\ninterface = "lo"\nshell = ["env"]\n'
        '[host.n2]\naddress = "127.0.0.2"\ninterface = "lo"\nshell = ["env"]\nnames = { pump = "A" }\n'
    )
    words = ["n1", "n2", "--topology", f"{tmp_path}/t.toml", "--models", f"{tmp_path}/models"]
    command = [sys.executable, "-m", "ckpt", "diagnose", *words]

    def said() -> str:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

    text = "fault        the pump A of host n2 pumps too little (1.5 l/min, says command of n2)"
    devices.until(lambda: text in said(), text)


def test_no_rank_and_no_program_has_it() -> None:
    code = (
        "import sys, ckpt; print([name for name in sys.modules if 'diagnosis' in name or 'pydantic' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_in_python_with_the_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(BadTopology, match="are the same machine; no network is between them"):
        Request("ETIMEDOUT", "localhost", "127.0.0.1")
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "topology.toml").write_text(
        "".join(f'[host.n{n}]\naddress = "127.0.0.{n}"\ninterface = "lo"\nshell = []\n' for n in (1, 2))
    )
    port = devices.free_port(socket.SOCK_STREAM)
    with Request(OSError(errno.ECONNREFUSED, "x"), "n1", "n2", port=port) as request:
        with pytest.raises(DiagnosisError, match="call query"):
            request.faults  # noqa: B018
        request.query(40)
    assert [each.id for each in request.faults] == ["process.gone@n2"]
    assert request.fields()["error"] == "refused"
    (tmp_path / "ckpt" / "credentials.toml").touch(0o644)
    with pytest.raises(BadCredentials, match="others can read"):
        Request("ETIMEDOUT", "n1", "n2")
