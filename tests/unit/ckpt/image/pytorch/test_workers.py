"""What stands between the loop of a worker of a DataLoader and its queues."""

from __future__ import annotations

import queue
import random
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
import numpy as np  # noqa: E402

from ckpt.image.errors import ObjectRefused  # noqa: E402
from ckpt.image.pytorch import workers  # noqa: E402
from ckpt.image.pytorch.loaders import Loaders  # noqa: E402
from ckpt.image.pytorch.workers import Begin, Generators, _Batches, _Orders  # noqa: E402


class DataSet:
    def __init__(self) -> None:
        self.parts = {"own": [random.Random(3)]}
        self.torch = torch.Generator().manual_seed(4)
        self.numpy = np.random.default_rng(5)
        self.old = np.random.RandomState(6)
        self.itself = self

    def draw(self) -> Any:
        return (
            *(random.random(), float(torch.rand(1)), float(np.random.rand())),
            *(self.parts["own"][0].random(), float(torch.rand(1, generator=self.torch))),
            *(float(self.numpy.random()), float(self.old.rand())),
        )


@pytest.fixture(autouse=True)
def _generators_as_before() -> Any:
    kept = random.getstate(), torch.get_rng_state(), np.random.get_state()
    yield
    random.setstate(kept[0])
    torch.set_rng_state(kept[1])
    np.random.set_state(kept[2])


def test_generators_of_the_data_set_and_the_global_ones_go_on_where_they_were() -> None:
    data_set = DataSet()
    generators = Generators(data_set, len)
    data_set.draw()
    states = generators.states()
    expected = [data_set.draw() for _ in range(3)]
    other = DataSet()
    other_generators = Generators(other, len)
    other_generators.apply(states)
    assert [other.draw() for _ in range(3)] == expected


def test_states_are_sent_only_if_they_have_changed() -> None:
    data_set = DataSet()
    generators = Generators(data_set)
    assert generators.news() is not None
    assert generators.news() is None
    data_set.numpy.random()
    assert generators.news() is not None


def test_a_new_worker_makes_again_unseen_what_has_been_received() -> None:
    ordered, made, generators = queue.Queue(), queue.Queue(), Generators()
    random.seed(8)
    states = generators.states()
    expected = [random.random() for _ in range(3)][-1]
    ordered.put(Begin(states, ((None, 2),), False))
    ordered.put((7, None))
    orders, batches = _Orders(ordered, generators), _Batches(made, generators, worker=1)
    for _ in range(3):
        number, _ = orders.get(timeout=1)
        batches.put((number, random.random()))
    number, carried = made.get_nowait()
    assert (number, carried.data, carried.worker) == (7, expected, 1)
    assert made.empty()


def test_a_worker_that_had_ended_ends_at_once() -> None:
    ordered: Any = queue.Queue()
    ordered.put(Begin(None, (), True))
    with pytest.raises(KeyboardInterrupt):
        _Orders(ordered, Generators()).get(timeout=1)


def test_the_arguments_of_torchs_loop_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def loop(dataset: Any, index_queue: Any, data_queue: Any, collate_fn: Any, worker_id: int) -> None:
        seen.update(locals())

    monkeypatch.setattr(workers, "_plain_loop", loop)
    workers.run("data", queue.Queue(), queue.Queue(), len, 3)
    assert isinstance(seen["index_queue"], _Orders) and isinstance(seen["data_queue"], _Batches)
    assert (seen["dataset"], seen["worker_id"]) == ("data", 3)


@pytest.mark.parametrize("gives_holder", [False, True])
def test_the_loop_of_a_worker_gets_the_data_set_or_a_list_with_it(
    monkeypatch: pytest.MonkeyPatch, gives_holder: bool
) -> None:
    """Since torch 2.14 it is a list, which the loop empties: each worker ended with KeyError, and so did the program."""
    seen: list[Any] = []

    def of_before(dataset: Any, index_queue: Any, data_queue: Any, collate_fn: Any, worker_id: int) -> None:
        seen.append((dataset, index_queue, data_queue))

    def of_now(
        dataset_holder: list[Any], index_queue: Any, data_queue: Any, collate_fn: Any, worker_id: int
    ) -> None:
        seen.append((dataset_holder.pop(), index_queue, data_queue))

    data_set = DataSet()
    monkeypatch.setattr(workers, "_plain_loop", of_now if gives_holder else of_before)
    workers.run([data_set] if gives_holder else data_set, queue.Queue(), queue.Queue(), len, 0)
    ((found, between_orders, between_batches),) = seen
    assert found is data_set
    assert type(between_orders) is _Orders and type(between_batches) is _Batches


def test_a_loop_with_arguments_that_are_not_known_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_some_day(work: Any) -> None:
        """Of a version that is to come."""

    assert workers.is_known()
    monkeypatch.setattr("torch.utils.data._utils.worker._worker_loop", of_some_day)
    assert not workers.is_known()
    loaders = Loaders("torch.utils.data.dataloader")
    loaders.when_imported()
    assert torch.utils.data._utils.worker._worker_loop is of_some_day
    with pytest.raises(ObjectRefused, match="not known here; use num_workers=0"):
        loaders._reduce_iterator(None, object())
