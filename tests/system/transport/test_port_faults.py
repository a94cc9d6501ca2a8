"""The port between real processes over sockets that lose, double, reorder, delay and corrupt what passes.

In every case each rank sends every other one a known stream, and each message has to arrive once, in order,
unchanged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt.transport.wires import crossmemory
from ckpt.transport.wires.faultinject import FaultPlan
from tests.system.transport.port_ranks import PortRanks, exchange

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

PLANS = {
    "nothing": FaultPlan(),
    "loss": FaultPlan(seed=1, loss=0.3),
    "duplication": FaultPlan(seed=2, dup=0.5),
    "reordering": FaultPlan(seed=3, reorder=0.3),
    "delay": FaultPlan(seed=4, delay_ns=3_000_000),
    "corruption": FaultPlan(seed=5, corrupt=0.2),
    "everything": FaultPlan(seed=6, loss=0.1, dup=0.1, reorder=0.1, corrupt=0.05, delay_ns=500_000),
}
COUNTED = {
    "loss": ("fault_lost", "retransmitted"),
    "duplication": ("fault_duplicated", "duplicates"),
    "reordering": ("fault_reordered",),
    "delay": ("fault_delayed",),
    "corruption": ("fault_corrupted", "dropped_malformed"),
}


@pytest.mark.rotate(8)
@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("fault", PLANS)
def test_exact_and_in_order(fault: str, size: int, transport: str, tmp_path: Path) -> None:
    # A flipped bit in a payload part is found only by the payload checksum.
    config = {"checksum_payload": bool(PLANS[fault].corrupt)}
    count = 60 if size == 2 else 20
    with PortRanks(
        exchange,
        size=size,
        directory=tmp_path,
        transport=transport,
        plan=PLANS[fault],
        config=config,
        count=count,
    ) as ranks:
        assert ranks.results(timeout_s=100) == [count * (size - 1)] * size
    total = {
        name: sum(ranks.counters[rank].get(name, 0) for rank in ranks.counters) for name in ranks.counters[0]
    }
    for name in COUNTED.get(fault, ()):
        assert total[name] > 0, f"{name} is 0: the fault was not exercised"


@pytest.mark.rotate(2)
@pytest.mark.skipif(not crossmemory.available(), reason="no process_vm_readv on this system")
@pytest.mark.parametrize("curve", [False, True], ids=["clear", "curve"])
@pytest.mark.parametrize("fault", PLANS)
def test_payloads_read_from_memory_are_exact_too(fault: str, curve: bool, tmp_path: Path) -> None:
    with PortRanks(
        exchange,
        size=3,
        directory=tmp_path,
        plan=PLANS[fault],
        direct=True,
        curve=curve,
        count=20,
    ) as ranks:
        assert ranks.results(timeout_s=100) == [40] * 3
    assert all(counters["direct_read"] for counters in ranks.counters.values())


def test_partition_heals(tmp_path: Path) -> None:
    """The partition is counted from the ranks' start: on a busy machine they may not have met while it lasted."""
    for lasts_s in (0.9, 5, 20):
        (tmp_path / str(lasts_s)).mkdir()
        plan = FaultPlan.parse(f"partition=0+1|2+3@0-{lasts_s}")
        with PortRanks(exchange, size=4, directory=tmp_path / str(lasts_s), plan=plan, count=300) as ranks:
            assert ranks.results(timeout_s=100) == [900] * 4
        if sum(counters["fault_cut"] for counters in ranks.counters.values()):
            return
    raise AssertionError("no frame met the partition")
