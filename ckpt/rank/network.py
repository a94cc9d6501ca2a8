"""Connects a rank with its peers: decides which wires it uses, with which keys. The whole decision is made in this module.
(driver)

    ZmqWire      a Unix socket in the job's private directory; always with CURVE (RFC 26 of ZeroMQ), whose keys are derived
                 from the job's key: a process that cannot read the key file can neither connect nor be connected to
    RingWire     rings of memory that the ranks of one host share, beside the socket; see there for when it is not used
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
from _thread import get_ident
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.image import monotonic_offset_ns
from ckpt.transport.driver.port import SPIN_LONGEST_NS, Port
from ckpt.transport.protocol.endpoint import EndpointConfig
from ckpt.transport.protocol.state import PortState
from ckpt.transport.protocol.watch import GIVE_UP_NS
from ckpt.transport.rings import ring
from ckpt.transport.rings.ringwire import RingWire
from ckpt.transport.wires.directwire import DirectWire
from ckpt.transport.wires.wire import Wire
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqLimits, ZmqWire

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine
    from ckpt.rank.runtime import Runtime
    from ckpt.transport.rings.ring import FrameLimits
    from ckpt.transport.wires.faultinject import FaultPlan

__all__ = ["allow_connections", "is_on_one_host", "open_fast_paths", "open_port"]

PAUSE_NS = 10_000
"""A rank with a core of its own looks for so long before it lets another process run."""
SPIN_NS = 1_000_000
"""``--wait spin``: a rank keeps its core for so long before it sleeps."""
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


def _set_clock() -> None:
    """The clock of this process may show something else than that of the host (:mod:`ckpt.image.process.clocks`): the
    transport's C code is told by how much."""
    if offset_ns := monotonic_offset_ns():
        from ckpt.transport.rings import _ring

        _ring.shift_clock(offset_ns)


def open_port(
    spec: Mapping[str, Any],
    key: bytes,
    lock: threading.Lock,
    state: PortState | None = None,
    *,
    report: Callable[..., None] | None = None,
) -> Port:
    """The port of the rank that ``spec`` describes. The port listens, and is not connected to any peer yet.

    ``key``: of the job. ``state``: the port's state from an image; ``None``: a fresh port. ``report(event, **fields)``:
    called with ``handshakes-refused`` (count of connections that did not have the job's key) and ``wire-fallback`` (peer,
    reason: no ring of shared memory). Raises WireError when the socket cannot be made, FaultPlanError for a wrong
    ``CKPT_FAULTS``.
    """

    def on_refused(count: int) -> None:
        if report is not None:
            report("handshakes-refused", count=count)

    def on_fallback(peer: int | None, reason: str) -> None:
        if report is not None:
            report("wire-fallback", peer=peer, reason=reason)

    _set_clock()
    plan = _faults()
    options, local_size = spec.get("options", {}), spec["local_size"]
    has_rings = options.get("wire", "ring") == "ring"
    capacity = ring.ring_bytes(local_size) if has_rings else ring.RING_BYTES
    limits = ring.frame_limits(capacity)
    config = _config(spec, limits, checksum_payload=plan is not None)
    path = os.path.join(spec["runtime_dir"], f"r{spec['rank']}.{spec['incarnation']}")
    keys = CurveKeys.from_secret(key)
    zmq_limits = ZmqLimits(peers=spec["size"])
    zmq_wire = ZmqWire(f"ipc://{path}", curve=keys, limits=zmq_limits, on_refused=on_refused)
    wire: Wire = zmq_wire
    rings = None
    spin_ns, pause_ns = waiting(options.get("wait", "auto"), local_size)
    if has_rings:
        wire = rings = RingWire(
            wire, spec["rank"], key, capacity=capacity, pause_ns=pause_ns, on_fallback=on_fallback
        )
    if plan is not None:
        from ckpt.transport.wires.faultinject import FaultyWire

        wire = FaultyWire(wire, plan, spec["rank"])
    wire = direct = DirectWire(wire, spec["rank"], from_bytes=limits.payload)
    watcher = far = None
    if spec.get("listen"):  # the job has ranks on other hosts
        from ckpt.transport.driver.linkwatcher import LinkWatcher
        from ckpt.transport.wires.hostwire import HostWire

        watcher = LinkWatcher(zmq_wire.descriptor, give_up_ns=options.get("link_timeout_ns", GIVE_UP_NS))
        wire = host_wire = HostWire(wire, zmq_wire.listen_also(f"tcp://{spec['listen']}"), watcher)
        far = host_wire.far_ranks, zmq_wire
    port = Port(config, wire, state=state, lock=lock, spin_longest_ns=spin_ns)
    direct.on_direct = port.set_direct
    if watcher is not None:
        port.on_late = watcher.late
        port.far_counts = watcher.counts
        watcher.on_event = lambda event: port.on_event(event)  # the runtime sets it later
    if rings is not None and plan is None:
        direct.copy_shared = rings.copy_shared
        # injected faults are for all frames, and the hot way passes them by
        port.use_rings(rings, far, direct)
    return port


