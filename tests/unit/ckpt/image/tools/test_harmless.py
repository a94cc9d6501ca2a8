"""Threads of libraries that are harmless, by the table of libraries."""

from __future__ import annotations

import pytest

from ckpt.capture.threads import HarmlessThreads


def test_the_monitor_of_tqdm_hinders_no_image() -> None:
    tqdm = pytest.importorskip("tqdm")
    bar = tqdm.tqdm(range(3), disable=False)
    try:
        assert tqdm.tqdm.monitor is not None
        assert tqdm.tqdm.monitor.is_alive()
        assert tqdm.tqdm.monitor not in HarmlessThreads().others()
    finally:
        bar.close()
        tqdm.tqdm.monitor.exit()
        tqdm.tqdm.monitor = None
