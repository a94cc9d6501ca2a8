"""A rank writes down what it gives as soon as it calls, and its memory outlives it: so it is not lost by a kill.

    calls      the table of a rank's calls that are under way, in a file of the host's memory; and how others read it
    mapping    such a file, mapped without a descriptor that stays open
    _keeper    a process that has the same address space, and does nothing (C); maps files

A copy of what a rank gives takes milliseconds, and messages wait for locks; a rank that is killed in that time is not seldom
(3 of 100 by our count). To write down where an array lies takes microseconds.

Not here: who reads it after a death, and what is done with it (ckpt/reduction/combining.py).
"""
