"""`ckpt doctor`: the trial, the comparison with an undisturbed run, the report.

    trial                     runs the program, takes images, restores them. Start reading here
    compare                   output and files of a restored run beside those of the first run
    facts, problems, report   what follows from that; pure

Not here: what a rank finds of itself (:mod:`ckpt.doctor`).
"""
