"""Ranks on several hosts: what the command line says of them.

    options     the hosts and the options of the command line, or else of the job; the launcher made of them. Start here
    notes       what is said of a job's hosts: to the user, and to the event log for `ckpt status`
    takeover    what becomes of the ranks of a controller that is lost

Not here: how the options are spelt (:mod:`ckpt.controller.cli.host_flags`), the work (:mod:`ckpt.controller.hosts`).
"""
