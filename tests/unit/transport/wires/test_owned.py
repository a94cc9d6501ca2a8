"""Which threads, eventfds and event polls are the library's: all of ZeroMQ's and the port's, and none of the program's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, select, sys, threading, time
from ckpt.transport.wires import owned
from ckpt.transport.protocol.config import EndpointConfig
from ckpt.transport.driver.port import Port
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire

def are_open():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            kind = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if kind.startswith("anon_inode:[event"):
            found.add(int(name))
    return found

scheme, directory = sys.argv[1:]
address = {"ipc": lambda name: f"ipc://{directory}/{name}", "tcp": lambda name: "tcp://127.0.0.1:0"}[scheme]
program = {os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)}
poll = select.epoll()
program.add(poll.fileno())
keys = CurveKeys.from_secret(b"x" * 32)
wires = [ZmqWire(address(str(n)), curve=keys) for n in range(2)]
ports = [Port(EndpointConfig(job=1, rank=n, size=2), wire) for n, wire in enumerate(wires)]
for n in (0, 1):
    ports[n].start_helper()
    with ports[n].lock:
        ports[n].set_peer(1 - n, wires[1 - n].address, 0)
program.add(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
assert are_open() - owned.numbers() == program, "small"
assert owned.other_threads() == (1, len(os.listdir("/proc/self/task")) - 1)
large = bytes(1 << 20)
while not wires[0].send(1, (b"head", large)):
    time.sleep(0.001)
assert are_open() - owned.numbers() == program, "large"
assert owned.other_threads()[0] == 1
threading.Thread(target=threading.Event().wait, daemon=True).start()
assert owned.other_threads()[0] == 2
if os.fork() == 0:
    os._exit(owned.other_threads() != (1, 0))
assert os.wait()[1] == 0
assert owned.numbers() <= are_open()
for port in ports:
    port.close()
time.sleep(0.2)  # ZeroMQ closes in a thread of its own
left = owned.numbers()
program.add(os.eventfd(0))
assert are_open() - left == program, "closed"
"""


def test_what_zeromq_and_the_port_open_is_theirs_and_nothing_else_is(tmp_path: Path) -> None:
    for scheme in ("ipc", "tcp"):
        directory = tmp_path / scheme
        directory.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, scheme, directory], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (scheme, done.stderr)
