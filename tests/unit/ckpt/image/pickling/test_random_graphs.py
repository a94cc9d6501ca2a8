"""Random graphs of objects, as a forked child saves them for an image, are the same graphs when they have been loaded.

pytest tests/unit/ckpt/image/pickling/test_random_graphs.py --seed SEED      (see tests/seeds.py)
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable

import pytest

from tests.seeds import seed_of_the_commit
from tests.unit.ckpt.image.support import copy_by_child

pytest.importorskip("numpy")

from tests.unit.ckpt.image.pickling.graphs.builder import Graph
from tests.unit.ckpt.image.pickling.graphs.description import described

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

GRAPHS = 60
AT_NIGHT = 40


def check(seed: int, steps: int) -> None:
    graph = Graph(seed).build(steps)
    gc.collect()  # what only cycles keep alive is not in an image
    copy = copy_by_child(graph)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # coroutines that nobody waits for
        wanted, found = described(graph), described(copy)
    differs = [pair for pair in zip(wanted, found, strict=False) if pair[0] != pair[1]]
    assert not differs, f"seed {seed}, {steps} steps:\n" + "\n".join(differs[0])
    assert len(wanted) == len(found), f"seed {seed}, {steps} steps"


def test_a_random_graph_is_the_same_when_it_has_been_loaded(figures: Callable[[str, int], None]) -> None:
    for number in range(GRAPHS):
        check(1000 * seed_of_the_commit() + number, 10 + number)
    figures("random graphs of objects, all equal", GRAPHS)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(AT_NIGHT))
def test_many_random_graphs_are_the_same_when_they_have_been_loaded(
    part: int, figures: Callable[[str, int], None]
) -> None:
    for number in range(GRAPHS):
        check(1000 * seed_of_the_commit() + GRAPHS * (part + 1) + number, 10 + 2 * number)
    figures("random graphs of objects, all equal", GRAPHS)
