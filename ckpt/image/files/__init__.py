"""Open files, descriptors and standard streams: recorded before an image is taken, opened again after a restart.

    file_notes                         what is noted of all descriptors before the fork
    open_files                         the reducers of file objects. Start reading here; text_files, text_states,
                                       file_positions, buffered_data: their state
    saved_files                        the record of one file; file_locks: its locks
    descriptors, numbers               descriptors that no object owns; each number is the same file again
    reopen, cuts                       files are opened again, and changed last of all
    standard_input, standard_output,   the standard streams
    output

Not here: pipes and sockets (:mod:`ckpt.image.ipc`), changes of files that a restart undoes (:mod:`ckpt.undo`).
"""
