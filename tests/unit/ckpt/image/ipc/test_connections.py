"""Connections with both ends in the program come back whole: over TCP and over Unix sockets with names."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.image.ipc import tcp_ends
from ckpt.image.ipc.tcp_ends import refuse_unfinished
from ckpt.image.process import moment
from tests.unit.ckpt.image.support import image_failure, resumed_output

WHOLE = """
import os, select, socket, struct

def joined(server):
    client = socket.socket(server.family)
    client.connect(server.getsockname())
    return client, server.accept()[0]

server = socket.create_server(("127.0.0.1", 0))
plain = socket.socket()  # without SO_REUSEADDR
plain.bind(("127.0.0.1", 0))
plain.listen()
both = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
path = os.path.abspath("served.sock")
unix = socket.socket(socket.AF_UNIX)
unix.bind(path)
unix.listen()

client, accepted = joined(server)
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
client.sendall(b"to the server")
accepted.sendall(b"to the client" * 2_000)
copy = accepted.dup()
accepted.setblocking(False)
stream = client.makefile("rb")
print(stream.read(5))
addresses = [(each.getsockname(), each.getpeername()) for each in (client, accepted)]

mapped, mapped_end = socket.create_connection(("127.0.0.1", both.getsockname()[1])), None
mapped_end, _ = both.accept()
mapped_end.sendall(b"through IPv6")
other, other_end = joined(plain)
other.sendall(b"other")
local, local_end = joined(unix)
local.sendall(b"local")
local_end.sendall(b"answer")

asked, answering = joined(server)  # an answer of HTTP/1.0: the server has closed its end
asked.sendall(b"GET")
print(answering.recv(3))
answering.sendall(b"answer, and the end")
answering.close()
half, half_end = joined(server)
half.sendall(b"all")
half.shutdown(socket.SHUT_WR)
both_over = [joined(server) for _ in range(2)]
for mine, its in both_over:  # two ends of the same name, and no peer
    mine.shutdown(socket.SHUT_WR)
    its.sendall(b"finished")
    its.shutdown(socket.SHUT_WR)
over, over_end = joined(server)
over.shutdown(socket.SHUT_WR)
over_end.sendall(b"rest")
over_end.close()
reset, reset_end = joined(server)
reset_end.sendall(b"first")
reset_end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
reset_end.close()
gone, gone_end = joined(unix)
gone_end.sendall(b"last words")
gone_end.close()
lined, lined_end = joined(server)  # buffers that read and write
lines, text = lined.makefile("rwb"), lined_end.makefile("rw")
lines.write(b"one\\ntwo\\n")
lines.flush()
lines.write(b"not yet sent\\n")
text.write("three\\n")
text.flush()
print(text.readline())
spent = lined.makefile("rwb")
spent.close()
deaf, deaf_end = joined(server)
deaf.shutdown(socket.SHUT_RD)
refused = socket.socket()
refused.setblocking(False)
unused = socket.create_server(("127.0.0.1", 0))
nowhere = unused.getsockname()
unused.close()
refused.connect_ex(nowhere)

driver_tick()

