"""Real agents and controllers on this machine, and ones that are broken in several ways.

Agent       snmpd with version 2c and 3
Controller  a management controller by IPMI: ipmi_sim of OpenIPMI, with a temperature, a fan, a power state
Service     a Redfish service over HTTPS, with a certificate of its own authority
Silent      UDP and TCP: takes everything and says nothing. Garbage: answers everything with bytes that mean nothing
"""

from __future__ import annotations

import contextlib
import ctypes
import http.server
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SECRET = "s3cr3t-of-the-tests"
V2C = {"community": SECRET}
V3 = {
    "user": "reader",
    "auth_protocol": "SHA",
    "auth_password": SECRET,
    "privacy_protocol": "AES",
    "privacy_password": SECRET + "2",
}
IPMI = {
    "user": "reader",
    "password": SECRET[:16],
    "cipher": "3",
}  # 16 characters are the most for a session of version 1.5
_CLONE_NEWNET = 0x40000000
REDFISH = {"user": "reader", "password": SECRET}


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(is_there: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60  # as long as a busy machine may take
    while not is_there():
        assert time.monotonic() < end, f"{what} has not started"
        time.sleep(0.05)


@contextlib.contextmanager
def within(namespace: str | None) -> Iterator[None]:
    """What this thread opens meanwhile belongs to that network."""
    if namespace is None:
        yield
        return
    kernel = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{namespace}") as other:
        assert kernel.setns(other.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert kernel.setns(own.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


class Agent:
    """snmpd. `address`: for the handler. `subagents`: a socket for parts of what it tells (AgentX). `more`: lines for its
    configuration."""

    def __init__(
        self,
        folder: Path,
        namespace: list[str] | None = None,
        host: str = "127.0.0.1",
        more: str = "",
    ) -> None:
        port = free_port(socket.SOCK_DGRAM)
        self.address = f"{host}:{port}"
        self.subagents = folder / "agentx"
        config = folder / "snmpd.conf"
        config.write_text(
            f"rocommunity {SECRET}\nagentaddress udp:{self.address}\ninterface_fadeout 1\n"
            f"master agentx\nagentXSocket {self.subagents}\n"
            f'createUser reader SHA "{V3["auth_password"]}" AES "{V3["privacy_password"]}"\nrouser reader priv\n{more}'
        )
        words = [
            *(namespace or []),
            str(program("snmpd")),
            "-f",
            "-C",
            "-c",
            str(config),
            "-Lf",
            str(folder / "snmpd.log"),
        ]
        environment = {**os.environ, "SNMP_PERSISTENT_DIR": str(folder / "snmp"), "MIBS": ""}
        self._child = subprocess.Popen(
            [*words, "-p", str(folder / "snmpd.pid")], env=environment, stdin=subprocess.DEVNULL
        )
        until(lambda: "NET-SNMP version" in _text(folder / "snmpd.log"), "snmpd")

    def end(self) -> None:
        self._child.kill()
        self._child.wait()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _sensor(number: int, entity: int, kind: int, unit: int, factor: int, name: str, limits: list[int]) -> str:
    """A full sensor record of IPMI 2.0, section 43.1, for ipmi_sim."""
    body = [
        0x20,
        0,
        number,
        entity,
        1,
        0x7F,
        0x68,
        kind,
        1,
        0x85,
        0x72,
        0x85,
        0x72,
        0x3F,
        0x3F,
        0,
        unit,
        0,
        0,
        factor,
        0,
    ]
    body += [0, 0, 0, 0, 0, 100, 255, 0, 255, 0, *limits, 2, 2, 0, 0, 0, 0xC0 | len(name), *name.encode()]
    return "main_sdr_add 0x20 " + " ".join(f"0x{byte:02x}" for byte in [0, 0, 0x51, 1, len(body), *body])


_PASS = """
import sys

def numbers(text):
    return [int(part) for part in text.strip().strip(".").split(".")]

for line in sys.stdin:
    how = line.strip()
    if how not in ("get", "getnext"):
        print("PONG", flush=True)
        continue
    wanted = numbers(sys.stdin.readline())
    rows = sorted((numbers(line.split()[0]), line.split(None, 2)[1:]) for line in open(sys.argv[1]))
    found = [row for row in rows if (row[0] == wanted if how == "get" else row[0] > wanted)]
    if found:
        print("." + ".".join(map(str, found[0][0])), found[0][1][0], found[0][1][1].strip(), sep="\\n", flush=True)
    else:
        print("NONE", flush=True)
"""


class Told:
    """Objects that an agent takes from a program (`pass_persist` of snmpd.conf), which reads them from a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._program = path.with_name(f"{path.name}.py")
        self._program.write_text(_PASS)

    def tell(self, objects: Mapping[str, tuple[str, int | str]]) -> None:
        """OID → type and value."""
        text = "".join(f"{oid} {kind} {value}\n" for oid, (kind, value) in objects.items())
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(text)
        new.replace(self._path)

    def lines(self, *roots: str) -> str:
        """For the configuration: everything under these is asked of the program."""
        words = f"{sys.executable} -ISE {self._program} {self._path}"
        return "".join(f"pass_persist -p 1 .{root} {words}\n" for root in roots)


class Controller:
    """ipmi_sim. `heat` in degrees C, `fan` in steps of 50 RPM, `power` "on" or "off"."""

    def __init__(self, folder: Path, namespace: list[str] | None = None, host: str = "127.0.0.1") -> None:
        self._folder = folder
        port = free_port(socket.SOCK_DGRAM)
        self.address = f"{host}:{port}"
        (folder / "state").mkdir()
        self.set(heat=45, fan=120, power="on")
        chassis = folder / "chassis"
        chassis.write_text(
            '#!/bin/sh\n# ADDRESS get power …: ipmi_sim asks\nshift; [ "$1" = get ] || exit 0; shift\n'
            f'for word; do case $word in power) [ "$(cat {folder}/power)" = on ] && echo power:1 || echo power:0;;\n'
            "boot) echo boot:default;; esac; done\n"
        )
        chassis.chmod(0o700)
        allowed = "".join(
            f"  allowed_auths_{who} none md2 md5 straight\n"
            for who in ("callback", "user", "operator", "admin")
        )
        (folder / "lan.conf").write_text(
            f'name "bmc"\nset_working_mc 0x20\nstartlan 1\n  addr {host} {port}\n  priv_limit admin\n{allowed}'
            "  guid a123456789abcdefa123456789abcde1\nendlan\n"
            f'chassis_control "{chassis} 0x20"\nuser 1 true "" "" user 10 none md2 md5 straight\n'
            f'user 2 true "{IPMI["user"]}" "{IPMI["password"]}" admin 10 none md2 md5 straight\n'
        )
        events = "enable scanning per-state" + " 000111111000111" * 4
        (folder / "sim.emu").write_text(
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n"
            "sel_enable 0x20 1000 0x0a\n"
            f'sensor_add 0x20 0 1 1 1 poll 100 file "{folder}/heat"\nsensor_set_event_support 0x20 0 1 {events}\n'
            f'sensor_add 0x20 0 2 4 1 poll 100 file "{folder}/fan"\nsensor_set_event_support 0x20 0 2 {events}\n'
            f"{_sensor(1, 3, 1, 1, 1, 'CPU Temp', [95, 85, 75, 0, 0, 0])}\n"
            f"{_sensor(2, 29, 4, 18, 50, 'CPU Fan1', [255, 255, 255, 20, 40, 60])}\nmc_enable 0x20\n"
        )
        words = [
            *(namespace or []),
            str(program("ipmi_sim")),
            "-c",
            f"{folder}/lan.conf",
            "-f",
            f"{folder}/sim.emu",
        ]
        with open(folder / "log", "wb") as log:
            self._child = subprocess.Popen(
                [*words, "-s", f"{folder}/state", "-n"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def set(self, **values: int | str) -> None:
        for name, value in values.items():
            (self._folder / name).write_text(f"{value}\n")

    def end(self) -> None:
        self._child.kill()
        self._child.wait()


class Service:
    """Redfish. `resources`: path → JSON, to be changed; `raw`: path → bytes, instead. `namespace`: of whose network `host`
    is an address, if not of this process's."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", namespace: str | None = None) -> None:
        self.resources: dict[str, Any] = _resources()
        self.raw: dict[str, bytes] = {}
        self.authority = folder / "ca.pem"
        key, request, certificate = (folder / name for name in ("key.pem", "request.pem", "certificate.pem"))
        openssl = str(program("openssl"))
        new = [openssl, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        _run(
            *new,
            "-x509",
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            f"{folder}/ca.key",
            "-out",
            str(self.authority),
        )
        _run(*new, "-subj", "/CN=bmc", "-keyout", str(key), "-out", str(request))
        (folder / "names").write_text(f"subjectAltName=IP:{host}\n")
        signing = ["-CA", str(self.authority), "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-days", "2"]
        _run(
            openssl,
            "x509",
            "-req",
            "-in",
            str(request),
            *signing,
            "-extfile",
            f"{folder}/names",
            "-out",
            str(certificate),
        )
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                import base64

                pair = base64.b64encode(f"{REDFISH['user']}:{REDFISH['password']}".encode()).decode()
                found = service.resources.get(self.path)
                body = service.raw.get(self.path) or json.dumps(found).encode()
                status = 200 if found is not None or self.path in service.raw else 404
                if self.headers["Authorization"] != f"Basic {pair}":
                    status, body = 401, b"{}"
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with within(namespace):
            self._server = http.server.ThreadingHTTPServer((host, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.address = f"{host}:{self._server.server_address[1]}"
        self.secret = {**REDFISH, "ca": str(self.authority)}
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)


def _resources() -> dict[str, Any]:
    well = {"State": "Enabled", "Health": "OK"}
    root = "/redfish/v1"
    return {
        f"{root}/Systems": {"Members": [{"@odata.id": f"{root}/Systems/1"}]},
        f"{root}/Systems/1": {
            "PowerState": "On",
            "ProcessorSummary": {"Status": dict(well)},
            "MemorySummary": {"Status": dict(well)},
            "Storage": {"@odata.id": f"{root}/Systems/1/Storage"},
        },
        f"{root}/Systems/1/Storage": {"Members": [{"@odata.id": f"{root}/Systems/1/Storage/1"}]},
        f"{root}/Systems/1/Storage/1": {
            "Drives": [{"@odata.id": f"{root}/Systems/1/Storage/1/Drives/0"}],
            "StorageControllers": [{"Status": dict(well)}],
        },
        f"{root}/Systems/1/Storage/1/Drives/0": {"Status": dict(well)},
        f"{root}/Chassis": {"Members": [{"@odata.id": f"{root}/Chassis/1"}]},
        f"{root}/Chassis/1": {
            "Thermal": {"@odata.id": f"{root}/Chassis/1/Thermal"},
            "Power": {"@odata.id": f"{root}/Chassis/1/Power"},
            "NetworkAdapters": {"@odata.id": f"{root}/Chassis/1/NetworkAdapters"},
        },
        f"{root}/Chassis/1/NetworkAdapters": {
            "Members": [{"@odata.id": f"{root}/Chassis/1/NetworkAdapters/1"}]
        },
        f"{root}/Chassis/1/NetworkAdapters/1": {"Status": dict(well)},
        f"{root}/Chassis/1/Thermal": {
            "Fans": [
                {"Reading": 6000, "ReadingUnits": "RPM"},
                {"Reading": 5000, "ReadingUnits": "RPM"},
                {"Reading": None},
            ],
            "Temperatures": [
                {"Name": "CPU1 Temp", "ReadingCelsius": 51, "PhysicalContext": "CPU"},
                {"Name": "Inlet", "ReadingCelsius": 99, "PhysicalContext": "Intake"},
                {"Name": "CPU2 Temp", "ReadingCelsius": None, "PhysicalContext": "CPU"},
            ],
        },
        f"{root}/Chassis/1/Power": {
            "PowerSupplies": [{"Status": dict(well)}, {"Status": {"State": "Absent"}}]
        },
    }


class Crossed:
    """Before an agent, in another network: what is asked about an interface is asked about another one, as by an agent that
    mixes its ports up. `index`, `other`: their numbers, less than 128."""

    def __init__(self, agent: str, namespace: str, host: str, index: int, other: int) -> None:
        with within(namespace):
            self._here, self._there = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self._here.bind((host, 0))
        name, _, port = agent.partition(":")
        self._there.connect((name, int(port)))
        self.address = f"{host}:{self._here.getsockname()[1]}"
        # in a request each object's number is followed by a value that is null
        self._old, self._new = (bytes([each]) + b"\x05\x00" for each in (index, other))
        self._end = f"end-{random.random()}".encode()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            data, sender = self._here.recvfrom(65536)
            if data == self._end:
                return
            self._there.send(data.replace(self._old, self._new))
            self._here.sendto(self._there.recv(65536), sender)

    def end(self) -> None:
        self._here.sendto(self._end, self._here.getsockname())
        self._thread.join()
        self._here.close()
        self._there.close()


class Broken:
    """A port of UDP and of TCP, of one number. `garbage`: it answers with random bytes; otherwise it says nothing."""

    def __init__(self, garbage: bool) -> None:
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._tcp.getsockname()[1]}"
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(self._tcp.getsockname())
        self._kept: list[socket.socket] = []
        self._garbage = random.Random(7) if garbage else None
        self._ending = False
        self._threads = [threading.Thread(target=loop) for loop in (self._serve_tcp, self._serve_udp)]
        for thread in self._threads:
            thread.start()

    def _serve_tcp(self) -> None:
        while not self._ending:
            peer, _ = self._tcp.accept()
            if self._garbage and not self._ending:
                peer.sendall(self._garbage.randbytes(500))
            self._kept.append(peer)

    def _serve_udp(self) -> None:
        while not self._ending:
            _, sender = self._udp.recvfrom(65536)
            if self._garbage and not self._ending:
                self._udp.sendto(self._garbage.randbytes(60), sender)

    def end(self) -> None:
        self._ending = True
        here = self._tcp.getsockname()
        socket.create_connection(here).close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", here)
        for thread in self._threads:
            thread.join()
        for each in (*self._kept, self._tcp, self._udp):
            each.close()
