"""The store as a state machine against a dictionary: rounds, failing calls, prunes, crashes and restarts in any order.

The oracle keeps what was promised (committed and not pruned), and of the last commit that failed, that it is in
doubt: its control file may be there or not, but never wrong. All on a simulated disk, with the production code.
"""

from __future__ import annotations

import atexit
import errno
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from commit_model import CONSTANT
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from store_helpers import control_of, make_job, on_disk, read_image, write_image

from ckpt.controller.service.commit import remove_burnt
from ckpt.store import (
    BlockDamaged,
    JobDirectory,
    RecordDamaged,
    StorageFailed,
    latest_committed,
    list_epochs,
    prune,
    verify,
    write_control,
)
from ckpt.store.disk.simulated import NO_MEMORY, SHORT, Faults

SIZE = 2
failures = st.none() | st.tuples(
    st.integers(0, 40), st.sampled_from([errno.EIO, errno.ENOSPC, SHORT, NO_MEMORY]), st.booleans()
)
"""None, or: the nth call fails, how, and whether all later ones do, too."""


@cache
def _job() -> JobDirectory:
    """A real job directory, made once; every example has it on a simulated disk of its own."""
    place = tempfile.mkdtemp(prefix="store-machine-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return make_job(Path(place), SIZE)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.original = _job()
        self.job, self.disk = on_disk(self.original)
        self.highest = 0
        self.round: dict[int, Any] = {}
        """rank -> vote of the open round, `highest`"""
        self.data: dict[int, Any] = {}
        self.promised: list[int] = []
        self.doubtful: set[int] = set()
        self.looked_at: set[int] = set()
        """lines that were read back since something was removed or lost"""

    def _fails(self, failure: tuple[int, int, bool] | None) -> None:
        self.disk.faults = Faults() if failure is None else Faults(*failure)

    # ---- what happens

    @rule(failure=failures, changed=st.integers(0, len(CONSTANT) - 1))
    def a_rank_writes_its_image(self, failure: tuple[int, int, bool] | None, changed: int) -> None:
        if not self.round:
            self.highest += 1
            constant = bytearray(CONSTANT)
            constant[changed] ^= 1
            self.data[self.highest] = {"epoch": self.highest, "constant": constant, "text": "x" * changed}
        rank = len(self.round)
        if rank == SIZE:
            return
        self._fails(failure)
        try:
            self.round[rank] = write_image(
                self.job, rank, self.highest, [rank, self.data[self.highest]], threads=0
            )
        except (StorageFailed, MemoryError, BlockDamaged, RecordDamaged):
            self._burn()
        finally:
            self._fails(None)

    def _burn(self) -> None:
        """The round is over without a line; as the coordinator does."""
        self._fails(None)
        self.looked_at.clear()
        self.round = {}
        committed = max(list_epochs(self.job), default=0)
        assert remove_burnt(self.job, committed=committed, upto=self.highest) is None

    @precondition(lambda self: len(self.round) == SIZE)
    @rule(failure=failures)
    def the_round_commits(self, failure: tuple[int, int, bool] | None) -> None:
        control = control_of(self.highest, [self.round[rank] for rank in range(SIZE)])
        self._fails(failure)
        try:
            write_control(self.job, control)
        except (StorageFailed, MemoryError, BlockDamaged, RecordDamaged):
            self.doubtful.add(self.highest)
            self._burn()
        else:
            self.promised.append(self.highest)
            self.round = {}
        finally:
            self._fails(None)

    @rule(
        changed=st.integers(0, len(CONSTANT) - 1), failing=st.none() | st.integers(0, SIZE), failure=failures
    )
    def a_round(self, changed: int, failing: int | None, failure: tuple[int, int, bool] | None) -> None:
        """What is left of a round in one go; one of its steps may meet a failure."""
        while len(self.round) < SIZE:
            rank = len(self.round)
            self.a_rank_writes_its_image(failure if failing == rank else None, changed)
            if failing == rank and not self.round:
                return
        self.the_round_commits(failure if failing == SIZE else None)

    @rule(failure=failures, keep=st.integers(2, 4))
    def old_lines_are_removed(self, failure: tuple[int, int, bool] | None, keep: int) -> None:
        self.looked_at.clear()
        before = list_epochs(self.job)
        self._fails(failure)
        try:
            prune(self.job, keep)
        except (StorageFailed, MemoryError):
            pass
        finally:
            self._fails(None)
        self._kept_are(before[-keep:])

    def _kept_are(self, newest: list[int]) -> None:
        """Lines that are in doubt count when they are there."""
        self.promised = [epoch for epoch in self.promised if epoch in newest]

    @rule(seed=st.integers(0, 1 << 32))
    def the_host_crashes(self, seed: int) -> None:
        """Of what no sync has covered any subset is left; the next controller goes on above all that was used."""
        self.looked_at.clear()
        self.job, self.disk = on_disk(self.original, self.disk.after_crash(Random(seed)))
        self.round = {}

    @rule()
    def all_begins_anew_with_what_is_there(self) -> None:
        """The processes die, and their half-written files are nobody's; a prune after fencing removes them."""
        self.round = {}
        self.looked_at.clear()
        before = list_epochs(self.job)
        prune(self.job, fenced=True)
        self._kept_are(before[-2:])
        assert not before or verify(self.job).orphans == []

    # ---- what holds

    @invariant()
    def what_was_promised_is_there(self) -> None:
        found = latest_committed(self.job)
        newest = 0 if found is None else found.epoch
        assert newest >= max(self.promised, default=0)
        assert newest in (0, *self.promised, *self.doubtful), "nobody committed this"
        for epoch in {*self.promised, newest} - {0} - self.looked_at:
            for rank in range(SIZE):
                assert read_image(self.job, rank, epoch, threads=0) == [rank, self.data[epoch]]
            self.looked_at.add(epoch)

    def teardown(self) -> None:
        assert self.disk.open_files == 0, "descriptors are left open"


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
