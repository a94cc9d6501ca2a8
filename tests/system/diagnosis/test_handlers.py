"""One suite for all handlers: what each says of a device that is well, and of every way in which one can be broken.

Everything goes the way of a diagnosis: in processes of its own, at once, with a deadline.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.diagnosis.asking import Question, Ready, Reply, ask
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.handlers.face import HANDLERS
from ckpt.diagnosis.library import load as load_models
from tests.system.diagnosis import devices

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]
LONG_S = 40  # how busy the machine is decides nothing


def question(handler: str, shell: tuple[str, ...] = (), **arguments: Any) -> Question:
    return Question("m", shell, sys.executable, handler, json.dumps(arguments, sort_keys=True))


def secrets(**by_part: dict[str, str]) -> Credentials:
    return Credentials({part: {"": values} for part, values in by_part.items()})


def one(handler: str, credentials: Credentials | None = None, **arguments: Any) -> Reply:
    asked = question(handler, **arguments)
    return ask([asked], credentials or Credentials(), LONG_S)[asked]


def needs(*names: str) -> None:
    for name in names:
        if devices.program(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.fixture
def silent() -> Iterator[devices.Broken]:
    broken = devices.Broken(garbage=False)
    yield broken
    broken.end()


@pytest.fixture
def garbage() -> Iterator[devices.Broken]:
    broken = devices.Broken(garbage=True)
    yield broken
    broken.end()


# ---- what they have in common --------------------------------------------------------------------------


@pytest.mark.parametrize("name", HANDLERS)
def test_a_handler_says_what_it_takes(name: str) -> None:
    face = HANDLERS[name]
    module = importlib.import_module(f"ckpt.diagnosis.handlers.{face.module}")
    assert callable(module.ask)
    for argument in face.needs | face.takes:
        assert argument in str(module.__doc__).partition("values")[0], argument


def test_what_is_asked_of_a_dead_or_senseless_device_is_a_reason(
    silent: devices.Broken, garbage: devices.Broken
) -> None:
    """All of it at once, within the deadline: nothing has a value, everything a reason, and no reason has a secret."""
    needs("ipmitool")
    closed = f"127.0.0.1:{devices.free_port(socket.SOCK_DGRAM)}"
    nobody = str(devices.free_port(socket.SOCK_STREAM))
    questions = [
        *(
            question(name, address=where.address)
            for name in ("snmp", "ipmi", "redfish")
            for where in (silent, garbage)
        ),
        *(question(name, address=closed) for name in ("snmp", "ipmi", "redfish")),
        question("snmp", address="127.0.0.1:1x"),
        question("tcp", address="no such host.invalid", port=nobody),
        question("command", run=["/no/such/program"]),
        question("command", run=["echo", "x"], pattern="y"),
        question("command", run=["yes"]),
        question("sysfs", files="/sys/no/such/file*"),
        question("kernel-log", pattern="("),
        question("netlink", device="lo", address="no address"),
        question("sockets", port="x"),
        question("lldp", socket="/no/such/socket"),
        *(question("snmp", address=where.address, table="lldp") for where in (silent, garbage)),
        question("tcp", shell=("/no/such/shell",), address="127.0.0.1", port=nobody),
        question(
            "tcp", shell=("sh", "-c", "echo hello; echo why >&2; exit 7"), address="127.0.0.1", port=nobody
        ),
    ]
    replies = ask(questions, secrets(snmp=devices.V2C, ipmi=devices.IPMI, redfish=devices.REDFISH), 16)
    assert set(replies) == set(questions)
    for asked, reply in replies.items():
        assert reply.values == {}, asked
        assert reply.reason, asked
        assert devices.SECRET[:10] not in reply.reason
    said = {(asked.handler, asked.shell): reply.reason for asked, reply in replies.items()}
    assert said["tcp", ("/no/such/shell",)] == "/no/such/shell cannot be started: No such file or directory"
    assert said["tcp", ("sh", "-c", "echo hello; echo why >&2; exit 7")].endswith(
        "ended with exit code 7: why"
    )


def test_a_remote_shell_that_has_ended_is_told_with_its_time_and_not_the_limit() -> None:
    """`ckpt diagnose --check` said that ssh had taken 5 s where it had ended at once."""
    ended = question("tcp", shell=("sh", "-c", "exit 7"), address="127.0.0.1", port="1")
    slow = question("command", run=["sleep", "1000"], within_s=1)
    replies = ask([ended, slow], Credentials(), 10)
    assert "exit code 7" in replies[ended].reason and replies[ended].after_s < replies[slow].after_s < 10


def test_without_credentials_nothing_is_sent() -> None:
    for name in ("snmp", "ipmi", "redfish"):
        reply = one(name, address="127.0.0.1:1")
        assert reply.reason == f"127.0.0.1:1: no credentials for {name}"
        assert not reply.silent


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """A remote shell that hangs, and a command with children of its own: all of it is gone after the answer."""
    notes = [tmp_path / "shell", tmp_path / "command"]
    hanging = question(
        "tcp", shell=("sh", "-c", f"echo $$ > {notes[0]}; sleep 1000; true"), address="127.0.0.1", port="1"
    )
    command = question("command", run=["sh", "-c", f"sleep 1000 & echo $! > {notes[1]}; wait"], within_s=0.5)
    replies = ask([hanging, command], Credentials(), 10)
    assert replies[command].values == {"late": "yes"}
    assert replies[hanging].reason == "no answer within 10 s"
    assert replies[hanging].silent
    for note in notes:
        pid = int(note.read_text())
        state = devices._text(Path(f"/proc/{pid}/stat"))
        assert not state or state.rpartition(")")[2].split()[0] in "ZX", state


def test_a_secret_is_on_no_command_line_and_in_no_environment(silent: devices.Broken, tmp_path: Path) -> None:
    """Looked at in all processes while three handlers wait for a controller that says nothing."""
    needs("ipmitool")
    questions = [question(name, address=silent.address) for name in ("snmp", "ipmi", "redfish")]
    credentials = secrets(snmp=devices.V2C, ipmi=devices.IPMI, redfish=devices.REDFISH)
    asking = threading.Thread(target=ask, args=(questions, credentials, 8))
    asking.start()
    seen = set()
    while asking.is_alive():
        for pid in descendants(os.getpid()):
            for name in ("cmdline", "environ"):
                try:
                    text = Path(f"/proc/{pid}/{name}").read_bytes()
                except OSError:
                    continue
                seen.add(b"ipmitool" in text)
                assert devices.SECRET[:10].encode() not in text
    asking.join()
    assert seen == {False, True}


def descendants(pid: int) -> Iterator[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except FileNotFoundError:  # it has ended meanwhile
        return
    for path in threads:
        for child in map(int, devices._text(path).split()):
            yield child
            yield from descendants(child)


def test_a_shell_that_prints_for_ever_is_no_answer() -> None:
    flood = question("tcp", shell=("sh", "-c", "tr '\\0' x < /dev/zero; true"), address="127.0.0.1", port="1")
    lines = question(
        "tcp",
        shell=("sh", "-c", "echo '{\"id\": 9}'; echo '[]'; echo '{\"id\": 0}'; true"),
        address="x",
        port="1",
    )
    replies = ask([flood, lines], Credentials(), LONG_S)
    assert replies[flood].values == replies[lines].values == {}
    assert replies[lines].reason == "an answer without a value"


def test_a_shell_that_reads_nothing_holds_nobody_up() -> None:
    """A pipe takes 64 KiB; the rest was waited for without end (ssh to a host that is dead reads nothing)."""
    hung = [
        question("tcp", shell=("sh", "-c", "exec sleep 1000"), address="127.0.0.1", port=f"{number:01000}")
        for number in range(200)
    ]
    own = question("command", run=["echo", "here"])
    replies = ask([*hung, own], Credentials(), 2.0)
    assert replies[own].values["exit"] == 0
    assert all(replies[each].silent for each in hung)


def test_processes_that_are_ready_ask_what_they_are_given_and_no_more(tmp_path: Path) -> None:
    note = tmp_path / "note"
    noted = question("command", run=["sh", "-c", f"echo x >> {note}"])
    other = question("command", run=["echo", "here"])
    ready = Ready()
    ready.start([noted])
    [pid] = [worker.child.pid for worker in ready._waiting.values()]
    assert ask([other], Credentials(), LONG_S, ready=ready)[other].values["exit"] == 0
    assert not note.exists(), "it was started for that, and not asked"
    assert not os.path.exists(f"/proc/{pid}"), "it was the one that was asked"
    ready.start([noted])
    [waiting] = ready._waiting.values()
    ready.end()
    assert waiting.child.poll() is not None and not note.exists()
    ready.start([noted])
    assert ready._waiting == {}, "it is over"


def test_a_process_that_has_ended_while_it_waited_is_replaced() -> None:
    asked = question("command", run=["echo", "here"])
    ready = Ready()
    ready.start([asked])
    [worker] = ready._waiting.values()
    worker.kill()
    worker.child.wait()
    assert ask([asked], Credentials(), LONG_S, ready=ready)[asked].values["exit"] == 0


def test_equal_questions_are_asked_once(tmp_path: Path) -> None:
    note = tmp_path / "note"
    asked = [question("command", run=["sh", "-c", f"echo x >> {note}"]) for _ in range(5)]
    assert len(ask(asked, Credentials(), LONG_S)) == 1
    assert note.read_text() == "x\n"


# ---- each of them --------------------------------------------------------------------------------------


def test_command() -> None:
    assert one("command", run=["sh", "-c", "echo flow 2.5; exit 3"], pattern=r"flow ([0-9.]+)").values == {
        "exit": 3,
        "late": "no",
        "text": "2.5",
        "number": 2.5,
        "highest": 2.5,
        "lowest": 2.5,
    }
    assert one("command", run=["echo", "bad"], pattern="bad|worse").values["text"] == "bad"
    assert one("command", run=["sleep", "100"], within_s=0.2).values == {"late": "yes"}


def test_of_several_gpus_the_one_with_errors_counts() -> None:
    """What nvidia-smi prints of three, one of which has no ECC: the first one is well."""
    [ecc] = [
        each
        for model in load_models()
        if model.name == "gpu"
        for each in model.element
        if each.queries[0].value == "highest"
    ]
    pattern = ecc.queries[0].arguments["pattern"]
    assert one("command", run=["printf", r"0\n[N/A]\n3\n"], pattern=pattern).values["highest"] == 3
    assert one("command", run=["printf", r"0\n0\n"], pattern=pattern).values["highest"] == 0
    assert one("command", run=["printf", r"[N/A]\n"], pattern=pattern).reason.startswith(
        "printf printed nothing that matches"
    )


def test_tcp_and_sockets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert one("tcp", address="127.0.0.1", port=port).values == {"answer": "accepted", "alive": "yes"}
        assert one("sockets", port=str(port)).values == {"listening": "yes"}
    assert one("tcp", address="127.0.0.1", port=port).values == {"answer": "refused", "alive": "yes"}
    assert one("sockets", port=port).values == {"listening": "no"}


def test_netlink() -> None:
    found = one("netlink", device="lo", address="127.0.0.1", peer="127.0.0.9").values
    assert found["present"] == found["alive"] == "yes"
    assert (found["admin"], found["carrier"], found["address"], found["route"]) == (
        "up",
        "up",
        "present",
        "present",
    )
    assert found["mtu"] == 65536
    assert one("netlink", device="lo", mtu="65536").values["mtu_is"] == "right"
    assert one("netlink", device="lo", mtu="9000").values["mtu_is"] == "wrong"
    assert one("netlink", device="lo", address="10.255.255.1").values["address"] == "gone"
    assert one("netlink", device="lo", peer="::1").values["route"] == "present"
    assert "neighbour" not in one("netlink", device="lo", peer="127.0.0.9").values
    assert one("netlink", device="none9").values == {"present": "no", "alive": "yes"}


def test_sysfs(tmp_path: Path) -> None:
    for name, text in {"a": "3\n", "b": "4000", "c": "bad", "d": ""}.items():
        (tmp_path / name).write_text(text)
    found = one("sysfs", files=f"{tmp_path}/[abc]", scale=0.001).values
    assert found == {"highest": 4, "lowest": 0.003, "sum": 4.003, "count": 2, "text": "3", "worst": "3"}
    assert one("sysfs", files=[f"{tmp_path}/c"]).values == {"text": "bad", "worst": "bad"}


@pytest.mark.root
def test_kernel_log() -> None:
    mark = f"diagnosis-test-{os.getpid()}"
    try:
        with open("/dev/kmsg", "w") as log:
            log.write(f"{mark} Out of memory: Killed process 1\n")
    except OSError as error:
        pytest.skip(f"another kernel: /dev/kmsg cannot be written here: {error.strerror}")
    found = one("kernel-log", pattern=f"{mark} Out of memory", seconds=60).values
    assert found["matches"] == 1
    assert str(found["last"]).endswith("Killed process 1")
    assert one("kernel-log", pattern=f"{mark}x").values == {"matches": 0}


def test_snmp(tmp_path: Path, silent: devices.Broken) -> None:
    needs("snmpd")
    pytest.importorskip("ezsnmp", reason="ezsnmp is not installed")
    agent = devices.Agent(tmp_path)
    try:
        for secret in (devices.V2C, devices.V3):
            questions = [
                question("snmp", address=agent.address, port="lo"),
                question("snmp", address=f"{silent.address},{agent.address}", port="lo"),
                question("snmp", address=agent.address, oid="1.3.6.1.2.1.2.1.0"),
                question("snmp", address=agent.address),
                question("snmp", address=agent.address, port="no such port"),
                question("snmp", address=agent.address, oid="1.3.6.1.4.1.99999.1.0"),
            ]
            port = {"alive": "yes", "admin": "up", "link": "up", "in_errors": 0, "out_errors": 0}
            by_question = ask(questions, secrets(snmp=secret), 8)
            replies = [by_question[each] for each in questions]
            for reply in replies[:2]:
                assert port.items() <= reply.values.items(), replies
                more = {"in_packets", "out_packets", "in_discards", "out_discards", "in_bytes", "out_bytes"}
                assert reply.values.keys() - port.keys() == more
            assert float(replies[2].values["value"]) >= 1  # ifNumber
            assert replies[3].values == {"alive": "yes"}
            assert replies[4].reason == f"{agent.address} has no port no such port: is the topology right?"
            assert replies[5].reason == f"{agent.address} has no object 1.3.6.1.4.1.99999.1.0"
        for wrong in ({"community": "wrong"}, {**devices.V3, "auth_password": "another-password"}):
            asked = question("snmp", address=agent.address)
            reply = ask([asked], secrets(snmp=wrong), 4)[asked]
            assert reply.reason == f"{agent.address}: no answer (or another community, user or password)"
    finally:
        agent.end()


def test_ipmi(tmp_path: Path) -> None:
    needs("ipmitool", "ipmi_sim")
    controller = devices.Controller(tmp_path)
    known = secrets(ipmi=devices.IPMI)
    try:
        fan = question("ipmi", address=controller.address, sensor="fan")
        heat = question("ipmi", address=controller.address, sensor="cpu.*temp")
        none = question("ipmi", address=controller.address, sensor="pump")
        devices.until(lambda: bool(ask([fan], known, LONG_S)[fan].values.get("lowest")), "ipmi_sim")
        replies = ask([fan, heat, none], known, LONG_S)
        assert replies[fan].values == {"power": "on", "highest": 6000, "lowest": 6000, "count": 1}
        assert replies[heat].values == {"power": "on", "highest": 45, "lowest": 45, "count": 1}
        assert replies[none].values == {"power": "on"}
        controller.set(heat=99, fan=5)
        devices.until(lambda: ask([fan], known, LONG_S)[fan].values.get("lowest") == 250, "the fan")
        controller.set(power="off", fan=0)
        devices.until(lambda: "lowest" not in ask([fan], known, LONG_S)[fan].values, "the power")
        # A fan that stands without power is well
        assert ask([fan], known, LONG_S)[fan].values == {"power": "off"}
        wrong = one("ipmi", secrets(ipmi={**devices.IPMI, "password": "wrong"}), address=controller.address)
        assert wrong.values == {}
        assert "session" in wrong.reason
    finally:
        controller.end()


def test_redfish(tmp_path: Path) -> None:
    needs("openssl")
    service = devices.Service(tmp_path)
    known = secrets(redfish=service.secret)
    root = "/redfish/v1"
    try:
        parts = dict.fromkeys(
            ("processors", "memory", "drives", "disk_controllers", "supplies", "network"), "no"
        )
        well = {"power": "on", "slowest_fan": 5000, "hottest_cpu": 51, **parts}
        assert one("redfish", known, address=service.address).values == well
        service.resources[f"{root}/Systems/1"]["PowerState"] = "Off"
        service.resources[f"{root}/Systems/1"]["MemorySummary"]["Status"]["Health"] = "Critical"
        service.resources[f"{root}/Systems/1/Storage/1/Drives/0"]["Status"]["Health"] = "Critical"
        service.resources[f"{root}/Chassis/1/Thermal"]["Fans"][1]["Reading"] = 0
        found = one("redfish", known, address=service.address).values
        assert found == {**well, "power": "off", "memory": "yes", "drives": "yes", "slowest_fan": 6000}
        service.resources[f"{root}/Systems/1/Storage/1"]["StorageControllers"][0]["Status"]["Health"] = (
            "Critical"
        )
        service.resources[f"{root}/Chassis/1/NetworkAdapters/1"]["Status"]["Health"] = "Critical"
        failed = one("redfish", known, address=service.address).values
        assert failed == {**found, "disk_controllers": "yes", "network": "yes"}
        wrong = one("redfish", secrets(redfish={**service.secret, "password": "x"}), address=service.address)
        assert wrong.reason == f"{service.address} refuses the name or the password (401)"
        unknown = one("redfish", secrets(redfish=devices.REDFISH), address=service.address)
        assert "its certificate is not trusted" in unknown.reason
        assert "give ca in the credentials" in unknown.reason
        lost = one(
            "redfish", secrets(redfish={**service.secret, "ca": "/no/such/file"}), address=service.address
        )
        assert lost.reason == f"{service.address}: the file of the certificate (ca) cannot be read"
        service.raw[f"{root}/Systems"] = b"{not JSON"
        assert (
            one("redfish", known, address=service.address).reason
            == f"{service.address}: what it answers is no JSON"
        )
        service.raw[f"{root}/Systems"] = b'{"Members": [7, {"@odata.id": 7}, {"@odata.id": "/elsewhere"}]}'
        service.resources[f"{root}/Chassis/1/Thermal"] = {"Fans": 3, "Temperatures": [None]}
        service.resources[f"{root}/Chassis/1/Power"] = ["x"]
        service.resources[f"{root}/Chassis/1/NetworkAdapters"] = {"Members": {"x": 1}}
        assert one("redfish", known, address=service.address).reason == "an answer without a value"
    finally:
        service.end()


def test_the_process_that_asks_ends_by_itself_when_nobody_waits_for_it(tmp_path: Path) -> None:
    """As on another machine, where the shell that started it is gone: the kernel ends it, whatever hangs in it."""
    os.mkfifo(tmp_path / "fifo")  # nobody writes to it: to open it takes for ever
    query = {"id": 0, "handler": "sysfs", "arguments": {"files": str(tmp_path / "fifo")}, "secret": None}
    done = subprocess.run(
        [sys.executable, "-m", "ckpt.diagnosis.handlers"],
        input=json.dumps({"within_s": 0.2, "queries": [query]}) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGALRM
    assert done.stdout == ""
