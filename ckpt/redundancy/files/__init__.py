"""Files of a program with replicas: each change is made once, by the leader, when all replicas have come to it.

    together      who has come to which change, and do all mean the same? Pure
    changes       file objects and functions of `os` that the program gets
    meeting       a replica at a change: its digest is told, and who comes too late is

Not here: who leads (:mod:`ckpt.redundancy.order`).
"""
