"""★ How a rank is connected to its peers: which wires, with which keys. The whole decision is made in this module.

    ZmqWire      a Unix socket in the job's private directory; always with CURVE (RFC 26 of ZeroMQ), whose keys are derived
                 from the job's key: a process that cannot read the key file can neither connect nor be connected to
    RingWire     rings of memory that the ranks of one host share, beside the socket; see there for when it is not used
    FaultyWire   injects the faults of ``CKPT_FAULTS``, when that variable is set
    DirectWire   reads large payloads of ranks on one host from the sender's memory, without sockets and encryption

Not here: the messages (:mod:`ckpt.transport.protocol.endpoint`), the loop of sockets and clocks
(:mod:`ckpt.transport.driver.port`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.transport.driver.port import Port
from ckpt.transport.protocol.endpoint import EndpointConfig
from ckpt.transport.protocol.state import PortState
from ckpt.transport.wires.directwire import DirectWire
from ckpt.transport.wires.ringwire import RingWire, ring_bytes
from ckpt.transport.wires.wire import Wire
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire

if TYPE_CHECKING:
    from ckpt.transport.wires.faultinject import FaultPlan

__all__ = ["open_port"]


def open_port(
    spec: Mapping[str, Any],
    key: bytes,
    lock: threading.Lock,
    state: PortState | None = None,
    *,
    on_refused: Callable[[int], None] | None = None,
    on_fallback: Callable[[int | None, str], None] | None = None,
) -> Port:
    """The port of the rank that ``spec`` describes. The port listens, and is not connected to any peer yet.

    ``key``: of the job. ``state``: the port's state from an image; ``None``: a fresh port. ``on_refused``: called with the
    number of connections that were refused so far because they did not have the job's key. ``on_fallback``: called with a
    peer and the reason when there is no ring for it. Raises WireError when the socket cannot be made, FaultPlanError for a
    wrong ``CKPT_FAULTS``.
    """
    plan = _faults()
    config = EndpointConfig(
        job=int(spec["job_id"], 16),
        rank=spec["rank"],
        size=spec["size"],
        incarnation=spec["incarnation"],
        epoch=spec["epoch"],
        checksum_payload=plan is not None,  # a local socket does not corrupt; injected faults do
    )
    path = os.path.join(spec["runtime_dir"], f"r{spec['rank']}.{spec['incarnation']}")
    keys = CurveKeys.from_secret(key)
    wire: Wire = ZmqWire(f"ipc://{path}", curve=keys, on_refused=on_refused)
    if spec.get("options", {}).get("wire", "ring") == "ring":
        wire = RingWire(
            wire, spec["rank"], key, capacity=ring_bytes(spec["local_size"]), on_fallback=on_fallback
        )
    if plan is not None:
        from ckpt.transport.wires.faultinject import FaultyWire

        wire = FaultyWire(wire, plan, spec["rank"])
    return Port(config, DirectWire(wire, spec["rank"]), state=state, lock=lock)


def _faults() -> FaultPlan | None:
    """The faults that ``CKPT_FAULTS`` asks for. Without that variable the module for faults is not imported."""
    if "CKPT_FAULTS" not in os.environ:
        return None
    from ckpt.transport.wires.faultinject import FaultPlan

    return FaultPlan.from_environment(os.environ)
