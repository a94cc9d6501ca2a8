"""The command line: verbs, options, messages, exit codes.

    main                                the first steps of every command, errors, exit codes. Start reading here
    arguments, flags, command           options, and the words of the program
    run, job, store, inspect, doctor,   the verbs
    diagnose, submit
    hosts, redundancy                   options of jobs on several hosts, and with replicas
    common, scripts                     what several verbs use; what a job notes of its start

Not here: the work of the verbs (:mod:`ckpt.controller.service`, :mod:`ckpt.store`).
"""
