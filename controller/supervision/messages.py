"""Packets of the control channel between a rank, its agent, the controller and its clients.

Between a rank and its agent every packet is one JSON object in one datagram of a SOCK_SEQPACKET pair: so the rank, its
helper thread and an image child can all write, and packets do not mix. Between agent and controller, and between a client
(`ckpt checkpoint …`) and the controller, packets are JSON objects on lines of a Unix stream socket (`Lines`).

    rank → controller (key "m"; the agent adds rank and incarnation, which it knows better than the rank)
        hello      rank, incarnation, pid, address            the port is bound; the table may be sent
        loaded     (nothing)                                  the image is loaded; waits for `files`
        ready      epoch                                      answer to `ask`: could be captured here
        captured   epoch, previous, *_ns, mode                image captured, the rank computes again
        voted      epoch, label, manifest, digest, vectors    the image is durable
        refused    epoch, reason, where, since_ns             cannot be captured yet; the rank keeps trying
        boundary   epoch, count, reached                      explicit ranks only, see `cuts.boundaries`
        failed     epoch, reason, where, held_ns              there will be no vote: the round is burnt
        finished   exit_code                                  program ended; serves its links until `release`
        error      exit_code, traceback                       program raised; before hello: not loadable
        request    what="checkpoint", wait                    ckpt.checkpoint(wait)
        request    what="spawn", token, commands, parent      MPI's Spawn, at its root
        request    what="void", token                         nobody has got the answer to that
        status     counters, where, epoch                     answer to `status`
        changes    directory                                  the program changes files in it; told once
        links      epoch, peers                               on several hosts: counts of connections, after a commit
        layer      …                                          of the layer under the engine (ckpt.mpi.base.layer)
        event      event, …                                   free form, for the event log

    controller → rank
        table{peers}  spawning  spawned{by, token, numbers | refused}
        ask{epoch, waiting}  checkpoint{epoch, mode}  cut{epoch, at, take}  abort{epoch, reason}
        committed{epoch}  release{final}  failed{ranks, cause}  stop{exit_code, reason}  layer{…}  status
        files{options, more}

    controller → agent (key "a")                 agent → controller (key "e")
        attach   generation                          state    pid, generation, ranks (to attach, query)
        start    specs                               started  rank, incarnation, pid, start_ticks
        send     ranks | null, packet                packet   rank, incarnation, packet
        signal   ranks | null, signal, caught        died     rank, incarnation, pid, signal | code, ns
        fence    incarnation                         fenced   incarnation
        end      reason                              ended    reason
        query                                        refused  generation (an older controller attached)

Nothing here does I/O. Every packet of a rank passes `parse_rank`: after it, fields have the right types, and the numbers of
a vote fit into the control file. Unknown keys are kept (a newer rank may send more); unknown kinds are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ckpt.controller.errors import MalformedPacket
from ckpt.store.records.formats import ENTRY
from ckpt.store.records.shapes import DoesNotFit, Integer, Nullable, Row, Shape, Text
from ckpt.transport import jsontext

Packet = dict[str, Any]

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_PATHS: Final = 20
"""So many paths, of at most 4096 bytes, fit into one packet."""

_INT: Final = Integer(least=-(1 << 63))
_STR: Final = Text()
# As in the entry of the control file that it becomes. Names and digests are looked at when that is written: what does not
# fit burns the round then, with its reason.
_VOTE: Final = {
    "epoch": ENTRY.fields["epoch"],
    "manifest": _STR,
    "digest": _STR,
    "vectors": ENTRY.fields["vectors"],
}
_LABEL: Final = Row(previous=ENTRY.fields["previous"], epoch=ENTRY.fields["epoch"])

_RANK_FIELDS: Final[dict[str, dict[str, Shape]]] = {
    "hello": {"address": _STR},
    "loaded": {},
    "ready": {"epoch": _INT},
    "captured": {"epoch": _INT},
    "voted": {**_VOTE, "label": _LABEL},
    "refused": {"epoch": _INT, "reason": _STR},
    "boundary": {"epoch": _INT, "count": _INT},
    "failed": {"epoch": _INT, "reason": _STR},
    "finished": {"exit_code": _INT},
    "error": {"exit_code": _INT, "traceback": Nullable(_STR)},
    "request": {"what": _STR},
    "status": {},
    "changes": {"directory": _STR},
    "links": {"epoch": _INT},
    "layer": {},
    "event": {"event": _STR},
}


# ---- controller → rank -----------------------------------------------------------------------------------


def table(peers: Mapping[int, tuple[int, str]]) -> Packet:
    """Incarnation and address of every rank; sent once all have said hello."""
    return {
        "m": "table",
        "peers": {str(rank): [inc, address] for rank, (inc, address) in sorted(peers.items())},
    }


def spawning() -> Packet:
    """Processes are being started, and no checkpoint will have them: there will be no more images."""
    return {"m": "spawning"}


def spawned(
    asker: int,
    token: str,
    numbers: Iterable[int],
    counts: Iterable[int],
    peers: Mapping[int, tuple[int, str]],
) -> Packet:
    """The processes of this request are there: the answer to its asker, and the addresses for all."""
    answer = {"m": "spawned", "by": asker, "token": token, "numbers": list(numbers), "counts": list(counts)}
    return {**answer, "peers": table(peers)["peers"]}


def not_spawned(asker: int, token: str, reason: str) -> Packet:
    """There are no processes for this request: the answer to its asker."""
    return {"m": "spawned", "by": asker, "token": token, "refused": reason}


def files(options: Mapping[str, Any]) -> list[Packet]:
    """Files have been put back. `options`: what the ranks need to know of that; a long list of files takes several packets,
    each with the `more` that says whether another one follows."""
    paths = list(options.get("files_problems", ()))
    parts = [paths[first : first + _PATHS] for first in range(0, len(paths), _PATHS)] or [[]]
    packets: list[Packet] = [
        {"m": "files", "options": {"files_problems": each}, "more": True} for each in parts
    ]
    packets[-1] = {"m": "files", "options": {**options, "files_problems": parts[-1]}, "more": False}
    return packets


def ask(epoch: int, waiting: Iterable[int] = ()) -> Packet:
    """Could an image of `epoch` be taken now? Answered as soon as it could. Idempotent; sent again with more ranks whose
    programs are `waiting` for it."""
    return {"m": "ask", "epoch": epoch, "waiting": sorted(waiting)}


def checkpoint(epoch: int, mode: str) -> Packet:
    """Take the image of `epoch`. `mode` is "fork" (nonblocking), "sync" or "auto" (the rank chooses). Idempotent."""
    return {"m": "checkpoint", "epoch": epoch, "mode": mode}


def cut(epoch: int, at: int, take: bool) -> Packet:
    """The boundary at which explicit ranks take the image of `epoch`; `take`: all are there, now."""
    return {"m": "cut", "epoch": epoch, "at": at, "take": take}


def abort(epoch: int, reason: str) -> Packet:
    """The round is burnt: stop trying, forget a half-written image."""
    return {"m": "abort", "epoch": epoch, "reason": reason}


def committed(epoch: int) -> Packet:
    return {"m": "committed", "epoch": epoch}


def release(*, final: bool = True) -> Packet:
    """All ranks have finished: nobody needs your links any more. `final`: the job is not stopped, so nothing goes back."""
    return {"m": "release"} if final else {"m": "release", "final": False}


def alone() -> Packet:
    """From the agent itself: the controller is gone, so no round is open and no request will be answered."""
    return {"m": "alone"}


def failed(ranks: Iterable[int], diagnoses: Mapping[int, Mapping[str, Any]] | None = None) -> Packet:
    """These ranks are dead and are not started again; all of them are named every time. Idempotent. `diagnoses`: by rank,
    the fault that was located at its host."""
    packet: Packet = {"m": "failed", "ranks": sorted(ranks)}
    if diagnoses:
        packet["diagnoses"] = [[rank, dict(each)] for rank, each in sorted(diagnoses.items())]
    return packet


def stop(exit_code: int, reason: str = "") -> Packet:
    """Leave within a second. A rank prints the reason: leave it out where the user is told once for all."""
    return {"m": "stop", "exit_code": exit_code, "reason": reason}


def layer(**fields: Any) -> Packet:
    """For the layer under the engine (ckpt.mpi.base.layer)."""
    return {"m": "layer", **fields}


def status() -> Packet:
    return {"m": "status"}


# ---- rank → controller -----------------------------------------------------------------------------------


def parse_rank(packet: object) -> Packet:
    """Check one packet of a rank.

    Returns the packet itself. Raises MalformedPacket naming what is wrong; the caller counts and drops it.
    """
    if not isinstance(packet, dict):
        raise MalformedPacket(f"a packet is a JSON object, got {type(packet).__name__}")
    kind = packet.get("m")
    fields = _RANK_FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise MalformedPacket(f"unknown kind {kind!r}")
    for name, shape in fields.items():
        if name not in packet:
            raise MalformedPacket(f"{kind}: {name} is missing")
        try:
            shape.check([packet[name]])
        except DoesNotFit as error:
            raise MalformedPacket(f"{kind}: {error.inside(name)}") from None
    return packet


# ---- encoding --------------------------------------------------------------------------------------------


def encode(packet: Mapping[str, Any]) -> bytes:
    """One packet as one datagram (no line end)."""
    return json.dumps(packet, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def encode_line(packet: Mapping[str, Any]) -> bytes:
    return encode(packet) + b"\n"


def decode(data: bytes | bytearray | memoryview) -> Packet:
    """Inverse of `encode`; MalformedPacket when `data` is no JSON object."""
    try:
        packet = jsontext.parse(bytes(data))
    except ValueError as error:
        raise MalformedPacket(f"no JSON: {bytes(data[:60])!r}") from error
    if not isinstance(packet, dict):
        raise MalformedPacket(f"a packet is a JSON object, got {type(packet).__name__}")
    return packet


class LineDecoder:
    """Turns a byte stream into packets. Keeps the unfinished last line; an endless line is an error."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._rest = bytearray()
        self._limit_bytes = limit_bytes

    def feed(self, data: bytes) -> list[Packet]:
        """Packets completed by `data`, in order. After MalformedPacket the stream is of no further use."""
        self._rest += data
        if b"\n" not in data:
            if len(self._rest) > self._limit_bytes:
                raise MalformedPacket(f"a line of more than {self._limit_bytes} bytes")
            return []
        *complete, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return [decode(line) for line in complete if line]
