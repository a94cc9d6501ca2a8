"""Pools of processes of joblib: what they are made again from, and which are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pickle import PicklingError
from typing import Any

import pytest

executors = pytest.importorskip("joblib.executor")
loky = pytest.importorskip("joblib.externals.loky.process_executor")

from ckpt.image.joblib.loky import Joblib, Loky, reduce_executor, renew  # noqa: E402
from ckpt.transport.records import NamedTuple  # noqa: E402

NAME = "joblib.externals.loky.process_executor"


class Made(NamedTuple):
    n_jobs: int
    keywords: dict[str, Any]


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """One that joblib has made, as in a rank. It starts its processes with the first piece of work."""
    cls = executors.MemmappingExecutor
    monkeypatch.setattr(cls, "get_memmapping_executor", vars(cls)["get_memmapping_executor"])
    Joblib("joblib.executor").when_imported()
    made = cls.get_memmapping_executor(2, timeout=5)
    yield made
    made.shutdown(wait=True)


def state_of(executor: Any) -> tuple[Any, list[Any], list[Any]]:
    _, _, state, *_ = reduce_executor(None, executor)
    return state  # type: ignore[no-any-return]


def test_an_executor_is_what_joblib_made_it_of_and_its_open_work(executor: Any) -> None:
    made, work, _ = state_of(executor)
    assert tuple(made) == (2, {"timeout": 5}) and work == []
    futures = [executor.submit(pow, 2, number) for number in range(3)]
    assert [future.result() for future in futures] == [1, 2, 4]
    assert state_of(executor)[1] == [], "what has been answered is not done again"


def test_open_work_is_given_to_the_executor_that_is_made_anew(executor: Any) -> None:
    future: Any = loky.Future()
    future.set_running_or_notify_cancel()  # a process had it already
    at_exit = state_of(executor)[2]
    renew(executor, Made(1, {"timeout": 5}), [(future, pow, (2, 5), {})], at_exit)
    assert future.result(timeout=60) == 32
    assert executor._max_workers == 1
    assert executors.MemmappingExecutor.get_memmapping_executor(1, timeout=5) is executor, (
        "joblib goes on with it"
    )


def test_a_pool_that_joblib_did_not_make_is_refused_by_name() -> None:
    executor = loky.ProcessPoolExecutor(1)
    with pytest.raises(PicklingError, match=r"pool of loky .* use joblib\.Parallel"):
        reduce_executor(None, executor)
    executor.shutdown()


def test_a_pool_that_has_been_ended_is_refused(executor: Any) -> None:
    executor.shutdown(wait=True)
    with pytest.raises(PicklingError, match="has been ended"):
        reduce_executor(None, executor)


def test_the_process_that_removes_what_workers_leave_is_no_part_of_an_image() -> None:
    tracker = pytest.importorskip("joblib.externals.loky.backend.resource_tracker")
    reducer = Loky(NAME).reducer_by_base(tracker.ResourceTracker)
    assert reducer is not None
    with pytest.raises(PicklingError, match="belongs to one process"):
        reducer(None, tracker._resource_tracker)  # type: ignore[arg-type]
    assert Loky(NAME).reducer_by_base(dict) is None


def test_only_work_of_a_pool_that_joblib_made_lets_its_thread_be_left_out(executor: Any) -> None:
    library = Loky(NAME)
    executor.submit(pow, 2, 3).result()
    manager = executor._executor_manager_thread
    assert library.reason_against_leaving_out(manager) is None
    manager.pending_work_items[-1] = "a piece of work"
    try:
        assert library.reason_against_leaving_out(manager) is None
        made = vars(executor).pop("_ckpt_made")
        assert "only those that joblib has started" in (library.reason_against_leaving_out(manager) or "")
        executor._ckpt_made = made
    finally:
        del manager.pending_work_items[-1]
