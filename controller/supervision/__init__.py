"""The controller's state machines: rounds, restarts, lines, decisions after failures. Pure.

    supervisor                        the life of a job. Start reading here; failure_policy: after a death; lines: from which
                                      line ranks start; stopping: how ranks are ended
    spares                            processes that the program starts
    coordinator                       checkpoint rounds; rounds, uncommitted: parts of them
    events, messages, packet_events   events and actions; packets, and what they become
    plan                              where ranks run, and with which parameters
    history, past                     what the event log says
    remedies                          advice for people

Not here: which images fit together (:mod:`ckpt.controller.supervision.cuts`); clocks, sockets, processes and files
(:mod:`ckpt.controller.service`).
"""
