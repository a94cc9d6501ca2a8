"""Where cables end, from what machines hear of their neighbours (LLDP), beside what the file of the topology says.

    survey     asks all machines, once
    compare    what they say beside the file; pure
    __main__   the process that the controller starts

Not here: faults, which are looked for with the topology that comes out (:mod:`ckpt.diagnosis.manager`).
"""
