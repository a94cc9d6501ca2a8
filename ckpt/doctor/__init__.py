"""The rank's side of `ckpt doctor`: a rank that looks at itself while it runs, and writes down what it finds.

The program runs as in any job, with another entry function (`--entry ckpt.doctor.rank:run_rank`). A thread asks the
interpreter for a check every few milliseconds, and counts where the program could be captured and where not
(:mod:`.watch`). At times the rank forks a child that writes an image, keeps none of its bytes, and records the objects
that cannot be saved (:mod:`ckpt.image.trial`). Threads, child processes and descriptors are read from ``threading`` and
/proc (:mod:`.surroundings`). An audit hook counts files that are opened for appending, and writes down the names of those
that the program changes (:mod:`.changes`).

The findings go to ``doctor/rank-N.jsonl`` in the job directory, one JSON object a line:

    {"kind": "samples", "t_s", "taken", "captured", "in_library", "refused": [{"reason", "where", "samples", "longest_s"}],
     "late": {"samples", "longest_s", "where"}, "appended": [{"path", "times", "where"}]}      the newest line counts
    {"kind": "examination", "t_s", "captured", "findings": […], "variables": {…}, "stream_bytes", "buffer_bytes", "stack"}
    {"kind": "surroundings", "t_s", "threads": […], "children": […], "descriptors": […],
     "has_hooks": has the program on_restart hooks?, "types": names of the registered types}
    {"kind": "trouble", "t_s", "text", "is_known"}                            an examination that failed; known: refused

The program runs slower under the doctor: do not measure times there.

Not here: the report, and the test whether images can be resumed (the controller's side, `controller/doctor`).
"""
