"""Files go back with the program: what a rank changes in the file system after its checkpoint can be undone.

An undo log as in databases (before-images; Gray and Reuter, *Transaction Processing*, 1993, chapter 10): before the first
change of a name or a file after a checkpoint, the rank keeps what was there. A restart from the checkpoint puts it back.

:mod:`ckpt.undo.records`      what a log says
:mod:`ckpt.undo.recorder`     which before-images an operation needs; pure
:mod:`ckpt.undo.watching`     sees what the process is about to do with files (``_watch``, in C; its files: watch/)
:mod:`ckpt.undo.operations`   what the audit events say about files
:mod:`ckpt.undo.keeping`      looks at files, keeps them, writes the log
:mod:`ckpt.undo.copying`      copies of the contents of files
:mod:`ckpt.undo.chain`        the intervals of a job
:mod:`ckpt.undo.logs`         reads logs, and tells whether one is whole
:mod:`ckpt.undo.sealing`      what a checkpoint does with the log that ends
:mod:`ckpt.undo.allowance`    how many bytes of copies a job may keep
:mod:`ckpt.undo.unrecorded`   notices what no rank has recorded
:mod:`ckpt.undo.path_table`   a dictionary by paths of directories; pure
:mod:`ckpt.undo.shared`       which file systems all hosts of a job share
:mod:`ckpt.undo._status`      what a path is bound to, in one system call
:mod:`ckpt.undo.errors`       the exceptions
:mod:`ckpt.undo.selection`    which files are covered
:mod:`ckpt.undo.planning`     finds out what a restart has to put back; pure
:mod:`ckpt.undo.restart`      puts files back

Not here: when a checkpoint is taken.
"""

DIRECTORY = "undo"
"""The directory of a job directory that holds the undo logs of all ranks."""
