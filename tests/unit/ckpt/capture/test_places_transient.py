"""How long an image waits for what a running function holds, and no image can."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ckpt import image
from ckpt.capture import places
from ckpt.capture.check_budget import CheckBudget
from ckpt.capture.hooks import Hooks
from ckpt.capture.places import Places

SECOND_NS = 1_000_000_000


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = Places.__new__(Places)

    def refuse(stack: object) -> None:
        refused = image.Refused("a hash object is in use")
        refused.limit_ns, refused.hooked_limit_ns = made.limit_ns, 0
        raise refused

    made.limit_ns = image.Refused.limit_ns
    made._transient_since_ns = made._transient_limit_ns = 0
    made.is_awaited = False
    made._runtime = SimpleNamespace(hooks=Hooks())
    made.now_ns = 100 * SECOND_NS
    monkeypatch.setattr(places.time, "monotonic_ns", lambda: made.now_ns)
    monkeypatch.setattr(image, "refuse_transient", refuse)
    return made


def test_it_is_refused_however_long_the_image_has_been_wanted(looks: Any) -> None:
    """A long call in C came first: the wait for that was counted, and the round was burnt by a hash object of a moment."""
    with pytest.raises(image.Refused) as refused:
        looks._refuse_transient(None)
    assert refused.value.is_transient


def test_what_is_there_at_every_place_for_some_seconds_stays(looks: Any) -> None:
    for _ in range(2):
        with pytest.raises(image.Refused):
            looks._refuse_transient(None)
        looks.now_ns += SECOND_NS
    looks.now_ns += SECOND_NS
    looks._refuse_transient(None)


def test_what_lasts_longer_is_waited_for_longer_and_counts_for_itself(looks: Any) -> None:
    """A step of a training takes seconds, and the hash object of a moment afterwards is no reason to try an image."""
    looks.limit_ns = 60 * SECOND_NS
    for _ in range(2):
        with pytest.raises(image.Refused):
            looks._refuse_transient(None)
        looks.now_ns += 50 * SECOND_NS
    looks.limit_ns = image.Refused.limit_ns
    with pytest.raises(image.Refused):
        looks._refuse_transient(None)


def test_a_frame_that_the_program_has_left_is_no_obstacle_any_more() -> None:
    """A rank was asked while it imported a module. When it waited for its own checkpoint a moment later, the import was
    over, but the round was given up because of it."""
    looks: Any = Places.__new__(Places)

    looks._obstacle = (1 << 20, 3)
    assert not looks.has_obstacle()
    looks._obstacle = (0, 0)
    assert not looks.has_obstacle()


def test_what_a_hook_may_end_is_not_waited_for_where_there_are_hooks(looks: Any) -> None:
    """Hooks are called behind this look: one that commits a transaction would have been called after a minute."""
    looks.limit_ns = 60 * SECOND_NS
    looks._runtime.hooks.on_checkpoint(lambda epoch: None)
    with pytest.raises(image.Refused):
        looks._refuse_transient(None)
    looks.now_ns += 1
    looks._refuse_transient(None)


def test_a_program_that_waits_for_the_image_itself_is_not_waited_for(looks: Any) -> None:
    """A minute in `ckpt.checkpoint()`, called in a transaction of sqlite3: nothing could end that meanwhile."""
    looks.limit_ns, looks.is_awaited = 60 * SECOND_NS, True
    with pytest.raises(image.Refused):
        looks._refuse_transient(None)
    looks.now_ns += 3 * SECOND_NS
    looks._refuse_transient(None)


def test_calls_that_images_answer_are_known_before_threads_are_stopped(
    looks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were known from the first image on. Of several ranks all are asked before it, and a thread that serves a
    `multiprocessing.Pool` never stood still then: such a job had no checkpoint at all."""
    import multiprocessing.pool  # noqa: F401

    from ckpt.image.frames import c_waits
    from ckpt.image.interface import transient
    from ckpt.image.pools.recording import Tasks

    monkeypatch.setattr(c_waits, "_answers", {})
    monkeypatch.setattr(transient, "_module_count", 0)
    looks.others(None)
    assert id(Tasks.get.__code__) in c_waits._answers


def test_a_look_that_gets_no_processor_does_not_cost_the_looks_of_many_seconds(
    looks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool on a busy machine: one of its threads had no processor for 0.2 s, and the next look came after 13 s."""
    looks._allowance = CheckBudget()
    looks.cpu_ns = 0
    monkeypatch.setattr(places.time, "process_time_ns", lambda: looks.cpu_ns)

    def look(took_ns: int, cpu_ns: int) -> None:
        looks._allowance.begin(looks.now_ns)
        since_ns, since_cpu_ns = looks.now_ns, looks.cpu_ns
        looks.now_ns += took_ns
        looks.cpu_ns += cpu_ns
        looks.spend(since_ns, since_cpu_ns)

    look(SECOND_NS // 5, SECOND_NS // 500)
    looks.now_ns += SECOND_NS
    assert looks._allowance.is_left(looks.now_ns)
    look(SECOND_NS // 5, SECOND_NS // 5)
    looks.now_ns += 10 * SECOND_NS
    assert not looks._allowance.is_left(looks.now_ns)
