"""The controller's driver: sockets of ranks and of commands, clocks, commit, output.

    service                        the event loop. Start reading here
    commit, files, host_files,     a line becomes durable; the program's files at a restart
    file_lines, file_refusals, unrecorded
    clients, livestatus, signals   commands, `ckpt status`, signals
    passthrough, sources, report   the output of ranks and of the controller
    placing                        where ranks run

Not here: decisions (:mod:`ckpt.controller.supervision`), how processes are started (:mod:`ckpt.controller.launch`).
"""
