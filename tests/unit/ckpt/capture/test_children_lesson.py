"""A child that writes an image tells its rank what it has failed at."""

from __future__ import annotations

import os

from ckpt.capture.children import Lesson


def test_a_forked_child_tells_one_number() -> None:
    lesson = Lesson()
    assert lesson.take() == 0
    pid = os.fork()
    if pid == 0:
        lesson.tell(2**63 + 7)
        os._exit(0)
    os.waitpid(pid, 0)
    assert lesson.take() == 2**63 + 7
    assert lesson.take() == 0
