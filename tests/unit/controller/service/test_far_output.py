"""The ranks' output as agents of several hosts send it: the same is printed as if the controller read the files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ckpt.controller.launch.following import WINDOW_BYTES, Following, text_of
from ckpt.controller.service.passthrough import Passthrough


class Job:
    """A rank that writes, its agent, and the controller."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "rank-0.out"
        self.text = b""
        self.said: list[str] = []
        self.agent = Following(str(directory))
        self.controller = self.another_controller(from_end=False)
        self.start()

    def another_controller(self, *, from_end: bool) -> Passthrough:
        paths = [(0, stream, str(self.path.with_suffix(f".{stream}"))) for stream in ("out", "err")]
        self.controller = Passthrough(paths, self._emit, self.said.append, from_end=from_end, is_far=True)
        return self.controller

    def _emit(self, rank: int, stream: str, data: bytes) -> None:
        self.text += data

    def start(self) -> None:
        """The rank is started, wherever."""
        self.agent.begin([(0, self.controller.known(0))])

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def cut(self, length: int) -> None:
        with self.path.open("r+b") as file:
            file.truncate(length)

    def look(self, times: int = 1, *, prints: bool = True) -> bytes:
        for _ in range(times):
            for event in self.agent.look():
                self.controller.came(
                    event["rank"], event["stream"], event["at"], text_of(event), event["cut"]
                )
            if prints:
                self.controller.poll()
                self.agent.printed(sum(self.controller.taken().values()))
        return self.text


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def numbered(start: int, end: int) -> bytes:
    return b"".join(b"line %06d\n" % number for number in range(start, end))


def test_whole_lines_are_sent_and_the_rest_waits_for_a_while(job: Job) -> None:
    assert job.look() == b""
    job.write(b"one\ntwo")
    assert job.look() == b"one\n"
    job.write(b" three\n")
    assert job.look() == b"one\ntwo three\n"
    job.write(b"password: ")
    assert job.look(30).endswith(b"password: ")


@pytest.mark.parametrize("starts_again", [True, False])
@pytest.mark.parametrize("kept_lines", [0, 1, 100, 333, 999])
def test_what_comes_again_is_not_printed_again(job: Job, kept_lines: int, starts_again: bool) -> None:
    """The rank goes back, and is started again: on this host or on another one, which is the same to the controller."""
    job.write(numbered(0, 1000))
    job.look(5)
    if starts_again:
        job.start()
    job.cut(len(numbered(0, kept_lines)))
    job.look()
    for at in range(kept_lines, 1500, 50):
        job.write(numbered(at, min(at + 50, 1500)))
        job.look()
    job.controller.finish()
    assert job.text == numbered(0, 1500)
    assert job.said == []


def test_what_differs_after_a_restart_is_said(job: Job) -> None:
    job.write(numbered(0, 1000))
    job.look(5)
    job.start()
    job.cut(0)
    job.look()
    job.write(numbered(5000, 6000))
    job.look(5)
    job.controller.finish()
    assert job.text == numbered(0, 1000) + numbered(5000, 6000)
    assert "differs from byte 0 on" in job.said[0]


def test_what_no_agent_has_sent_is_read_at_the_end(job: Job) -> None:
    """Its host was lost, say."""
    job.write(numbered(0, 10))
    job.look()
    job.write(numbered(10, 20))
    job.controller.finish()
    assert job.text == numbered(0, 20)


def test_a_terminal_that_stands_still_bounds_what_is_kept(job: Job) -> None:
    job.write(numbered(0, 200_000))
    job.look(100, prints=False)
    assert job.controller.known(0)[0] <= WINDOW_BYTES + (1 << 16)
    job.look(1000)
    assert job.text == numbered(0, 200_000)


def test_the_next_controller_prints_what_comes_from_then_on(job: Job) -> None:
    """What was sent to the one before is not printed again, and nothing of what comes is lost."""
    job.write(numbered(0, 10))
    job.look()
    job.write(numbered(10, 20))
    job.another_controller(from_end=True)  # the agent has not sent the last part yet
    job.agent.another_controller()
    job.text = b""
    job.look()
    job.write(numbered(20, 30))
    job.look()
    job.controller.finish()
    assert job.text == numbered(20, 30)
    job.another_controller(from_end=True)
    job.text = b""
    job.write(numbered(30, 40))
    job.agent.look()  # sent to a controller that is gone, behind where the next one begins
    job.write(numbered(40, 50))
    job.look()
    job.controller.finish()
    assert job.text == numbered(30, 50), "what is between is read in the file"


@pytest.mark.parametrize("seed", range(20))
def test_random_writes_and_restarts(job: Job, seed: int) -> None:
    chance = random.Random(seed)
    whole = b"".join(b"%d\n" % chance.getrandbits(chance.choice([8, 64, 4000])) for _ in range(3000))
    at = 0
    restarts = sorted(chance.randrange(len(whole)) for _ in range(8))
    while at < len(whole):
        if restarts and at >= restarts[0]:
            restarts.pop(0)
            at = chance.randrange(at + 1)
            job.start()
            job.cut(at)
            job.look()
        more = chance.randrange(30_000)
        job.write(whole[at : at + more])
        at = min(at + more, len(whole))
        job.look(chance.randrange(2))
    job.controller.finish()
    assert job.text == whole
