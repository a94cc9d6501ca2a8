"""Where a fault is: which cable, port, fan, host or process is behind an error of the network.

Nothing here runs while all is well: no server, no heartbeat. When a call has failed, the error gives candidates
(`errors_map`), files say how each is looked at (`models`), all are asked at once (`manager`), and what was answered
gives roots, consequences and what could not be known (`verdict`). Source: Sakai and Ishikawa, "MPI communication
library with cluster monitoring"; docs/diagnosis.md.

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
