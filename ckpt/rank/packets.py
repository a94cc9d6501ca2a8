"""What a rank does when the controller, or the transport, tells it something. (driver)

========== =================================================================================================
packet     effect
========== =================================================================================================
table      addresses and incarnations of the peers: given to the port
spawning   processes are being started, of which no image is taken: there are no more images
spawned    they are there: their addresses; or the answer that they are not (:mod:`ckpt.rank.asking`)
ask        could an image of that epoch be taken? The rank answers ``ready`` as soon as it could
checkpoint an image of that epoch is wanted (:mod:`ckpt.capture.imager` takes it as soon as the program can be captured)
cut        explicit ranks: at which boundary the image is taken, or that all are there (:mod:`ckpt.replay.program`)
abort      the epoch cannot commit any more: nobody waits for its image, frames of that epoch are accepted
committed  calls that wait for a commit are made (:mod:`ckpt.rank.commits`)
release    all ranks have finished: a rank that waits in :meth:`Runtime.finish` may leave
alone      the controller is gone (until ``table`` comes again): nobody collects votes, so no image is wanted
failed     these ranks are dead and are not started again: operations with them end. Later images are of the others
layer      for the layer under the engine, if there is one (:mod:`ckpt.mpi.base.layer`)
stop       leave at once, with the given exit code
status     answer with counters and with where the program is
========== =================================================================================================

A rank whose *controller* is gone goes on; the agent tells the rank (``alone``).

Not here: the channel (:mod:`ckpt.rank.channel`), how an image is taken (:mod:`ckpt.capture.imager`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ckpt.rank import asking
from ckpt.rank.channel import reports
from ckpt.rank.channel.control import Packet
from ckpt.transport.protocol.events import Event, ImageDue, Zombie

if TYPE_CHECKING:
    from ckpt.rank.runtime import Runtime

__all__ = ["EXIT_FENCED", "obey", "on_event"]

EXIT_FENCED = 70

_ALONE_TEXT = "the controller is gone, and nobody compares what the replicas compute"


def obey(runtime: Runtime, packet: Packet) -> None:
    """A packet of the controller has come. The caller holds the lock."""
    assert runtime.port is not None
    match packet["m"]:
        case "table":
            runtime.alone, runtime.are_all_loaded = False, True
            for peer, (incarnation, address) in packet["peers"].items():
                runtime.port.set_peer(int(peer), address, incarnation)
        case "spawning":
            runtime.has_spares = runtime.incomplete = True
            runtime.imager.abandon()
        case "spawned":
            asking.spawned(runtime, packet)
        case "ask":
            runtime.imager.ask(packet["epoch"], packet.get("waiting", ()))
        case "checkpoint":
            runtime.imager.want(packet["epoch"], mode=packet.get("mode"))
        case "cut":
            if runtime.explicit is not None:
                runtime.explicit.on_cut(packet)
        case "abort":
            runtime.imager.abort(packet["epoch"])
        case "committed":
            runtime.commits.committed(packet["epoch"])
            runtime.files.committed(packet["epoch"])
            if runtime.port.far_counts is not None:
                runtime.control.send(reports.links(packet["epoch"], runtime.port.far_counts()))
        case "release":
            runtime.released, runtime.is_final = True, packet.get("final", True)
        case "alone":
            if runtime.layer is not None:
                runtime.leave(EXIT_FENCED, f"rank {runtime.rank}: {_ALONE_TEXT}; stopping")
            runtime.alone = True
            runtime.imager.abandon()
            if reason := asking.without_controller(runtime):
                runtime.leave(EXIT_FENCED, f"rank {runtime.rank}: {reason}; stopping")
        case "failed":
            _drop_ranks(runtime, packet["ranks"], packet.get("cause", ""), packet.get("diagnoses", ()))
        case "layer":
            if runtime.layer is not None:
                runtime.layer.on_packet(packet)
        case "stop":
            runtime.leave(packet["exit_code"], packet.get("reason"))
        case "status":
            runtime.control.send(runtime.status())
        case other:
            runtime.control.send(reports.event("unknown-packet", packet=other))


def _drop_ranks(
    runtime: Runtime, ranks: list[int], cause: str, diagnoses: Iterable[tuple[int, dict[str, Any]]]
) -> None:
    """These ranks are dead, and the job goes on without them. Explicit ranks take no images from now on: a program that is
    replayed would have to hear of the death at the same place again."""
    assert runtime.port is not None and runtime.engine is not None
    if runtime.explicit is not None:
        runtime.incomplete = True
        runtime.imager.abandon()
    lost = [rank for rank in ranks if rank != runtime.rank]
    for rank in lost:
        runtime.port.drop_peer(rank)
    if runtime.layer is not None:
        runtime.layer.on_lost(lost, cause)
    else:
        runtime.engine.failed_ranks.diagnoses.update(diagnoses)
        runtime.engine.failed_ranks.add(lost)


def on_event(runtime: Runtime, event: Event) -> None:
    """The transport tells of a peer. The caller holds the lock."""
    if isinstance(event, ImageDue):
        runtime.imager.want(event.epoch)
    elif isinstance(event, Zombie):
        runtime.leave(EXIT_FENCED, f"rank {runtime.rank}: a newer incarnation of this rank exists; stopping")
    elif (report := reports.about_peer(event, time.monotonic_ns())) is not None:
        runtime.control.send(report)