print([(each.getsockname(), each.getpeername()) for each in (client, accepted)] == addresses)
print(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
print(accepted.recv(100), accepted.getblocking(), copy.fileno() != accepted.fileno())
print(len(stream.read(13 * 2_000 - 5)))
accepted.close()
copy.sendall(b"more")
copy.close()
print(stream.read(), select.select([client], [], [], 0)[0] == [client])
print(mapped.recv(100), mapped_end.getsockname()[0], mapped_end.getpeername()[1] == mapped.getsockname()[1])
print(other_end.recv(100), local_end.recv(100), local.recv(100), local_end.getsockname() == path == local.getpeername())
print(asked.recv(100), asked.recv(100))
print(half_end.recv(100), half_end.recv(100))
half_end.sendall(b"the other direction")
print(half.recv(100))
print(over.recv(100), over.recv(100))
print([(mine.recv(100), mine.recv(100), its.recv(100)) for mine, its in both_over])
lines.flush()
print(text.readline(), text.readline(), lines.readline(), spent.closed)
print(reset.recv(100))
try:
    reset.recv(100)
except ConnectionResetError as failure:
    print(failure)
print(gone.recv(100), gone.recv(100), deaf.recv(10))
ends = [other, other_end]
for each in (server, plain, unix):
    one, another = joined(each)
    one.sendall(b"anew")
    print(another.recv(10))
    ends += [one, another]
for end in ends:  # they leave no TIME_WAIT
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
"""


def test_connections_within_the_program_come_back_whole(tmp_path: Path) -> None:
    assert len(resumed_output(tmp_path, WHOLE).splitlines()) == 21


def test_what_has_not_arrived_is_waited_for() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        accepted.sendall(b"has arrived, and is not confirmed yet")
        refuse_unfinished(_frames.unfinished(moment.note()))
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while client.send(bytes(1 << 20)):
                pass
        with pytest.raises(Refused, match="have not arrived yet"):
            refuse_unfinished(_frames.unfinished(moment.note()))


def _counted(connection: socket.socket) -> dict[str, int]:
    """Of struct tcp_info (linux/tcp.h)."""
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    numbers = (*struct.unpack_from("B", told), *struct.unpack_from("2Q", told, 120))
    numbers += struct.unpack_from("2Q", told, 200)
    names = ("state", "bytes_acked", "bytes_received", "bytes_sent", "bytes_retrans")
    return dict(zip(names, numbers, strict=True))


def _sent_again_bytes(connection: socket.socket) -> int:
    return _counted(connection)["bytes_retrans"]


def _wait_until_finished(*ends: socket.socket) -> None:
    """The other end may acknowledge a moment later, as on a busy machine. Other tests may have left a connection open."""
    deadline = time.monotonic() + 10
    while {end.fileno() for end in ends} & set(_frames.unfinished(moment.note())):
        assert time.monotonic() < deadline, [_counted(end) for end in ends]
        time.sleep(0.001)


def test_a_connection_on_which_a_segment_was_sent_again_is_no_obstacle_for_ever() -> None:
    """Two small segments that wait for a delayed ACK make Linux send the last one again (tail loss probe, RFC 8985). A
    program of asyncio got no checkpoint from then on to its end."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(200):
            for sender, receiver in ((client, accepted), (accepted, client)):
                sender.sendall(b"in turn")
                receiver.recv(100)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            client.sendall(b"one")
            client.sendall(b"two")
            time.sleep(0.02)
            if _sent_again_bytes(client):
                break
            accepted.recv(100)
        else:
            pytest.skip("this kernel sends nothing again here")
        for is_read in (False, True):
            if is_read:
                accepted.recv(100)
            _wait_until_finished(client, accepted)
        client.sendall(b"three")
        accepted.shutdown(socket.SHUT_WR)
        _wait_until_finished(client, accepted)
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while client.send(bytes(1 << 20)):
                pass
        assert _frames.unfinished(moment.note())


def test_a_connection_that_another_process_has_not_accepted_is_not_taken_for_the_programs_own() -> None:
    """It was waited for two seconds, and the reason said that the program itself listens there."""
    listens = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", listens], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        with socket.create_connection(("127.0.0.1", int(other.stdout.readline()))) as client:
            refuse_unfinished(_frames.unfinished(moment.note()))
            reason = tcp_ends.reason_against(client)
            other.stdin.close()
    assert reason is not None and "the program itself listens" not in reason


def test_a_connection_that_is_not_accepted_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        with pytest.raises(Refused, match="has not accepted it yet"):
            refuse_unfinished(_frames.unfinished(moment.note()))
        monkeypatch.setattr(tcp_ends, "_NEW_S", 0)
        refuse_unfinished(_frames.unfinished(moment.note()))  # nobody accepts it: the image itself fails
        assert client.getpeername() == server.getsockname()
    source = """
    import socket
    server = socket.socket(socket.AF_UNIX)
    server.bind("s")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect("s")
    driver_tick()
    """
    assert "has not accepted it yet" in image_failure(tmp_path, source)
