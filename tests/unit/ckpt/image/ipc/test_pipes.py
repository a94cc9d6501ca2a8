"""Pipes and pairs of sockets with both ends in the program: they come back with what waits in them."""

from __future__ import annotations

from pathlib import Path

from tests.unit.ckpt.image.support import image_failure, resumed_output

PIPES = """
import fcntl, os, socket, sys

reader, writer = os.pipe()
os.write(writer, b"x" * 60000 + b"end")
copy = os.dup(writer)
os.set_blocking(reader, False)
os.set_inheritable(copy, True)

half, closed = os.pipe()
os.write(closed, b"the rest")
os.close(closed)
nobody, broken = os.pipe()
os.close(nobody)

lines_in, lines_out = os.pipe()
source, sink = os.fdopen(lines_in), os.fdopen(lines_out, "w")
sink.write("first\\nsecond\\nthird\\n")
sink.flush()
assert source.readline() == "first\\n"
sink.write("not yet written\\n")

raw_in, raw_out = os.pipe()
binary = os.fdopen(raw_in, "rb")
os.write(raw_out, b"abcdef")
assert binary.read(2) == b"ab"

left, right = socket.socketpair()
left.sendall(b"to the right")
right.sendall(b"to the left")
left.settimeout(5)
alone, gone = socket.socketpair()
gone.sendall(b"last words")
gone.close()
shut, open_ = socket.socketpair()
shut.sendall(b"all")
shut.shutdown(socket.SHUT_WR)
packets, others = socket.socketpair(type=socket.SOCK_DGRAM)

driver_tick()

print(os.read(reader, 70000)[-5:], os.get_blocking(reader), os.get_inheritable(copy), os.get_inheritable(writer))
os.write(copy, b"again")
print(os.read(reader, 10))
os.close(writer), os.close(copy)
print(os.read(reader, 10))
print(os.read(half, 100), os.read(half, 100))
try:
    os.write(broken, b"-")
except BrokenPipeError:
    print("nobody reads")
print(source.readline(), source.readline())
sink.close()
print(source.read())
os.write(raw_out, b"gh")
print(binary.read(6))

print(left.recv(100), right.recv(100), left.gettimeout(), right.gettimeout(), left.family, left.type)
left.sendall(b"more")
print(right.recv(100))
left.close()
print(right.recv(100))
print(alone.recv(100), alone.recv(100))
print(open_.recv(100), open_.recv(100))
open_.sendall(b"the other direction")
print(shut.recv(100))
packets.send(b"one"), packets.send(b"two")
print(others.recv(10), others.recv(10), packets.type)
"""

POLLS = """
import os, select, selectors, socket

reader, writer = os.pipe()
left, right = socket.socketpair()
epoll = select.epoll()
epoll.register(reader, select.EPOLLIN | select.EPOLLET)
epoll.register(left, select.EPOLLIN)
poll = select.poll()
poll.register(reader, select.POLLIN)
poll.register(left, select.POLLIN | select.POLLOUT)
selector = selectors.DefaultSelector()
selector.register(left, selectors.EVENT_READ, data="left")
closed = select.epoll()
closed.close()
empty = select.epoll()
if hasattr(selectors, "PollSelector"):
    polling = selectors.PollSelector()
    polling.register(reader, selectors.EVENT_READ, data="reader")

driver_tick()

print(epoll.poll(0), selector.select(0), polling.select(0), closed.closed, empty.poll(0))
os.write(writer, b"-")
right.send(b"-")
print(sorted(epoll.poll(1)) == sorted([(reader, 1), (left.fileno(), 1)]), epoll.poll(0) == [(left.fileno(), 1)])
print(sorted(poll.poll(0)) == sorted([(reader, 1), (left.fileno(), 5)]))
print([(key.data, key.fileobj is left, events) for key, events in selector.select(1)])
print([(key.data, key.fd == reader) for key, events in polling.select(1)])
epoll.unregister(left)
selector.unregister(left)
print(epoll.poll(0), selector.select(0))
"""


def test_pipes_and_pairs_come_back_with_their_content(tmp_path: Path) -> None:
    assert len(resumed_output(tmp_path, PIPES).splitlines()) >= 17


def test_polls_wait_for_the_same_descriptors(tmp_path: Path) -> None:
    assert len(resumed_output(tmp_path, POLLS).splitlines()) == 6


def test_datagrams_that_wait_are_refused_by_name(tmp_path: Path) -> None:
    source = """
    import socket
    one, other = socket.socketpair(type=socket.SOCK_DGRAM)
    one.send(b"waits")
    driver_tick()
    """
    assert "pair of sockets cannot be read without taking it out" in image_failure(tmp_path, source)


def test_a_file_object_over_a_pipe_to_another_process_is_refused_by_name(tmp_path: Path) -> None:
    source = """
    import os, sys
    reader, writer = os.pipe()
    if not os.fork():
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    file = os.fdopen(writer, "wb")
    driver_tick()
    """
    assert "pipe" in image_failure(tmp_path, source)
