"""Which images of the ranks are a consistent cut: one line, from which the job can go on. Pure.

    vectors      the check before every commit: no message is lost, and none is received that was not sent
    boundaries   where ranks that save themselves explicitly take their images

Not here: rounds (:mod:`ckpt.controller.supervision.coordinator`).
"""