def _config(spec: Mapping[str, Any], limits: FrameLimits, *, checksum_payload: bool) -> EndpointConfig:
    """``limits``: of the rings. ``checksum_payload``: for injected faults. A local socket does not corrupt."""
    return EndpointConfig(
        coalesce_bytes=limits.coalesce,
        large_bytes=limits.large,
        fragment_bytes=limits.fragment,
        job=int(spec["job_id"], 16),
        rank=spec["rank"],
        size=spec["size"],
        incarnation=spec["incarnation"],
        epoch=spec["epoch"],
        reserved=spec.get("reserved", 0),
        checksum_payload=checksum_payload,
    )


def is_on_one_host(runtime: Runtime) -> bool:
    """Are all ranks that live on this host, each of them one process that is not replayed, with rings between them?"""
    is_plain = runtime.layer is None and runtime.explicit is None
    has_rings = runtime.options.get("wire", "ring") == "ring"
    # Processes that were started later, and those that may be, are on this host whenever the ranks are.
    living = runtime.size - len(runtime.spec.get("absent", ()))
    is_alone = "world" in runtime.spec or runtime.spec.get("local_size") == living
    return is_plain and has_rings and is_alone


def open_fast_paths(runtime: Runtime, port: Port, engine: Engine) -> Callable[[], bool]:
    """Give the engine its fast paths to the port: for sending, and for a look before a call blocks. Returns the look for a
    program of which several threads wait: by the main thread only, which tells the others of what it has found."""
    from ckpt.mpi.engine.engine import LONGEST_ENVELOPE_BYTES, SEND_CHECK_MASK, SEND_POLL_BYTES
    from ckpt.mpi.engine.quick import arrivals, make_lane, placing

    def look() -> bool:
        # Not where the call has to do more than wait.
        imager = runtime.imager
        # As `imager.is_looking`, without a call: this is done for each message that is awaited
        return not (runtime.in_hook or imager.wanted > imager.epoch or imager.asked) and port.glance()

    main = threading.main_thread().ident

    def look_among_threads() -> bool:
        if get_ident() != main or port.waiters.are_coming or not look():
            return False
        if port.waiters.entries:
            runtime.tell_waiting()
        return True

    engine.lane = make_lane(port.endpoint, runtime.lock, SEND_POLL_BYTES, SEND_CHECK_MASK, port.express)
    engine.look = look
    port.on_messages = arrivals(engine)
    engine.direct = port.direct
    engine.joined_bytes = port.endpoint.config.large_bytes - LONGEST_ENVELOPE_BYTES
    port.on_place, port.on_placed = placing(engine)
    if port.express is not None:
        runtime.acked, runtime.consumed = port.express.base, port.express.consumed
    if port.boards is not None:
        from ckpt.mpi.slots.exchange import settle_all

        port.boards.is_free = lambda: not runtime.in_hook and not runtime.imager.is_looking
        port.on_publish = lambda: settle_all(engine)
        engine.boards = port.boards
        engine.offers = port.boards.offers
    return look_among_threads


def waiting(mode: str, ranks: int) -> tuple[int, int]:
    """How a rank waits (``--wait``): for so many ns it looks before it sleeps, and after so many it yields its core.

    ``ranks``: on this host. A rank that finds its core wanted by others yields it after each look, in any mode but ``spin``
    (:class:`ckpt.transport.rings.ringwire.RingWire`).
    """
    if mode == "auto":
        try:
            cores = len(os.sched_getaffinity(0))
        except PermissionError:  # a sandbox
            cores = os.cpu_count() or 1
        free = ranks <= cores
        return SPIN_LONGEST_NS, PAUSE_NS if free else 0
    return {"spin": (SPIN_NS, SPIN_NS), "yield": (SPIN_LONGEST_NS, 0), "sleep": (0, 0)}[mode]


def _faults() -> FaultPlan | None:
    """The faults that ``CKPT_FAULTS`` asks for. Without that variable the module for faults is not imported."""
    if "CKPT_FAULTS" not in os.environ:
        return None
    from ckpt.transport.wires.faultinject import FaultPlan

    return FaultPlan.from_environment(os.environ)
