"""★ How a rank is connected to its peers: which wires, with which keys. The whole decision is made in this module.

    ZmqWire      a Unix socket in the job's private directory; always with CURVE (RFC 26 of ZeroMQ), whose keys are derived
                 from the job's key: a process that cannot read the key file can neither connect nor be connected to
    FaultyWire   injects the faults of ``CKPT_FAULTS``, when that variable is set
    HostWire     with ranks on several hosts: tcp between hosts (with CURVE, too), the above inside one
    DirectWire   reads large payloads of ranks on one host from the sender's memory, without sockets and encryption

Not here: the messages (:mod:`ckpt.transport.protocol.endpoint`), the loop of sockets and clocks
(:mod:`ckpt.transport.driver.port`).
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.transport.driver.port import Port
from ckpt.transport.protocol.endpoint import EndpointConfig
from ckpt.transport.protocol.state import PortState
from ckpt.transport.wires.directwire import DirectWire
from ckpt.transport.wires.wire import Wire
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqLimits, ZmqWire

if TYPE_CHECKING:
    from ckpt.transport.wires.faultinject import FaultPlan

__all__ = ["allow_connections", "open_port"]

_DESCRIPTORS_OF_A_PEER = 3
"""Of a Unix socket with ZeroMQ: the sender's event descriptor, and one end each of both directions."""
_DESCRIPTORS_OF_THE_PROGRAM = 512


def allow_connections(size: int) -> None:
    """Raise the soft limit of open files as far as connections to all ranks of a job of ``size`` need, and the hard limit
    allows. Most jobs need nothing: connections are opened by the first message.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _DESCRIPTORS_OF_A_PEER * size + _DESCRIPTORS_OF_THE_PROGRAM
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def open_port(
    spec: Mapping[str, Any],
    key: bytes,
    lock: threading.Lock,
    state: PortState | None = None,
    *,
    on_refused: Callable[[int], None] | None = None,
) -> Port:
    """The port of the rank that ``spec`` describes. The port listens, and is not connected to any peer yet.

    ``key``: of the job. ``state``: the port's state from an image; ``None``: a fresh port. ``on_refused``: called with the
    number of connections that were refused so far because they did not have the job's key. Raises WireError when the socket
    cannot be made, FaultPlanError for a wrong ``CKPT_FAULTS``.
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
    limits = ZmqLimits(peers=spec["size"])
    zmq_wire = ZmqWire(f"ipc://{path}", curve=keys, limits=limits, on_refused=on_refused)
    wire: Wire = zmq_wire
    if plan is not None:
        from ckpt.transport.wires.faultinject import FaultyWire

        wire = FaultyWire(wire, plan, spec["rank"])
    wire = DirectWire(wire, spec["rank"])
    if spec.get("listen"):  # the job has ranks on other hosts
        from ckpt.transport.wires.hostwire import HostWire

        wire = HostWire(wire, zmq_wire.listen_also(f"tcp://{spec['listen']}:*"))
    return Port(config, wire, state=state, lock=lock)


def _faults() -> FaultPlan | None:
    """The faults that ``CKPT_FAULTS`` asks for. Without that variable the module for faults is not imported."""
    if "CKPT_FAULTS" not in os.environ:
        return None
    from ckpt.transport.wires.faultinject import FaultPlan

    return FaultPlan.from_environment(os.environ)
