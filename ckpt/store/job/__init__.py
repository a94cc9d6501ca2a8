"""The job directory: its creation, its lock and the record of its controller, the commit of lines, its event log.

    directory                       all files of a job. Start reading here; creation: how it is made
    lines, epochs, branch           committed lines, and which of them are the job's past
    lock, journal, journal_files,   never two controllers; where the processes of a job run
    location
    eventlog                        the event log

Not here: the fields of records (:mod:`ckpt.store.records`), images of ranks (:mod:`ckpt.store.images`).
"""
