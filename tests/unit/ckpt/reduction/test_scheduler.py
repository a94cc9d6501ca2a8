"""The scheduler reads like section 2 and 3 of the paper: messages, tasks, executor, three positions of a fault."""

from __future__ import annotations

from ckpt.reduction.messages import Place, path_of
from ckpt.reduction.partial import Attendance
from ckpt.reduction.scheduler import Ask, Assign, Ranks, Ready, Scheduler, is_node, sibling


def scheduler(size: int, times: dict[int, int] | None = None, **options: object) -> Scheduler:
    return Scheduler(Attendance(size), ranks=Ranks(times or {}, {}), **options)  # type: ignore[arg-type]


def calls(master: Scheduler, *ranks: int) -> list[Assign]:
    found = [action for rank in ranks for action in master.call(rank)]
    assert all(isinstance(action, Assign) for action in found)
    return found  # type: ignore[return-value]


def test_figure_4_of_the_paper_by_readiness() -> None:
    """Messages come from 0, 3, 1, 2; the root is 1. Tasks (0, 3), (1, 2); the last one is the root's."""
    master = scheduler(4, root=1, order="ready", times={3: 5, 0: 9, 1: 5, 2: 9})
    first, second = calls(master, 0, 3, 1, 2)
    assert (first.executor, first.left, first.right) == (3, Place(1, 0), Place(8, 3))
    assert (second.executor, second.left, second.right) == (1, Place(2, 1), Place(4, 2))
    assert master.done(first.number, 7) == []
    (last,) = master.done(second.number, 7)
    assert isinstance(last, Assign) and last.executor == 1 and last.left.path | last.right.path == 15
    assert master.done(last.number, 7) == [Ready(15, 1)]
    assert not master.running and not master.orphans


def test_one_rank_is_ready_at_once() -> None:
    assert scheduler(1).call(0) == [Ready(1, 0)]


def test_the_fixed_tree_pairs_blocks_whatever_comes_first() -> None:
    master = scheduler(5)
    assert calls(master, 4, 1, 2) == []
    (task,) = calls(master, 3)
    assert (task.left.path, task.right.path) == (4, 8)
    assert master.done(task.number, 1) == []
    (task,) = calls(master, 0)
    assert [place.path for place in task.places] == [1, 2, 12, 16]


def test_after_a_late_call_one_task_is_left() -> None:
    """What the late rank gave is combined with its pair, that with the next block, and so on: one task, not one a level."""
    master = scheduler(8, times=dict.fromkeys(range(8), 6))
    tasks = calls(master, 0, 1, 2, 3, 4, 5, 6)
    while tasks:
        tasks += master.done(tasks.pop().number, 6)  # type: ignore[arg-type]
    (task,) = calls(master, 7)
    assert [place.path for place in task.places] == [64, 128, 48, 15] and master.items == {}
    assert master.done(task.number, 6)[0] == Ready(255, task.executor)


def test_a_chain_leaves_the_last_combination_to_the_root() -> None:
    master = scheduler(4, root=1, times={0: 1, 1: 99, 2: 1, 3: 1})
    (task,) = calls(master, 0, 1)
    assert master.done(task.number, 1) == calls(master, 2) == []
    (task,) = calls(master, 3)
    assert [place.path for place in task.places] == [4, 8]
    (last,) = master.done(task.number, 1)
    assert isinstance(last, Assign) and [place.path for place in last.places] == [3, 12]


def test_a_chain_whose_item_cannot_be_had_goes_back() -> None:
    """The other items are queued again, what is not there is split into originals."""
    master = scheduler(4, times=dict.fromkeys(range(4), 6))
    first, *_ = calls(master, 0, 1)
    master.done(first.number, 6)
    (chain,) = calls(master, 2, 3)
    assert len(chain.places) == 3
    (again,) = master.failed(chain.number, 3, first.executor)
    assert isinstance(again, Assign) and [place.path for place in again.places] == [4, 8]
    # What rank 0 gave is asked for: it did not have the item
    assert list(master.items) == [2] and master.orphans == 1


def test_siblings_in_the_fixed_tree() -> None:
    everybody = path_of(range(6))
    assert sibling(1, everybody) == 2 and sibling(12, everybody) == 3
    assert sibling(15, everybody) == 48 and sibling(48, everybody) == 15
    assert sibling(everybody, everybody) == 0
    assert sibling(path_of([0, 2]), everybody) == 0
    without_1 = everybody & ~2
    assert sibling(1, without_1) == 12  # the block of 1 is passed over
    assert is_node(path_of([0, 2, 3]), without_1) and not is_node(path_of([0, 2, 3]), everybody)
    assert not is_node(3, without_1)  # it has somebody who does not contribute


