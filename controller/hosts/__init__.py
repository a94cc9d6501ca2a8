"""Ranks on several hosts: an agent on each, started by an engine (ssh, Slurm, …), that dials in to the controller.

    launcher                            all hosts as if they were one; agent: its other end, one on each host. Start reading
                                        here
    fleet, lease, tenure                who is there, and what proves that ranks are gone; pure
    engine, slurm, batch, orphan        how agents are started, by ssh, commands and Slurm
    link, addresses, routes, hostlist   connections and names
    examine, health                     `ckpt doctor --hosts`

Not here: ranks on one machine (:mod:`ckpt.controller.launch`).
"""
