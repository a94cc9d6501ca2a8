"""The images of one rank: when one is wanted, where the program can be captured, how it is written.

    imager                         the states of a rank between two images. Start reading here
    search, stalls, check_budget   how long a place for the image is looked for; pure
    places                         the looks at the stack; threads: which threads are the program's
    taker                          freezes the port, forks, thaws
    choice                         whether by fork or synchronously; memory, memory_groups: the numbers that decide it
    writing                        what the forked child does; children: what its rank knows of it; description: what an
                                   image says of messages
    hooks                          what a program adds to its checkpoints
    context                        the protocols of what a rank offers to this room

Not here: what an image consists of (:mod:`ckpt.image`), how it becomes durable (:mod:`ckpt.store`), when the controller asks
for one (``ckpt.controller.supervision``).
"""
