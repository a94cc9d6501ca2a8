"""One rank of a job: its start in a forked process, its end, its network, its channel to the controller.

    boot, ending                       from the forked process to the program, and to its end
    runtime                            joins port, engine, images and control channel. Start reading here
    packets                            what the rank does when the controller, or the transport, tells it something
    beside, asking                     waits of threads other than the main one; what a program asks for
    network                            which wires connect the rank with its peers
    files, commits                     files that go back, calls that wait for a commit
    putting_back                       a rank that resumes waits until files are put back
    layers                             a layer under the engine; forks: warnings of ``os.fork``; mpi4py_alias: ``import
                                       mpi4py``
    world, standalone                  what ``import ckpt`` works on; a program without a job

Not here: the channel to the controller (:mod:`ckpt.rank.channel`), images (:mod:`ckpt.capture`), messages
(:mod:`ckpt.mpi`), decisions about the job (``ckpt.controller``).
"""
