"""What a port does when peers die, are slow or compute for long, and when its own program is interrupted."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ckpt.transport.errors import AddressError, AddressInUse, WireClosed
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire
from tests.system.transport.port_ranks import PortRanks, World, exchange

pytestmark = pytest.mark.system

HUNDRED = [b"message %d" % index for index in range(100)]


def survivor(world: World) -> list[Any]:
    """Rank 0 sends to a rank that dies before it has acked anything, and talks to rank 2 meanwhile."""
    if world.rank == 0:
        for message in HUNDRED:
            world.send(1, message)
        return [bytes(world.receive(2)) for _ in range(50) if world.send(2, b"ping") >= 0]
    if world.rank == 2:
        return [world.send(0, bytes(world.receive(0)) + b"-pong") for _ in range(50)]
    if world.incarnation == 0:
        time.sleep(60)  # acks nothing: there is no helper in this test
    return [bytes(world.receive(0)) for _ in HUNDRED]


def test_killed_peer_gets_everything_in_its_next_incarnation(tmp_path: Path) -> None:
    with PortRanks(survivor, size=3, directory=tmp_path, helper=False) as ranks:
        time.sleep(0.3)
        ranks.kill(1)
        time.sleep(0.2)
        ranks.restart(1)
        pongs, received, _ = ranks.results(timeout_s=100)
    assert received == HUNDRED
    assert pongs == [b"ping-pong"] * 50


def slow_receiver(world: World, *, nbytes: int, count: int) -> dict[str, int]:
    """Rank 0 sends far more than the credit; rank 1 computes for a while before it takes anything."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held = 0
    if world.rank == 0:
        message = bytes(nbytes)
        for _ in range(count):
            world.send(1, message, highest_backlog=4 << 20)
        world.settle()
    else:
        with world.port.lock:
            while not world.mailbox[0]:
                world.port.wait()
        time.sleep(1.0)
        with world.port.lock:
            held = sum(map(len, world.mailbox[0]))
        for _ in range(count):
            assert len(world.receive(0)) == nbytes
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"held": held, "grown_kib": after - before}


def test_slow_receiver_stops_the_sender_in_bounded_memory(tmp_path: Path) -> None:
    credit = 2 << 20
    config = {"credit_bytes": credit, "initial_credit_bytes": credit}
    with PortRanks(
        slow_receiver, size=2, directory=tmp_path, config=config, nbytes=50_000, count=3000
    ) as ranks:
        sender, receiver = ranks.results(timeout_s=100)
    assert 0 < receiver["held"] <= 2 * credit
    assert max(sender["grown_kib"], receiver["grown_kib"]) < 60_000, (
        "150 MB passed, nobody may hold much of it"
    )


def computing(world: World) -> int:
    """Rank 1 computes without the library; rank 0's messages are taken and acked meanwhile, by rank 1's helper:
    without it neither of them would ever come to its end."""
    if world.rank == 0:
        for _ in range(5):
            world.send(1, b"x" * 100)
            world.settle()
        world.send(1, b"end")
        return 5
    while len(world.mailbox[0]) < 6:
        sum(range(20_000))
    return len(world.mailbox[0])


def test_helper_acks_while_the_application_computes(tmp_path: Path) -> None:
    with PortRanks(computing, size=2, directory=tmp_path) as ranks:
        assert ranks.results(timeout_s=100) == [5, 6]


def idle(world: World) -> dict[str, float]:
    """After some traffic both ranks do nothing at all.

    Rank 0 outside of the library, rank 1 blocked inside.
    """
    exchange(world, count=20, is_last=False)
    time.sleep(0.2)
    before_s, ticks, began = time.process_time(), world.counters()["helper_ticks"], time.monotonic()
    if world.rank == 0:
        time.sleep(1.0)
        used_s = time.process_time() - before_s
        world.send(1, b"end")
    else:
        world.receive(0)
        used_s = time.process_time() - before_s
    lasted_s = time.monotonic() - began  # longer than a second on a busy machine
    return {
        "used": used_s / lasted_s,
        "ticks_a_s": (world.counters()["helper_ticks"] - ticks) / lasted_s,
    }


@pytest.mark.serial
@pytest.mark.timing
def test_idle_ranks_cost_next_to_nothing(tmp_path: Path) -> None:
    with PortRanks(idle, size=2, directory=tmp_path) as ranks:
        outside, inside = ranks.results(timeout_s=100)
    assert outside["used"] < 0.05 and outside["ticks_a_s"] < 30
    assert inside["used"] < 0.1


