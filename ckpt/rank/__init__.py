"""One rank of a job: its start in a forked process, its end, its network, its channel to the controller.

    boot, ending                       from the forked process to the program, and to its end
    runtime                            joins port, engine, images and control channel. Start reading here
    network                            which wires connect the rank with its peers
    control, reports, program_events   packets to the controller
    files, held_output, commits        files that go back, output that a full disk has refused, calls that wait for a commit
    layers                             a layer under the engine; forks: warnings of ``os.fork``; mpi4py_alias: ``import
                                       mpi4py``
    world, standalone                  what ``import ckpt`` works on; a program without a job

Not here: images (:mod:`ckpt.capture`), messages (:mod:`ckpt.mpi`), decisions about the job (``ckpt.controller``).
"""
