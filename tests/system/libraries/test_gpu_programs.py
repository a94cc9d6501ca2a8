"""Programs that use a GPU, killed again and again: they print the same, byte for byte. What no image can hold is named, and
the program goes on.

They need a GPU that CUDA can use, and torch built for it: `pytest -m gpu tests/system/libraries/test_gpu_programs.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, run_ckpt, same_after_kills

pytestmark = [
    pytest.mark.system,
    pytest.mark.nightly,
    pytest.mark.gpu,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    """Not when the tests are collected: the import of torch takes seconds, in every run of any test."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("another machine: it has no GPU that CUDA can use")


Start = Callable[..., Job]

PROGRAMS = Path(__file__).parents[1] / "programs" / "gpu"
KILLS = int(os.environ.get("GPU_KILLS", "3"))


@pytest.mark.parametrize("name", ["training", "tensors", "loaders", "kernels"])
def test_a_program_on_a_gpu_prints_the_same_after_kills(start: Start, name: str) -> None:
    same_after_kills(start, PROGRAMS / f"{name}.py", KILLS, more_loops=2, every=0.3)


def test_two_ranks_share_a_gpu_and_print_the_same_after_kills(start: Start) -> None:
    scale = 2 * KILLS + 2
    plain = start(PROGRAMS / "ranks.py", scale, ranks=2, name="plain")
    assert plain.finish(600) == 0, plain.report()
    job = start(PROGRAMS / "ranks.py", scale, ranks=2, every=0.3, max_restarts=2 * KILLS)
    for kill in range(KILLS):
        job.wait_event("committed", len(job.events("committed")) + 1)
        job.kill_rank(kill % 2)
        job.wait_event("restarted", kill + 1)
    assert job.finish(600) == 0, job.report()
    assert [job.output(rank) for rank in (0, 1)] == [plain.output(rank) for rank in (0, 1)]
    assert all(event["from_epoch"] for event in job.events("restarting")), job.report()


@pytest.mark.parametrize(
    ("what", "words", "needs"),
    [
        ("graph", "a graph of CUDA", ""),
        ("pool", "a pool of memory of torch.cuda", ""),
        ("foreign", "memory of a GPU that torch's allocator does not know", "cupy"),
        ("external", "a stream of CUDA that another library has made", "cupy"),
        ("cupy", "an array of cupy", "cupy"),
        ("numba", "an array of numba.cuda", "numba.cuda"),
        ("jax", "an array of jax", "jax"),
        ("group", "a process group of torch.distributed", ""),
        ("workers", "a DataLoader with pin_memory", ""),
    ],
)
def test_what_no_image_can_hold_is_named(
    start: Start, tmp_path: Path, what: str, words: str, needs: str
) -> None:
    if needs:
        pytest.importorskip(needs, reason=f"another machine: {needs} is not installed")
    job = start(PROGRAMS / "refused.py", what, tmp_path / "stop", ranks=1)
    job.wait_for(lambda: "begun" in job.output(0), "the program's begin", 120)
    done = run_ckpt("checkpoint", job.directory, timeout_s=150)
    told = done.stdout + done.stderr
    (tmp_path / "stop").touch()
    assert job.finish(120) == 0, job.report()
    assert words in told, told
    assert job.output(0).endswith("fine\n")
