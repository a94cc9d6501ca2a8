"""How ranks are started and ended: the launcher, the agent that forks ranks, fencing.

    launcher, local                 what the service calls; the launcher of one machine. Start reading here
    spawning, agent, forked         the agent's start; the agent; a rank as its agent sees it
    alone, dispositions             a job without a controller; the agent's signals
    fencing, strays, procinfo       how all processes of ranks are ended, and found
    interpreter, imports            which Python ranks run under; has it what the program imports?
    whereabouts                     where the processes of a job run
    following, stacks               what ranks print; where a rank is that does not answer

The interface is `Launcher` (`launcher.py`): the service uses a launcher and no other module of this room for its ranks.
"""
