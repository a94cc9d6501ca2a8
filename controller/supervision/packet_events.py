"""Translates packets of ranks and agents into events for the supervisor and the coordinator. Pure.

Packets have passed `messages.parse_rank`. A packet that is no event of the state machines (counters, free-form events)
becomes None; such packets go into the event log only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt.controller.supervision import messages, spares
from ckpt.controller.supervision.events import (
    BackRequested,
    Boundary,
    Captured,
    CheckpointRequested,
    Died,
    Event,
    Failed,
    Fenced,
    Finished,
    Hello,
    Loaded,
    ProgramError,
    Ready,
    Refused,
    SpawnVoid,
    Voted,
)

_LOGGED = ("captured", "voted", "failed", "event")
_NOT_LOGGED_FIELDS = ("m", "vectors", "manifest", "digest", "rank", "incarnation", "event", "t", "ns")


def process_of(event: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The identity of the process that an agent tells of, and these fields, for the event log. `host`: on several hosts."""
    return {name: event[name] for name in (*names, "pid", "start_ticks", "host") if name in event}


def rank_event(rank: int, incarnation: int, packet: messages.Packet) -> Event | None:
    """The event of one packet of a rank; None: the state machines do not need the packet."""
    match packet["m"]:
        case "hello":
            return Hello(rank, incarnation, packet["address"])
        case "loaded":
            return Loaded(rank, incarnation, packet.get("all") is True)
        case "captured":
            pause_ns = packet.get("pause_ns")
            return Captured(rank, incarnation, packet["epoch"], pause_ns if isinstance(pause_ns, int) else 0)
        case "voted":
            return _vote(rank, incarnation, packet)
        case "ready":
            return Ready(rank, incarnation, packet["epoch"])
        case "refused":
            return Refused(rank, incarnation, packet["epoch"], packet["reason"], packet.get("where", ""))
        case "boundary":
            return Boundary(rank, incarnation, packet["epoch"], packet["count"], bool(packet.get("reached")))
        case "failed":
            held_ns = packet.get("held_ns")
            where = packet.get("where", "")
            held_ns = held_ns if isinstance(held_ns, int) else 0
            return Failed(rank, incarnation, packet["epoch"], packet["reason"], where, held_ns)
        case "finished":
            return Finished(rank, incarnation, packet["exit_code"])
        case "error":
            return ProgramError(rank, incarnation, packet["exit_code"] or 1, packet["traceback"] or "")
        case "request" if packet["what"] == "checkpoint":
            return CheckpointRequested(rank=rank, waits=packet.get("wait") is True)
        case "request" if packet["what"] == "go-back":
            return BackRequested(rank, incarnation, str(packet.get("reason", "")))
        case "request" if packet["what"] == "spawn":
            return spares.parse(rank, incarnation, packet)
        case "request" if packet["what"] == "void":
            return SpawnVoid(rank, incarnation, str(packet.get("token")))
    return None


def _vote(rank: int, incarnation: int, packet: messages.Packet) -> Voted:
    previous, epoch = packet["label"]
    not_covered = packet.get("not_covered", 0)
    return Voted(
        rank=rank,
        incarnation=incarnation,
        epoch=packet["epoch"],
        label=(previous, epoch),
        manifest=packet["manifest"],
        digest=packet["digest"],
        vectors={int(peer): (tx, base, rx) for peer, (tx, base, rx) in packet["vectors"].items()},
        bytes_raw=packet.get("bytes_raw", 0),
        bytes_written=packet.get("bytes_written", 0),
        not_covered=not_covered if isinstance(not_covered, int) else 0,
    )


def agent_event(event: Mapping[str, Any]) -> Event | None:
    """The event of an agent's own message; None: the state machines do not need it. Forwarded packets: `rank_event`."""
    match event["e"]:
        case "died":
            host = event["host"] if "lost" in event else None
            return Died(
                event["rank"],
                event["incarnation"],
                event["signal"],
                event["code"],
                host,
                event.get("diagnosis"),
            )
        case "fenced":
            return Fenced(event["incarnation"])
    return None


def message(rank: int, packet: messages.Packet) -> str | None:
    """The message that is printed for the user when this packet arrives; None: there is none."""
    match packet.get("event") if packet["m"] == "event" else None:
        case "output-held-back":
            reason, stream = packet.get("reason"), packet.get("stream")
            return f"rank {rank}: {stream} cannot be written ({reason}); it is held back, and written when there is room"
        case "output-written":
            return f"rank {rank}: {packet.get('stream')} is written, {packet.get('bytes')} bytes late"
    return None


def log_line(rank: int, incarnation: int, packet: messages.Packet) -> tuple[str, dict[str, Any]] | None:
    """Name and fields of the line that a packet makes in the event log; None: the packet makes no line."""
    kind = packet["m"]
    if kind not in _LOGGED:
        return None
    name = packet["event"] if kind == "event" else kind
    fields = {key: value for key, value in packet.items() if key not in _NOT_LOGGED_FIELDS}
    return name, {"rank": rank, "incarnation": incarnation, **fields}
