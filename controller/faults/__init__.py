"""Which host, cable or device has cost a job a rank: one diagnosis at a time, from what all hosts say of each other.

Where to start: `link_failures` (pure: what is said, and when it is diagnosed), `locator` (asks; what the answer leads to).

    what is said      link_failures (links that are down), slowness (links that are slow)
    what is known     topology (where cables end), baseline (counters at the start of the job)
    who is asked      oneshot (a process that answers once)
    who is told       drain (the scheduler), record (a file for other tools)

Not here: how a fault is found (`ckpt.diagnosis`); who is left out of a restart (`controller.supervision`).
"""
