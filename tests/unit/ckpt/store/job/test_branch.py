"""Lines that are left behind: which are the job's past, and that prune counts those only."""

from __future__ import annotations

from store_helpers import commit

from ckpt.store import JobDirectory, list_epochs, prune
from ckpt.store.job.branch import Branch, new_branch


def test_a_branch_holds_its_origin_what_that_goes_back_to_and_all_that_is_newer() -> None:
    branch = new_branch(2, 7, {1: 0, 2: 1, 3: 2, 7: 3}, [1, 2, 3, 7])
    assert branch == Branch(2, (1, 2), 7)
    assert [epoch for epoch in range(1, 10) if branch.holds(epoch)] == [1, 2, 8, 9]


def test_a_branch_of_a_branch() -> None:
    """1 2 3 were committed; from 1 on 4 and 5; from 4 on, then."""
    previous = {1: 0, 2: 1, 3: 2, 4: 1, 5: 4}
    first = new_branch(1, 3, previous, [1, 2, 3])
    assert new_branch(4, 5, previous, [e for e in previous if first.holds(e)]) == Branch(4, (1, 4), 5)
    assert new_branch(3, 5, previous, [1, 4, 5]) == Branch(3, (1, 2, 3), 5), "who names it can go back to it"


def test_a_line_that_cannot_be_read_does_not_cut_the_past_off() -> None:
    assert new_branch(3, 5, {1: 0, 3: 2, 5: 3}, [1, 2, 3, 5]) == Branch(3, (1, 2, 3), 5)


def test_from_the_start_nothing_is_the_past() -> None:
    branch = new_branch(None, 5, {1: 0, 5: 1}, [1, 5])
    assert [epoch for epoch in range(1, 8) if branch.holds(epoch)] == [6, 7]


def test_a_branch_outlives_controllers(job: JobDirectory) -> None:
    branch = Branch(1, (1,), 3)
    with job.lock() as lock:
        lock.set_branch(branch)
    with job.lock() as lock:
        assert lock.record.branch == branch == JobDirectory.open(job.path).record().branch


def test_prune_keeps_the_past_and_not_what_was_left_behind(job: JobDirectory) -> None:
    """With the newest two kept, epoch 1 went, although the job had gone on from there: nothing older was left to use."""
    for epoch in (1, 2, 3):
        commit(job, epoch, "x")
    with job.lock() as lock:
        lock.set_branch(Branch(1, (1,), 3))
        commit(job, 4, "x")
        assert prune(job, 2, lock=lock).kept == [1, 4]
        assert list_epochs(job) == [1, 2, 3, 4]
        commit(job, 5, "x")
        assert prune(job, 2, lock=lock).kept == [4, 5] and list_epochs(job) == [4, 5]
