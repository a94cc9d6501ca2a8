"""The port over real TCP between two namespaces whose cable loses, doubles, reorders, delays, damages and cuts."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.transport.protocol.events import ImageDue
from tests.seeds import seed_of_the_commit
from tests.system.transport.badcable import BadCable, Faults
from tests.system.transport.port_ranks import Lines, PortRanks, World, exchange

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.timeout(300)]

MIB = 1 << 20
SEED = seed_of_the_commit()
Lay = Callable[..., BadCable]


@pytest.fixture
def lay(tmp_path: Path) -> Iterator[Lay]:
    """lay(faults, seed) -> BadCable; all are removed afterwards."""
    if not os.path.exists("/dev/net/tun"):
        pytest.skip("no /dev/net/tun here")
    laid: list[BadCable] = []

    def make(faults: Faults, seed: int = SEED) -> BadCable:
        cable = BadCable(faults, seed, tmp_path / f"cable-{len(laid)}")
        laid.append(cable)
        try:
            cable.lay()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        return cable

    yield make
    for cable in laid:
        cable.remove()


class NetworkRanks(PortRanks):
    """Ranks at both ends of a cable."""

    def __init__(self, *args: object, cable: BadCable, **options: object) -> None:
        super().__init__(*args, transport="tcp", **{"lifetime_s": 240, **options})  # type: ignore[arg-type]
        self._settings["address"] = "tcp://10.78.0.{host}:*"
        self._settings["enter"] = cable.enter


def bulk(world: World, *, messages: int, nbytes: int) -> str:
    """Rank 0 sends so many messages of so many bytes; rank 1 answers with the digest of all it got."""
    digest = hashlib.sha256()
    for index in range(messages):
        if world.rank == 0:
            data = random.Random(index).randbytes(nbytes)
            digest.update(data)
            world.send(1, data[:32], memoryview(data)[32:])
        else:
            digest.update(world.receive(0))
    if world.rank == 0:
        assert bytes(world.receive(1)).decode() == digest.hexdigest()
    else:
        world.send(0, digest.hexdigest().encode())
    return digest.hexdigest()


@pytest.mark.rotate(4)
@pytest.mark.parametrize("curve", [False, True], ids=["clear", "curve"])
@pytest.mark.parametrize(("loss", "messages"), [(0.02, 16), (0.20, 2)])
def test_bulk_is_exact_under_loss(lay: Lay, tmp_path: Path, loss: float, messages: int, curve: bool) -> None:
    cable = lay(Faults(loss=loss))
    with NetworkRanks(
        bulk, size=2, directory=tmp_path, cable=cable, curve=curve, messages=messages, nbytes=MIB
    ) as ranks:
        first, second = ranks.results(timeout_s=240)
        assert first == second
    assert cable.remove()["lost"] > 0


FAULTS = {
    "duplication": (Faults(dup=0.4), "doubled"),
    "reordering": (Faults(reorder=0.4), "reordered"),
    "delay": (Faults(delay_ms=200), "passed"),
    "partitions": (Faults(partitions=((0.0, 0.7), (0.8, 1.6))), "partitioned"),
    "resets": (Faults(reset=0.01), "reset"),
    "corruption": (Faults(corrupt_at=(12, 20, 31)), "corrupted"),
    "everything": (
        Faults(loss=0.02, dup=0.1, reorder=0.1, corrupt=0.005, reset=0.002, delay_ms=5),
        "passed",
    ),
}


@pytest.mark.rotate(16)
@pytest.mark.parametrize("curve", [False, True], ids=["clear", "curve"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_message_once_and_in_order(lay: Lay, tmp_path: Path, fault: str, curve: bool) -> None:
    faults, counted = FAULTS[fault]
    cable = lay(faults)
    # Damage that TCP cannot see is found by CURVE's authenticator, or in the clear by our checksums.
    config = {"checksum_payload": not curve}
    rounds = 15
    with NetworkRanks(
        repeated, size=2, directory=tmp_path, cable=cable, curve=curve, config=config, rounds=rounds
    ) as ranks:
        assert ranks.results(timeout_s=200) == [rounds, rounds]
    assert cable.remove()[counted] > 0


def repeated(world: World, *, rounds: int) -> int:
    """Ping-pong, where every round crosses the cable twice, then a stream of all sizes."""
    peer = 1 - world.rank
    for index in range(rounds):
        text = f"round {index}".encode() * (1 + index % 7)
        world.send(peer, text)
        assert bytes(world.receive(peer)) == text
    exchange(world, count=10)
    return rounds


def drawn(choose: random.Random) -> Faults:
    """Some faults wholly off, the others of drawn strength."""

    def maybe(most: float) -> float:
        return choose.random() * most if choose.random() < 0.5 else 0.0

    begin = choose.random() * 2
    return Faults(
        loss=maybe(0.05),
        dup=maybe(0.3),
        reorder=maybe(0.3),
        corrupt=maybe(0.003),
        reset=maybe(0.005),
        delay_ms=maybe(20),
        partitions=((begin, begin + choose.random()),) if choose.random() < 0.3 else (),
    )


@pytest.mark.rotate(10)
@pytest.mark.parametrize("index", range(20))
def test_twenty_of_twenty_finish(lay: Lay, tmp_path: Path, index: int) -> None:
    choose = random.Random(f"{SEED}/{index}")
    faults, curve = drawn(choose), choose.random() < 0.5
    print(f"CKPT_SEED={SEED}: {faults}, curve {curve}")
    cable = lay(faults, seed=choose.randrange(1 << 30))
    with NetworkRanks(
        repeated,
        size=2,
        directory=tmp_path,
        cable=cable,
        curve=curve,
        config={"checksum_payload": not curve},
        rounds=6,
    ) as ranks:
        assert ranks.results(timeout_s=100) == [6, 6]
    print(f"packets {dict(cable.remove())}")


# ---------------------------------------------------------------------- restarts


def numbered(world: World, *, messages: int, restarts: int, every: int) -> int:
    """Numbers both ways, as fast as they go; each exactly once and in order, over restarts from lines.

    Rank 0 takes an image for every so many messages, rank 1 when traffic of a later epoch asks for it. No
    incarnation but the last sends all its messages, so that every restart takes place, however fast this goes.
    """
    peer, port = 1 - world.rank, world.port
    endpoint = port.endpoint
    sent, expected, waiting = world.saved or (0, 0, [])
    box = world.mailbox[peer]
    with port.lock:
        box.extendleft(reversed(waiting))  # before what has come already
    own = messages if world.incarnation >= restarts else min(messages, sent + 3 * every)
    last = sent

    def save(epoch: int) -> None:
        port.freeze()
        world.lines.save(world.rank, epoch, port.snapshot(), (sent, expected, [bytes(data) for data in box]))
        port.advance(epoch)
        port.thaw()

    with port.lock:
        while sent < messages or expected < messages or not endpoint.idle():
            due = max((event.epoch for event in world.events if isinstance(event, ImageDue)), default=0)
            world.events.clear()
            if due > endpoint.epoch:
                save(due)
            elif world.rank == 0 and last + every <= sent < messages:
                last = sent
                save(endpoint.epoch + 1)
            while box:
                number = int.from_bytes(box.popleft(), "little")
                assert number == expected, f"{number} instead of {expected}"
                expected += 1
                endpoint.consumed(peer, 8, 1)
            if sent < own and endpoint.backlog_bytes(peer) < MIB:
                for number in range(sent, min(sent + 500, own)):
                    port.send(peer, number.to_bytes(8, "little"))
                sent = min(sent + 500, own)
                port.progress()
            else:
                port.wait()
    return expected


def over_restarts(lay: Lay, directory: Path, index: int, *, messages: int, restarts: int) -> Counter[str]:
    """One cable; what it did to packets."""
    choose = random.Random(f"{SEED}/{index}")
    cable = lay(drawn(choose), seed=choose.randrange(1 << 30))
    directory.mkdir()
    lines = Lines(directory)
    options = {"messages": messages, "restarts": restarts, "every": messages // (4 * restarts)}
    with NetworkRanks(
        numbered,
        size=2,
        directory=directory,
        cable=cable,
        curve=True,
        lines=lines,
        lifetime_s=3000,
        **options,
    ) as ranks:
        begun = 0
        for _ in range(restarts):
            ranks.wait_until(lambda: lines.newest(2) > begun, f"a line after {begun}")  # noqa: B023
            time.sleep(choose.random() * 0.2)
            begun = ranks.restart_all(choose.sample((0, 1), 2), choose.random() * 0.05)
        assert ranks.results(timeout_s=3000) == [messages, messages]
    return cable.remove()


@pytest.mark.rotate(2)
def test_every_message_once_and_in_order_over_restarts(lay: Lay, tmp_path: Path) -> None:
    counts = over_restarts(lay, tmp_path / "0", 0, messages=20_000, restarts=4)
    print(f"40000 messages, 4 restarts, {dict(counts)}, CKPT_SEED={SEED}")


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(10))
def test_ten_million_messages_and_a_hundred_restarts(
    lay: Lay, tmp_path: Path, part: int, soaked: Callable[..., None]
) -> None:
    each = int(os.environ.get("CKPT_MESSAGES", "10000000")) // 20
    counts = over_restarts(lay, tmp_path / "0", part, messages=each, restarts=10)
    print(f"{2 * each} messages, {dict(counts)}: 0 lost, 0 doubled, 0 out of order")
    soaked("messages", 2 * each, **counts)
    soaked("restarts", 10)
