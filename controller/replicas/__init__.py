"""Replicas of ranks, seen by the controller: who has a voice, what follows from a difference or a loss, what is printed.

    supervisor, coordinator   the life and the rounds of such a job; pure. Start reading here
    lines, ends, inquiries    which checkpoints count; which ends agree; what is asked when planes differ; pure
    copies, clones            a plane that was lost is replaced by a copy of another one; pure
    silence, stalls           planes that tell nothing; that do not come on; pure
    memory                    arrays are compared after a checkpoint; pure
    text, output              the vote on what is printed
    events, driver            events and actions; the part of the service

Not here: digests and the vote on messages (:mod:`ckpt.redundancy`), jobs without replicas
(:mod:`ckpt.controller.supervision`).
"""