def test_without_commutativity_only_neighbours_are_combined_and_by_readiness_too() -> None:
    master = scheduler(4, order="ready", commutative=False)
    assert calls(master, 0, 2) == []
    (task,) = calls(master, 3)
    assert (task.left.path, task.right.path) == (4, 8)
    (task,) = calls(master, 1)
    assert (task.left.path, task.right.path) == (1, 2)


def test_the_executor_is_the_faster_by_its_last_task() -> None:
    (task,) = calls(scheduler(2, times={0: 9, 1: 5}), 0, 1)
    assert task.executor == 1
    (task,) = calls(scheduler(2, times={0: 5, 1: 9}), 0, 1)
    assert task.executor == 0


def test_a_rank_without_a_past_is_judged_as_the_slowest() -> None:
    (task,) = calls(scheduler(3, order="ready", times={1: 5, 2: 9}), 0, 1)
    assert task.executor == 1


def test_a_rank_with_tasks_counts_as_slower() -> None:
    master = scheduler(4, times={0: 6, 1: 10, 2: 10, 3: 10}, order="ready")
    first, _ = calls(master, 0, 1, 2, 3)
    assert first.executor == 0
    master.copied(1, 0)
    assert master._expected_ns(0) == 12


def test_tasks_of_other_reductions_count_too() -> None:
    """All that were under way at once gave their tasks to the same few: 28 of 200 ranks took more than twice as long."""
    ranks = Ranks(dict.fromkeys(range(8), 6), {})
    masters = [Scheduler(Attendance(8), ranks=ranks, order="ready") for _ in range(4)]
    tasks = [calls(master, 0, 1)[0] for master in masters]
    assert [task.executor for task in tasks] == [0, 1, 0, 1] and ranks.tasks == {0: 2, 1: 2}
    masters[0].done(tasks[0].number, 6)
    masters[1].failed(tasks[1].number, 1, 0)
    assert ranks.tasks == {0: 1, 1: 1}
    masters[3].close()
    assert ranks.tasks == {0: 1, 1: 0}
    masters[2].died(0)
    assert ranks.tasks == {0: 0, 1: 0}


def test_only_the_last_task_is_the_roots() -> None:
    """Otherwise a slow root is what all wait for."""
    master = scheduler(4, root=0, times={0: 99, 1: 1, 2: 1, 3: 1})
    first, second = calls(master, 0, 1, 2, 3)
    assert first.executor == 1
    master.done(second.number, 1)
    (last,) = master.done(first.number, 1)
    # The root holds neither: it fetches the result
    assert isinstance(last, Assign) and last.executor in (
        1,
        2,
        3,
    )
    assert isinstance(master.done(last.number, 1)[0], Ready)


def test_faults_1_and_2_the_executor_is_dead() -> None:
    """What the other one holds goes back, what the dead one had is split, and a recovered original executes."""
    master = scheduler(2, times={0: 5, 1: 1})
    (task,) = calls(master, 0, 1)
    assert task.executor == 1
    assert master.died(1) == [Ask(2)]  # no copy is known
    assert list(master.items) == [1]
    (again,) = master.copied(1, 0)
    assert isinstance(again, Assign) and again.executor == 0 and again.right == Place(2, 0)


def test_a_recovered_original_executes_where_it_lies() -> None:
    master = scheduler(3, times={0: 1, 1: 1, 2: 99})
    (task,) = calls(master, 0, 1)
    master.copied(1, 2)
    assert task.executor == 0
    (again,) = master.died(1) or master.failed(task.number, 2, 1)
    assert isinstance(again, Assign) and again.executor == 2 and again.right == Place(2, 2)


def test_fault_3_the_report_of_the_executor_counts_not_the_notice() -> None:
    master = scheduler(2, times={0: 1, 1: 5})
    (task,) = calls(master, 0, 1)
    assert task.executor == 0
    assert master.died(1) == []  # the data may have arrived
    assert master.done(task.number, 3) == [Ready(3, 0)]
    assert master.times[0] == 3


def test_a_path_is_split_into_its_originals() -> None:
    master = scheduler(4)
    first, second = calls(master, 0, 1, 2, 3)
    for owner in range(4):
        master.copied(owner, (owner + 1) % 4)
    assert first.executor == 0
    master.done(first.number, 1)
    actions = master.died(0)
    (task,) = (action for action in actions if isinstance(action, Assign))
    assert (task.left, task.right, task.executor) == (Place(1, 1), Place(2, 1), 1)
    assert second.number in master.running


def test_a_task_that_was_taken_back_is_not_counted() -> None:
    master = scheduler(2)
    (task,) = calls(master, 0, 1)
    master.died(task.executor)
    assert master.done(task.number, 1) == [] and master.failed(task.number, 1, 0) == []


def test_a_call_that_comes_twice_or_from_the_dead_counts_once() -> None:
    master = scheduler(3)
    master.call(0)
    assert master.call(0) == []
    master.died(1)
    assert master.call(1) == [] and list(master.items) == [1]
