"""Monotonic clocks go on when their program goes on in another boot of a host, and code by the name that it has imported."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys

import pytest

from ckpt.image.process.clock_offsets import Reading, offsets_ns

WEEKS_NS = 30 * 86_400 * 10**9


class Host:
    """`up_ns`: what its clock shows at the (true) time 0; `apart_ns`: by how much its wall clock is wrong."""

    numbers = itertools.count()

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.apart_ns = chance.choice((0, 0, 10**6, -(10**6), 10**13, -(10**13)))
        self.boot(0)

    def boot(self, now_ns: int) -> None:
        self.up_ns = self.chance.choice((0, 10**9, WEEKS_NS, 10 * WEEKS_NS)) - now_ns
        self.name = f"boot {next(self.numbers)}"

    def clock_ns(self, now_ns: int) -> int:
        return self.up_ns + now_ns

    def read(self, now_ns: int, offset_ns: int) -> Reading:
        host_ns = self.clock_ns(now_ns)
        return Reading(self.name, now_ns + self.apart_ns, (host_ns,), (host_ns + offset_ns,))


@pytest.mark.parametrize("seed", range(60))
def test_the_clock_of_a_program_that_moves_never_goes_back(seed: int) -> None:
    """Images, deaths, restarts on the same or other hosts, and hosts that are booted anew."""
    chance = random.Random(seed)
    hosts = [Host(chance) for _ in range(3)]
    host, now_ns, offset_ns = hosts[0], 10**18, 0
    for _ in range(200):
        saved, at = host.read(now_ns, offset_ns), (host, host.name)
        now_ns += chance.randrange(10**11)
        for each in hosts:
            if chance.random() < 0.1:
                each.boot(now_ns)
        then_ns, before = now_ns - saved.wall_ns + at[0].apart_ns, host
        host = chance.choice(hosts)
        here = host.read(now_ns, 0)
        [offset_ns] = offsets_ns(saved, here)
        shown_ns = host.clock_ns(now_ns) + offset_ns
        assert shown_ns >= saved.shown_ns[0]
        if (host, host.name) == at or host.apart_ns == before.apart_ns:
            assert shown_ns - saved.shown_ns[0] == then_ns, "what has passed since counts"
        else:
            passed = then_ns + host.apart_ns - before.apart_ns
            assert shown_ns - saved.shown_ns[0] == max(passed, 0)


def test_the_first_host_is_left_alone() -> None:
    saved = Reading("a", 50, (7,), (7,))
    assert offsets_ns(saved, Reading("a", 900, (12,), (12,))) == (0,), (
        "the wall clock was set: it does not count"
    )
    assert offsets_ns(saved, Reading("a", 60, (5,), (5,))) == (12,), "a name that has come again"
    unknown = saved._replace(boot="")
    assert offsets_ns(unknown, Reading("", 60, (17,), (17,))) == (0,)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_functions_imported_by_name_go_on_too_and_are_the_same_objects() -> None:
    run("""
import time, threading
from time import clock_gettime, clock_gettime_ns, monotonic, monotonic_ns, perf_counter, perf_counter_ns
from ckpt.image.process import clocks

functions = [monotonic, monotonic_ns, perf_counter, perf_counter_ns, clock_gettime, clock_gettime_ns]
looks = [repr(f) + f.__doc__ + str(f.__text_signature__) for f in functions]
saved = list(clocks.note())
before = monotonic_ns()
saved[0], saved[1] = "another boot", saved[1] - 10**9  # a second has passed
saved[3] = (before + 10**15, before + 2 * 10**15, before + 3 * 10**15)
clocks.go_on(tuple(saved))
for f in (monotonic, perf_counter, time.monotonic, lambda: clock_gettime(time.CLOCK_MONOTONIC)):
    assert 1 <= f() - before / 1e9 - 1e6 < 60, f
for f in (monotonic_ns, perf_counter_ns, lambda: clock_gettime_ns(time.CLOCK_MONOTONIC)):
    assert 10**9 - 10**6 <= f() - before - 10**15 < 6 * 10**10, f
assert 1 <= clock_gettime(time.CLOCK_MONOTONIC_RAW) - before / 1e9 - 2e6 < 60
assert 1 <= clock_gettime(time.CLOCK_BOOTTIME) - before / 1e9 - 3e6 < 60
a, b, c = monotonic_ns(), monotonic(), monotonic_ns()
assert a / 1e9 <= b <= c / 1e9
assert abs(clock_gettime(time.CLOCK_REALTIME) - time.time()) < 10
assert looks == [repr(f) + f.__doc__ + str(f.__text_signature__) for f in functions]
for wrong in ((), ("1",), (1.5,), (1, 2), (10**30,), (12345,)):
    try:
        clock_gettime_ns(*wrong)
    except (TypeError, OverflowError, OSError):
        continue
    raise AssertionError(wrong)
began = monotonic()
assert not threading.Event().wait(0.01) and 0.01 <= monotonic() - began < 60
assert 10**15 < clocks.monotonic_offset_ns() < 10**15 + 10**11

again = clocks.note()  # the next image, of the program that has moved, goes on in this boot
shown, offset = monotonic_ns(), clocks.monotonic_offset_ns()
clocks.go_on(again)
assert clocks.monotonic_offset_ns() == offset and monotonic_ns() >= shown
""")


def test_a_program_that_has_not_moved_runs_the_functions_of_cpython() -> None:
    run("""
import ctypes, time
from ckpt.image.process import clocks

def methods(name):
    return ctypes.c_void_p.from_address(id(getattr(time, name)) + 16).value  # m_ml of the object

before = methods("monotonic"), methods("clock_gettime")
clocks.go_on(None)
clocks.go_on(clocks.note())
assert clocks.monotonic_offset_ns() == 0
assert before == (methods("monotonic"), methods("clock_gettime"))
clocks.go_on(("", 0, (0, 0, 0), (10**18, 10**18, 10**18)))
assert before != (methods("monotonic"), methods("clock_gettime"))
""")


def test_a_time_namespace_is_known_by_its_offsets() -> None:
    """Its number is given away again when it has ended: a program that went on in the next one took that for the same."""
    code = "from ckpt.image.process import clocks; print(clocks.note()[0])"

    def named(up_s: int) -> str:
        words = ["unshare", "--time", "--monotonic", str(up_s), "--fork", sys.executable, "-c", code]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            pytest.skip(f"no time namespaces here: {done.stderr.strip()}")
        return done.stdout

    first, then, again = named(1000), named(2000), named(1000)
    assert first == again != then


def test_functions_of_another_kind_are_refused_and_nothing_is_changed() -> None:
    run("""
import time
from ckpt.image.lowlevel import _clock

functions = (time.monotonic, time.monotonic_ns, time.perf_counter, time.perf_counter_ns, time.clock_gettime)
for last in (len, print, time.sleep, 3):
    try:
        _clock.shift((last, *functions), (1, 1, 1))
    except TypeError as failure:
        assert "another clock" in str(failure)
    else:
        raise AssertionError(last)
try:
    _clock.shift(functions, (1, 1, 1))
except TypeError:
    pass
assert _clock.offsets() == (0, 0, 0)
""")
