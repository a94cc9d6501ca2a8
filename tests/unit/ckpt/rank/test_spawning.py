"""A request for processes outlives a restart: it is in the image of its root, and is sent again."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

from ckpt.mpi.engine.spawning import Asked, Spawns
from ckpt.rank import asking


def test_an_open_request_is_in_the_image_and_is_asked_again() -> None:
    spawns = Spawns()
    packet = {
        "m": "request",
        "what": "spawn",
        "token": "8.0",
        "commands": [{"argv": ["a.py"], "counts": [1]}],
    }
    asked = spawns.pending["8.0"] = Asked(packet)
    loaded, waiting = pickle.loads(pickle.dumps((spawns, asked), 5))
    sent: list[dict[str, Any]] = []
    runtime = SimpleNamespace(
        engine=SimpleNamespace(spawns=loaded), control=SimpleNamespace(send=sent.append)
    )
    asking.ask_again(runtime)  # type: ignore[arg-type]
    assert sent == [packet] and not waiting.poll()
    loaded.answer({"token": "7.0", "numbers": [9], "counts": [1]})
    assert not waiting.poll(), "of another request"
    loaded.answer({"token": "8.0", "numbers": [4, 5], "counts": [2]})
    assert waiting.poll() and (waiting.numbers, waiting.counts) == ((4, 5), (2,))
    asking.ask_again(runtime)  # type: ignore[arg-type]
    assert len(sent) == 1, "it is answered"


def test_without_a_controller_an_open_request_is_refused_and_an_unknown_process_leaves() -> None:
    spawns = Spawns()
    asked = spawns.pending["8.0"] = Asked({"token": "8.0"})
    told: list[int] = []
    engine = SimpleNamespace(spawns=spawns, tell=lambda: told.append(1))
    runtime: Any = SimpleNamespace(engine=engine)
    assert asking.without_controller(runtime) is None and told
    assert asked.poll() and "the controller is gone" in asked.refused
    engine.spawns = Spawns({"group": [0], "bases": [4, 8, 12]})
    assert "the controller is gone" in str(asking.without_controller(runtime))
    engine.spawns.parent["is_known"] = True
    assert asking.without_controller(runtime) is None
    engine.spawns = None
    assert asking.without_controller(runtime) is None
