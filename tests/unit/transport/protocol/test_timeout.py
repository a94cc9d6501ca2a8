"""RFC 6298 in integers."""

from __future__ import annotations

from ckpt.transport.protocol.timeout import GRANULARITY_NS, Timeout

MS = 1_000_000


def test_before_any_sample_the_initial_timeout_holds() -> None:
    assert Timeout(300 * MS, 10 * MS, 1000 * MS).rto_ns() == 300 * MS


def test_first_sample() -> None:
    timeout = Timeout(300 * MS, 1, 1000 * MS)
    timeout.sample(20 * MS)
    assert timeout.srtt_ns == 20 * MS
    assert timeout.rto_ns() == 20 * MS + 4 * 10 * MS


def test_later_samples_are_smoothed() -> None:
    timeout = Timeout(300 * MS, 1, 1000 * MS)
    timeout.sample(16 * MS)
    timeout.sample(24 * MS)
    assert timeout.srtt_ns == 17 * MS  # 7/8 · 16 + 1/8 · 24
    assert timeout.rto_ns() == 17 * MS + 4 * 8 * MS  # 3/4 · 8 + 1/4 · 8


def test_steady_samples_approach_them_and_granularity_stays() -> None:
    timeout = Timeout(300 * MS, 1, 1000 * MS)
    for _ in range(200):
        timeout.sample(5 * MS)
    assert timeout.srtt_ns == 5 * MS
    assert timeout.rto_ns() == 5 * MS + GRANULARITY_NS


def test_minimum_and_maximum() -> None:
    timeout = Timeout(300 * MS, 100 * MS, 150 * MS)
    assert timeout.rto_ns() == 150 * MS
    timeout.sample(1000)
    assert timeout.rto_ns() == 100 * MS


def test_expiry_doubles_until_the_maximum_and_progress_ends_it() -> None:
    timeout = Timeout(10 * MS, 1, 100 * MS)
    seen = []
    for _ in range(6):
        seen.append(timeout.rto_ns() // MS)
        timeout.expired()
    assert seen == [10, 20, 40, 80, 100, 100]
    timeout.progress()
    assert timeout.rto_ns() == 10 * MS


def test_a_clock_that_stands_still_gives_no_zero_estimate() -> None:
    timeout = Timeout(10 * MS, 1, 100 * MS)
    timeout.sample(0)
    assert timeout.srtt_ns == 1


def test_copy_is_independent() -> None:
    timeout = Timeout(10 * MS, 1, 100 * MS)
    timeout.sample(4 * MS)
    copy = timeout.copy()
    copy.expired()
    copy.sample(40 * MS)
    assert timeout.rto_ns() == 4 * MS + 4 * 2 * MS
    assert copy.rto_ns() > timeout.rto_ns()
