"""★ The entry of a rank under `ckpt doctor`: the usual rank, and a watch on it from its first instruction on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt.doctor.watch import THREAD_NAME, Watch
from ckpt.rank.boot import preload
from ckpt.rank.boot import run_rank as run_usual_rank
from ckpt.rank.runtime import Runtime

if TYPE_CHECKING:
    from ckpt.mpi.comm.communicator import Communicator
    from ckpt.mpi.engine.engine import Engine
    from ckpt.transport.driver.port import Port

__all__ = ["preload", "run_rank"]


class WatchedRuntime(Runtime):
    """Starts the watch when everything of the library's own is there, and nothing of the program's."""

    def bind(self, port: Port, engine: Engine, world: Communicator) -> None:
        super().bind(port, engine, world)
        self.threads.allow(THREAD_NAME)
        Watch(self).start()


def run_rank(spec: Mapping[str, Any], control_fd: int) -> NoReturn:
    """As :func:`ckpt.rank.boot.run_rank`."""
    run_usual_rank(spec, control_fd, WatchedRuntime)
