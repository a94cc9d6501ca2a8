"""Sockets: those that listen come back at their address; connections are refused by name, or reset."""

from __future__ import annotations

import socket
import textwrap
from pathlib import Path

from ckpt import image
from ckpt.image.ipc.survey import survey
from ckpt.image.process import moment
from tests.unit.ckpt.image.support import image_failure, resumed_output

LISTENING = """
import os, socket, socketserver

class Own(socket.socket):
    tag = None

tcp = Own()
tcp.tag = ["own"]
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
tcp.bind(("127.0.0.1", 0))
tcp.listen(7)
address = tcp.getsockname()
twin = tcp.dup()
twin.set_inheritable(True)
served, accepted = socket.create_connection(address), None
accepted, _ = tcp.accept()  # its end in TIME_WAIT keeps the port busy
accepted.close()
served.close()

unix_path = os.path.abspath("listening.sock")
unix = socket.socket(socket.AF_UNIX)
unix.bind(unix_path)
unix.listen()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
udp_address = udp.getsockname()
towards = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
towards.connect(udp_address)
fresh = socket.socket()
fresh.setblocking(False)
closed = socket.socket()
closed.close()

driver_tick()

def ask(family, address, server):
    client = socket.socket(family)
    client.connect(address)
    connection, _ = server.accept()
    client.sendall(b"asked")
    print(connection.recv(10))

print(tcp.getsockname() == address, type(tcp) is Own, tcp.tag, tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
print(tcp.fileno() != twin.fileno(), twin.getsockname() == address, tcp.get_inheritable(), twin.get_inheritable())
ask(socket.AF_INET, address, tcp)
ask(socket.AF_INET, address, twin)
ask(socket.AF_UNIX, unix_path, unix)
towards.send(b"datagram")
print(udp.recv(20), udp.getsockname() == udp_address)
print(fresh.getblocking(), closed, fresh.fileno() > 2)
"""


def test_sockets_that_listen_or_are_not_connected(tmp_path: Path) -> None:
    assert len(resumed_output(tmp_path, LISTENING).splitlines()) == 7


PEER = """
    import os, signal, socket
    server = socket.create_server(("127.0.0.1", 0))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"reset-{os.getpid()}.sock")
    listener.listen()
    peer = os.fork()
    if not peer:
        signal.alarm(30)
        ends = [server.accept(), server.accept(), listener.accept()]
        ends[0][0].sendall(b"first line\\nsecond line\\n")
        signal.pause()
    client, connection = socket.create_connection(server.getsockname()), socket.create_connection(server.getsockname())
    local = socket.socket(socket.AF_UNIX)
    local.connect(listener.getsockname())
    stream = client.makefile("rb")
    first = stream.readline()
"""


def test_a_connection_is_refused_by_name(tmp_path: Path) -> None:
    source = """
    driver_tick()
    os.kill(peer, 9)
    """
    assert "--connections reset" in image_failure(tmp_path, PEER + source)


def test_connections_come_back_as_reset_if_the_user_says_so(tmp_path: Path) -> None:
    source = """
    from ckpt.image import declare_connections
    declare_connections("reset")
    print(first)
    process = os.getpid()
    driver_tick()
    print(stream.readline())
    if process == os.getpid():
        os.kill(peer, 9)
    for each in (client, connection, local):
        try:
            if process != os.getpid():
                each.recv(1)
            else:
                raise ConnectionResetError
        except ConnectionResetError:
            print("reset")
    connection, _ = (client := socket.create_connection(server.getsockname()), server.accept()[0])[::-1]
    client.sendall(b"anew")
    print(connection.recv(10))
    """
    source = textwrap.dedent(PEER + source)
    assert resumed_output(tmp_path, source).splitlines()[1:] == [*["reset"] * 3, "b'anew'"]


def test_a_socket_is_as_it_was_when_the_program_stood_still() -> None:
    """The forked copy that writes the image has the same socket: it saw an address that the program had given it since, and
    the restarted program got EINVAL from its own ``bind``."""
    with socket.socket() as listener:
        fd = listener.fileno()
        prepared = image.prepare(None, {})
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        notes = moment.read(prepared.noted).files
        then, now = (survey(notes, [fd], (), states).sockets[fd] for states in (prepared.sockets, {}))
    assert (then.name, then.backlog) == (None, -1)
    assert now.name is not None and now.backlog >= 0
