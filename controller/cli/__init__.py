"""The command line: verbs, options, messages, exit codes.

    main                                the first steps of every command, errors, exit codes. Start reading here
    arguments, flags, command           options, and the words of the program
    run, job, store, inspect, doctor,   the verbs
    diagnose, submit
    host_flags, redundancy              options of jobs on several hosts, and with replicas
    common, scripts                     what several verbs use; what a job notes of its start

Not here: what is made of the options for several hosts (:mod:`ckpt.controller.cli.hosts`), the work of the verbs
(:mod:`ckpt.controller.service`, :mod:`ckpt.store`).
"""
