"""The rank's side of `ckpt doctor`: a rank that looks at itself while it runs, and writes down what it finds.

The program runs as any rank does, in a job of its own (`--entry ckpt.doctor.rank:run_rank`). Beside it a thread asks for
a check every few milliseconds, and counts where the program could be captured and where not (:mod:`.watch`). Now
and then the rank forks a child that writes an image into nothing and notes all that cannot be saved
(:mod:`ckpt.image.trial`). Threads, child processes and descriptors are looked at from outside
(:mod:`.surroundings`), and files that are opened for appending as the interpreter reports them (:mod:`.appends`).

What is found goes to ``doctor/rank-N.jsonl`` in the job directory, one JSON object a line:

    {"kind": "samples", "t_s", "taken", "captured", "in_library", "refused": [{"reason", "where", "samples", "longest_s"}],
     "late": {"samples", "longest_s", "where"}, "appended": [{"path", "times", "where"}]}      the newest line counts
    {"kind": "examination", "t_s", "captured", "findings": […], "variables": {…}, "stream_bytes", "buffer_bytes", "stack"}
    {"kind": "surroundings", "t_s", "threads": […], "children": […], "descriptors": […],
     "has_hooks": for a restart, "types": names of the registered ones}
    {"kind": "trouble", "t_s", "text"}                                        an examination that failed by itself

What is made of it, and whether the images come to life again, is the controller's side. The program is disturbed as
little as can be, yet it is: do not measure under the doctor.
"""