def interrupted(world: World, *, count: int, ready: str) -> dict[str, int]:
    """A program that is interrupted within library calls and goes on.

    It may not lose or double a message for it.
    """
    armed, interrupts, received, sent = False, 0, [], 0
    peer = 1 - world.rank

    def interrupt(number: int, frame: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    world.port.interrupts.install()
    Path(f"{ready}.{world.rank}").touch()
    while len(received) < count:
        try:
            with world.port.lock:
                armed = True
                if sent == len(received):
                    world.port.send(peer, b"%d" % sent)
                    sent += 1
                while not world.mailbox[peer]:
                    world.port.wait()
                received.append(bytes(world.mailbox[peer].popleft()))
                armed = False
        except KeyboardInterrupt:
            interrupts += 1
    world.port.interrupts.uninstall()
    assert received == [b"%d" % index for index in range(count)]
    return {"interrupts": interrupts}


def test_interrupted_wait_leaves_the_port_usable(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with PortRanks(interrupted, size=2, directory=tmp_path, count=5000, ready=str(ready)) as ranks:
        while not all(Path(f"{ready}.{rank}").exists() for rank in (0, 1)):
            time.sleep(0.01)
        for _ in range(25):
            for rank in (0, 1):
                os.kill(ranks.pid(rank), signal.SIGINT)
            time.sleep(0.004)
        counts = ranks.results(timeout_s=100)
    assert all(count["interrupts"] >= 3 for count in counts), counts


def woken(world: World) -> dict[str, float]:
    """How long a blocked wait takes at least to return when nothing happens, and when another thread wakes it.

    Of many: on a busy machine any of them may take long.
    """
    port = world.port
    alone_s, woken_s = [], []
    with port.lock:
        while port.progress():
            pass
        for _ in range(100):
            began = time.monotonic()
            port.wait()
            alone_s.append(time.monotonic() - began)
            threading.Timer(0.005, port.wake).start()
            began = time.monotonic()
            port.wait(10_000_000_000)
            woken_s.append(time.monotonic() - began)
            if min(alone_s) < 0.2 and min(woken_s) < 0.04:
                break
    return {"alone_s": min(alone_s), "woken_s": min(woken_s)}


@pytest.mark.serial
@pytest.mark.timing
def test_wait_returns_when_woken_and_every_50_ms(tmp_path: Path) -> None:
    with PortRanks(woken, size=1, directory=tmp_path) as ranks:
        (times,) = ranks.results(timeout_s=100)
    assert times["alone_s"] < 0.2
    assert times["woken_s"] < 0.04


def forked(world: World) -> bool:
    """A forked child may neither use nor close the port; the parent's goes on."""
    exchange(world, count=5, is_last=False)
    child = os.fork()
    if child == 0:
        try:
            world.wire.connect(0, world.wire.address)
        except WireClosed:
            world.port.close()  # does nothing here
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    # Sequences go on where they were: a second exchange of the same streams.
    exchange(world, count=5)
    return os.waitstatus_to_exitcode(status) == 0


def test_forked_child_keeps_its_hands_off(tmp_path: Path) -> None:
    with PortRanks(forked, size=2, directory=tmp_path) as ranks:
        assert ranks.results(timeout_s=100) == [True, True]


def failing_callback(world: World) -> str:
    """What on_messages raises in the helper thread is raised in the program's next call."""
    if world.rank == 0:
        world.receive(1)
        world.send(1, b"x")
        return ""

    def fail(source: int, messages: list[Any]) -> None:
        raise ValueError(f"cannot take {len(messages)} from {source}")

    world.port.on_messages = fail
    world.send(0, b"ready")
    try:
        while True:
            time.sleep(0.05)
            with world.port.lock:
                world.port.progress()
    except ValueError as error:
        return str(error)


def test_failing_callback_is_told(tmp_path: Path) -> None:
    with PortRanks(failing_callback, size=2, directory=tmp_path) as ranks:
        assert ranks.results(timeout_s=100)[1] == "cannot take 1 from 0"


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_authenticated_sockets_carry_the_same(transport: str, tmp_path: Path) -> None:
    with PortRanks(exchange, size=2, directory=tmp_path, transport=transport, curve=True, count=30) as ranks:
        assert ranks.results(timeout_s=100) == [30, 30]


def test_wrong_key_is_not_heard(tmp_path: Path) -> None:
    inside = ZmqWire(f"ipc://{tmp_path}/in", curve=CurveKeys.from_secret(b"job"))
    stranger = ZmqWire(f"ipc://{tmp_path}/out", curve=CurveKeys.from_secret(b"another job"))
    plain = ZmqWire(f"ipc://{tmp_path}/plain")
    friend = ZmqWire(f"ipc://{tmp_path}/friend", curve=CurveKeys.from_secret(b"job"))
    try:
        for wire in (stranger, plain):
            wire.connect(0, inside.address)
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            for wire in (stranger, plain):
                wire.send(0, (b"let me in",))
            assert inside.receive() is None
            time.sleep(0.01)
        assert inside.counters()["handshakes_refused"] >= 2
        friend.connect(0, inside.address)
        while inside.receive() is None:
            friend.send(0, (b"one of us",))
            time.sleep(0.001)
    finally:
        for wire in (inside, stranger, plain, friend):
            wire.close()


def test_address_taken_is_told_and_the_owner_undisturbed(tmp_path: Path) -> None:
    for address in (f"ipc://{tmp_path}/a", "tcp://127.0.0.1:*"):
        owner = ZmqWire(address)
        try:
            with pytest.raises(AddressInUse, match="cannot listen at"):
                ZmqWire(owner.address)
            owner.connect(0, owner.address)
            until = time.monotonic() + 5
            while not owner.send(0, (b"still here",)) and time.monotonic() < until:
                time.sleep(0.001)
            frame = None
            while frame is None and time.monotonic() < until:
                frame = owner.receive()
            assert frame is not None and frame[0] == b"still here"
        finally:
            owner.close()


def test_socket_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "left"
    child = os.fork()
    if child == 0:
        ZmqWire(f"ipc://{path}")
        os._exit(0)  # like kill -9: the socket's file stays
    os.waitpid(child, 0)
    assert path.exists()
    ZmqWire(f"ipc://{path}").close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ipc:///tmp/" + "x" * 120, "125 bytes long, the system allows 107"),
        ("ipc:///no/such/directory/socket", "no such directory"),
        ("tcp://localhost", "no port"),
        ("udp://localhost:1", "is no address"),
        ("ipc://@abstract", "abstract"),
    ],
)
def test_bad_addresses_are_told_clearly(address: str, told: str) -> None:
    with pytest.raises(AddressError, match=told):
        ZmqWire(address)


def test_a_file_in_the_way_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(AddressError, match="not a socket"):
        ZmqWire(f"ipc://{path}")
    assert path.read_text() == "data"
