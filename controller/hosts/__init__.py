"""Ranks on several hosts: an agent on each, started by an engine (ssh, Slurm, …), that dials in to the controller.

    fleet, lease, tenure                who is there, and what proves that ranks are gone; pure. Start reading here
    agent, clock                        what runs on each host
    engine, slurm, batch, orphan        how agents are started, by ssh, commands and Slurm
    link, addresses, routes, hostlist   connections and names
    examine, health                     `ckpt doctor --hosts`

Not here: the agent's other end (:mod:`ckpt.controller.hosts.launch`), ranks on one machine (:mod:`ckpt.controller.launch`).
"""
