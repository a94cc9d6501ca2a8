"""The objects that a rank adds to the image of its program, and a description of the messages for `ckpt inspect`.

The description has plain numbers and short texts. The image child takes them from the objects that it saves, so no reader
has to unpickle an image to learn them. Each list has at most `_ROWS` rows; the totals count everything. The content of
a message is never read.

::

    {"epoch", "incarnation",                             those of the port when it was frozen
     "peers":    {"1": {"tx", "base", "rx", "unacked", "unacked_bytes"}, …},
     "unacked":  {"messages", "bytes"},                  sent, not acknowledged: a restart sends them again
     "pending":  {"messages", "bytes", "largest": […]},  arrived, not received by the program yet
     "receives": {"posted", "first": […]},               receives that wait for a message
     "synchronous_sends": n}                             synchronous sends that no receive has matched yet
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base.envelope import PLANES

if TYPE_CHECKING:
    from ckpt.capture.context import RankContext
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.engine.matching import Matcher
    from ckpt.transport.protocol.state import LinkState, PortState

__all__ = ["describe_messages", "extras"]

_ROWS = 20
_PLANE_NAMES = ("point-to-point", "collective", "internal", "recovery")


def extras(
    runtime: RankContext, state: PortState, commits: object, *, is_in_call: bool, epoch: int
) -> dict[str, object]:
    """The objects that the rank adds to the image of ``epoch``, by name. ``state``: of its port; ``commits``: see
    :meth:`ckpt.capture.context.AwaitedCommits.taken`; ``is_in_call``: the program has been captured inside a library
    call."""
    assert runtime.engine is not None
    predefined = runtime.engine.predefined
    return {
        "ckpt.engine": runtime.engine,
        "ckpt.predefined": {slot: comm.__getstate__() for slot, comm in predefined.items()},
        "ckpt.registered": runtime.registered,
        "ckpt.hooks": runtime.hooks,
        "ckpt.commits": commits,
        "ckpt.threads": list(runtime.threads.patterns),
        "ckpt.port": state,
        "ckpt.locked": is_in_call,
        "ckpt.finished": runtime.finished_code,
        "ckpt.ended": runtime.ended,
        **({} if runtime.layer is None else {"ckpt.layer": runtime.layer.content(epoch)}),
    }


def output_lengths(spec: Mapping[str, Any], lengths: Mapping[int, int]) -> dict[str, int]:
    """How much the rank has written to its files of standard output ("out") and error ("err"), in bytes. ``spec``: of the
    rank; ``lengths``: of the image (:class:`ckpt.image.ImageReport`). A file that is not there is left out."""
    found = {}
    for fd, name in ((1, "out"), (2, "err")):
        if fd in lengths:
            found[name] = lengths[fd]
            continue
        streams = (spec.get("identity") or {}).get("streams", spec["rank"])
        with contextlib.suppress(OSError):
            found[name] = os.stat(os.path.join(spec["job_dir"], "output", f"rank-{streams}.{name}")).st_size
    return found


def describe_messages(extras: Mapping[str, Any]) -> dict[str, Any]:
    """The description as in the header of this module. ``extras`` has the port's state (`ckpt.port`) and `ckpt.engine`."""
    state: PortState = extras["ckpt.port"]
    engine: Engine = extras["ckpt.engine"]
    peers = {str(peer): _peer(link) for peer, link in sorted(state.links.items())}
    matcher = engine.matcher
    return {
        "epoch": state.epoch,
        "incarnation": state.incarnation,
        "peers": peers,
        "unacked": {
            "messages": sum(row["unacked"] for row in peers.values()),
            "bytes": sum(row["unacked_bytes"] for row in peers.values()),
        },
        "pending": _pending(matcher),
        "receives": _receives(matcher),
        "synchronous_sends": len(engine.syncs),
    }


def _peer(link: LinkState) -> dict[str, int]:
    return {
        "tx": link.tx,
        "base": link.base,
        "rx": link.rx,
        "unacked": link.tx - link.base,
        "unacked_bytes": sum(_nbytes(message) for message in link.messages),
    }


def _nbytes(message: Any) -> int:
    if isinstance(message, tuple):
        return sum(_nbytes(part) for part in message)
    return len(message) if isinstance(message, (bytes, bytearray)) else memoryview(message).nbytes


def _pending(matcher: Matcher) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    messages = nbytes = 0
    for context in matcher.contexts.values():
        for channel in context.channels.values():
            if not channel.messages:
                continue
            size = sum(_nbytes(data) for _, data in channel.messages)
            messages, nbytes = messages + len(channel.messages), nbytes + size
            plane = _PLANE_NAMES[context.number % PLANES]
            rows.append(
                {"from": channel.src, "tag": channel.tag, "kind": plane, "messages": len(channel.messages),
                 "bytes": size}
            )  # fmt: skip
    rows.sort(key=lambda row: -row["bytes"])
    return {"messages": messages, "bytes": nbytes, "largest": rows[:_ROWS]}


def _receives(matcher: Matcher) -> dict[str, Any]:
    first: list[dict[str, Any]] = []
    for number in list(matcher.contexts):
        for receive in matcher.posted_in(number)[: _ROWS - len(first)]:
            plane = _PLANE_NAMES[number % PLANES]
            first.append({"source": receive.want_source, "tag": receive.want_tag, "kind": plane})
    return {"posted": matcher.posted, "first": first}
