"""Lines that a program writes to the event log of its job: names, fields, what is refused. Pure.

    name       words of small letters and digits, joined by hyphens; none of the job's own, by which the controller,
               `ckpt status` and a restart go (`OWN_NAMES`; docs/events.md lists them)
    fields     what JSON has: text, finite numbers, truth values, None, lists, dicts with texts as keys; 4 KiB of JSON in
               all. The names that every line has are refused

Not here: how a packet comes to the controller (:mod:`ckpt.rank.channel.control`), what writes the log.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ckpt.errors import EventError

__all__ = ["OWN_NAMES", "packet"]

_OWN = (
    "adopted agent-lost agent-started captured clone-failed clone-started cluster-unverified committed "
    "continued continuing controller counters-kept ended-at-once engine engine-ended failed "
    "fault-located fenced files-chosen files-given-up files-kept files-not-covered files-not-put-back "
    "files-not-undone files-not-watched files-put-back files-shared files-taken-back fork-failed handshakes-refused "
    "host-back host-drained host-failed host-fenced host-joined host-left-out host-lost host-stalled image-mode "
    "job-finished job-interrupted job-started leader-changed leases-not-renewed line-unusable "
    "lines-distrusted link-down link-slow link-up log-unreadable malformed-packet memory-compared "
    "memory-not-compared message modules-missing not-adopted not-put-back not-replaced output output-held-back "
    "output-written package-starts-anew packages-left-out peer-heard peer-restarted peer-silent "
    "process-started rank-absent rank-died rank-failed rank-finished rank-left rank-started ranks-moved refused "
    "replica-cloned replica-differs replica-lost restart-not-recorded restarted restarting "
    "result-compared result-reported round-aborted round-refused round-started running same-machine signal-passed-on "
    "spawn-requested spawned start-slow starting-over stop-requested topology-kept unknown-packet "
    "unverified-passed-over voted waiting-for-hosts waiting-for-leases wire-fallback "
)
OWN_NAMES = frozenset(_OWN.split())
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_OWN_FIELDS = frozenset(
    ("t", "ns", "event", "lost", "rank", "incarnation", "m", "vectors", "manifest", "digest")
)
_BYTES_MAX = 4096


def packet(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The packet for the controller. Raises EventError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EventError(
            f"{name!r} is no name of an event: words of small letters and digits, joined by hyphens"
        )
    if name in OWN_NAMES:
        raise EventError(
            f"{name!r} is an event of the job itself: take another name, for example 'my-{name}'"
        )
    if taken := sorted(_OWN_FIELDS & fields.keys()):
        raise EventError(
            f"every line of the event log has a field {taken[0]!r} of its own: take another name"
        )
    made = {"m": "event", "event": name, **fields}
    try:
        data = json.dumps(made, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"the fields of event {name!r} cannot be written as JSON: {error}") from None
    if len(data) > _BYTES_MAX:
        raise EventError(f"event {name!r} has {len(data)} bytes of JSON: at most {_BYTES_MAX} are logged")
    return made
