"""The controller's end of a job on several hosts: starts the agents, hears them, and uses all hosts as if they were one.

    launcher        what the service calls. Start reading here
    driver          carries out what the fleet decides: connection, packets of agents, renewals of leases
    agents          the engine's commands: which agent was started on which host, and when another one is
    ending          signals that stop the job before ranks run
    journal_watch   is this the job's controller still? The look into the journal
    inquiries       what all hosts are asked at once: routes, shared file systems, facts

Not here: who has joined and who is lost (:mod:`ckpt.controller.hosts.fleet`), what an agent does
(:mod:`ckpt.controller.hosts.agent`).
"""
