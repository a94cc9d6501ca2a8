"""Where a fault is: which cable, port, fan, host or process is behind an error of the network.

Nothing here runs while all is well: no server, no heartbeat. When a call has failed, the error gives candidates
(`errors_map`), files say how each is looked at (`models`), all are asked at once (`manager`), and what was answered
gives roots, consequences and what could not be known (`verdict`). Source: Sakai and Ishikawa, "MPI communication
library with cluster monitoring"; docs/diagnosis.md.

    manager                            one diagnosis. Start reading here
    errors_map, models, graph          which faults are possible after an error, and what hides or causes what; pure
    topology, library, credentials     the user's files, and the way between two hosts
    asking, handlers/                  all questions at once, in processes that are killed; one module a way to ask
    witnesses, growth, verdict         what follows from the answers; pure
    report, checking                   texts; `ckpt diagnose --check`
    jobs                               a diagnosis for a job (`python -m ckpt.diagnosis`)
    lldp/, baseline/, surroundings/    where cables end; counters at the start of a job; what this machine knows by itself
    errors                             the exceptions

No rank imports this package, and `import ckpt` does not.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what typing has, without importing it: the processes that ask start here, too
if TYPE_CHECKING:
    from ckpt.diagnosis.errors_map import need_diagnosis
    from ckpt.diagnosis.manager import Request

__all__ = ["Request", "need_diagnosis"]


def __getattr__(name: str) -> object:
    if name == "Request":
        from ckpt.diagnosis.manager import Request

        return Request
    if name == "need_diagnosis":
        from ckpt.diagnosis.errors_map import need_diagnosis

        return need_diagnosis
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
