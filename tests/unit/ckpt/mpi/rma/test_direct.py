"""Reads of another process's memory: each rule that makes them right, and what is done when one does not hold.

A member is a real process here: the parent and its ports are this one, the target is a child or this process itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.datatypes.buffers import BufferSpec, simple
from ckpt.mpi.datatypes.memory import address_of
from ckpt.mpi.rma.direct import DirectReads
from ckpt.transport.wires.crossmemory import Published, available

pytestmark = pytest.mark.skipif(not available(), reason="no process_vm_readv here")

WINDOW, RANK = 7, 1


class Ends:
    """A reader and a target, each with a port of its own. What the target exposes is `memory`."""

    def __init__(self, *, reader_epoch: int = 3, target_epoch: int = 3, incarnation: int = 1) -> None:
        self.memory = np.arange(16, dtype="B")
        self.reader_port, self.target_port = self.port(reader_epoch), self.port(target_epoch)
        self.reader = DirectReads(self.reader_port, 1)
        self.target = DirectReads(self.target_port, incarnation)
        self.place = self.target.place_of(WINDOW, address_of(self.memory), self.memory.nbytes)
        self.reader.learn(WINDOW, RANK, self.place)

    @staticmethod
    def port(epoch: int) -> Any:
        endpoint = SimpleNamespace(epoch=epoch)
        return SimpleNamespace(
            endpoint=endpoint, published_epoch=Published(epoch), counts={"window_reads": 0}
        )

    def read(self, offset: int = 4, nbytes: int = 3) -> bytes | None:
        """What a direct read brings; None: it does not count."""
        into = bytearray(nbytes)
        spec: BufferSpec = simple(into, writable=True)
        done = self.reader.read(WINDOW, RANK, offset, spec)
        assert self.reader_port.counts["window_reads"] == int(done)
        return bytes(into) if done else None


def test_bytes_of_a_target_that_is_not_ahead_count() -> None:
    assert Ends().read() == b"\4\5\6"
    assert Ends(target_epoch=2).read() == b"\4\5\6"


def test_a_target_that_has_published_a_later_epoch_is_asked_by_message() -> None:
    ends = Ends()
    ends.target_port.published_epoch.value = 4  # its image of epoch 4 is about to be captured
    assert ends.read() is None
    assert not ends.reader.wants_place(WINDOW, RANK)  # only now; its place is known
    ends.reader_port.endpoint.epoch = 4
    assert ends.read() == b"\4\5\6"


def test_a_target_that_has_left_the_window_is_asked_by_message() -> None:
    ends = Ends()
    ends.target.forget(WINDOW)
    assert ends.read() is None


def test_what_was_told_before_a_restart_is_dropped() -> None:
    ends = Ends(incarnation=0)
    assert ends.reader.wants_place(WINDOW, RANK)
    assert ends.read() is None


def test_a_process_that_is_gone_or_another_one_is_asked_by_message() -> None:
    told = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.unit.ckpt.mpi.rma.test_direct import Ends\n"
        "print(Ends().place.hex(), flush=True); sys.stdin.read()\n"
    )
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 5))
    child = subprocess.Popen(
        [sys.executable, "-c", told, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    ends = Ends()
    place = bytes.fromhex(child.stdout.readline())
    ends.reader.learn(WINDOW, RANK, place)
    try:
        assert ends.read() == b"\4\5\6"
    except AssertionError:
        pytest.skip("processes may not read each other's memory here")
    finally:
        child.stdin.close()
        child.wait(30)
    ends.reader_port.counts["window_reads"] = 0
    assert ends.read() is None and ends.reader.wants_place(WINDOW, RANK)
    another = bytearray(place)
    another[:8] = os.getpid().to_bytes(8, "little")  # the id was given to a new process: this one
    ends.reader.learn(WINDOW, RANK, bytes(another))
    assert ends.read() is None and ends.reader.wants_place(WINDOW, RANK)


def test_nothing_of_it_is_in_an_image() -> None:
    import pickle

    from ckpt.mpi.engine.windows import Windows

    windows = Windows()
    windows.direct = Ends().reader
    assert pickle.loads(pickle.dumps(windows)).direct is None
