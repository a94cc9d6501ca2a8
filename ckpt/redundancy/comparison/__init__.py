"""Messages that wait until the replicas of the rank that has made them agree: ``--compare sender`` and ``receiver``.

    release     which messages may go on; pure. Start reading here
    digests     what the replicas tell each other; pure
    arrivals    the messages of one rank where they are received, and what needs no comparison; pure
    holding     what both ways have in common, as a layer
    sender      a message is held where it was made, and leaves when it has been compared
    receiver    a message is held where it has arrived, and gets to the program when it has been compared

Not here: the comparison beside that, for which nobody waits (:mod:`ckpt.redundancy.layer`).
"""
