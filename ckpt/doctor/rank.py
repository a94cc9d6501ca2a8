"""The entry functions of a rank under `ckpt doctor`: a rank with a :class:`Watch`, started before the program; and one that
goes on from an image, and only writes down which files it changes. (driver)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt.doctor.changes import Changes
from ckpt.doctor.watch import THREAD_NAME, Watch, directory_of
from ckpt.rank.boot import preload
from ckpt.rank.boot import run_rank as run_usual_rank
from ckpt.rank.runtime import Runtime

if TYPE_CHECKING:
    from ckpt.mpi.base.layer import OfLayer
    from ckpt.mpi.comm.communicator import Communicator
    from ckpt.mpi.engine.engine import Engine
    from ckpt.transport.driver.port import Port

__all__ = ["preload", "run_rank", "run_restored_rank"]


class WatchedRuntime(Runtime):
    """Starts the watch after the library has opened its own descriptors and threads, and before the program starts."""

    def bind(self, port: Port, engine: Engine, world: Communicator, of_layer: OfLayer = None) -> None:
        super().bind(port, engine, world, of_layer)
        self.threads.allow(THREAD_NAME)
        Watch(self).start()


class RestoredRuntime(Runtime):
    """Writes down which files the program changes."""

    def bind(self, port: Port, engine: Engine, world: Communicator, of_layer: OfLayer = None) -> None:
        super().bind(port, engine, world, of_layer)
        Changes(directory_of(self), self.rank).watch()


def run_rank(spec: Mapping[str, Any], control_fd: int) -> NoReturn:
    """The same as :func:`ckpt.rank.boot.run_rank`, with a :class:`WatchedRuntime`."""
    run_usual_rank(spec, control_fd, WatchedRuntime)


def run_restored_rank(spec: Mapping[str, Any], control_fd: int) -> NoReturn:
    """The same with a :class:`RestoredRuntime`."""
    run_usual_rank(spec, control_fd, RestoredRuntime)
