"""Explicit checkpoints: the objects that a program registers, saved between the steps of its loops.

    program           boundaries, images and the replay of one rank. Start reading here
    loop, position    ``ckpt.loop``, and the place of a program in its loops
    state             what is saved of a registered object; pickling: the stream of such an image
    mailbox, output   messages and text that a new run of the script produces a second time

Not here: images of whole processes (:mod:`ckpt.image`), the agreement on a boundary
(``ckpt.controller.supervision.cuts.boundaries``).
"""
