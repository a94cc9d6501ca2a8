"""The child process of one question."""

from __future__ import annotations

import selectors

from ckpt.controller.faults.oneshot import OneShotProcess


def test_a_process_that_is_ended_while_it_is_told_something_ends_without_an_error() -> None:
    """Found by CI: what was on its way to the process could not be written any more, which ended the controller."""
    with selectors.DefaultSelector() as selector:
        child = OneShotProcess("ckpt.diagnosis", selector)
        child._stdin.write(b"begun")  # as by the thread, which has not written it out yet
        child.close()
        assert child._stdin.closed and child.process.returncode is not None
