"""A world of threads for the examples' own logic: no processes, no transport, no checkpoints.

`World(size).run(main)` calls main(comm) once per rank, each in a thread of its own, and returns the results
by rank. The communicator knows the few calls the examples use. It is slow and simple on purpose.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ckpt.mpi import ANY_SOURCE, ANY_TAG, PROC_NULL, Status

WAIT_S = 20.0


class ThreadComm:
    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        self.world.boxes[dest].put((self.rank, tag, obj))

    def recv(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        held = self.world.held[self.rank]
        while True:
            for index, (sender, sent_tag, obj) in enumerate(held):
                if source in (ANY_SOURCE, sender) and tag in (ANY_TAG, sent_tag):
                    del held[index]
                    if status is not None:
                        status.Set_source(sender)
                        status.Set_tag(sent_tag)
                    return obj
            held.append(self.world.boxes[self.rank].get(timeout=WAIT_S))

    def bcast(self, obj: Any, root: int = 0) -> Any:
        if self.rank != root:
            return self.recv(root)
        for rank in range(self.size):
            if rank != root:
                self.send(obj, rank)
        return obj

    def Sendrecv(self, sendbuf: Any, dest: int, recvbuf: Any, source: int) -> None:
        if dest != PROC_NULL:
            self.send(np.array(sendbuf), dest)
        if source != PROC_NULL:
            recvbuf[...] = self.recv(source)

    def gather(self, obj: Any, root: int = 0) -> list[Any] | None:
        if self.rank != root:
            self.send(obj, root)
            return None
        return [obj if rank == root else self.recv(rank) for rank in range(self.size)]

    def allreduce(self, value: Any, op: Any) -> Any:
        values = self.gather(value)
        if values is not None:
            total = values[0]
            for other in values[1:]:
                total = op(total, other)
            for rank in range(1, self.size):
                self.send(total, rank)
            return total
        return self.recv(0)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any) -> None:
        def combine(one: Any, other: Any) -> Any:
            return np.array([op(a, b) for a, b in zip(one, other, strict=True)])

        recvbuf[...] = self.allreduce(np.array(sendbuf), combine)


class World:
    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes: list[queue.Queue[Any]] = [queue.Queue() for _ in range(size)]
        self.held: list[list[tuple[int, int, Any]]] = [[] for _ in range(size)]

    def run(self, main: Callable[[Any], Any]) -> list[Any]:
        results: list[Any] = [None] * self.size
        failures: list[BaseException] = []

        def one(rank: int) -> None:
            try:
                results[rank] = main(ThreadComm(self, rank))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        if failures:
            raise failures[0]
        assert not any(thread.is_alive() for thread in threads), "a rank hangs"
        return results
