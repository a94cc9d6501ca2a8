"""The ranks of a controller that is lost go on under the next one: what hosts know of their ranks, and who may go on.

    roster     what the agent of a host tells the next controller; pure
    verdict    what an agent without a controller has found in the journal; pure
    watching   the thread that looks there

Not here: the lease of a host (:mod:`ckpt.controller.hosts`), the journal itself (:mod:`ckpt.store.job.journal`).
"""
