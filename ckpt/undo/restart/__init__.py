"""A restart puts files back: what has to be undone, how, and what of it must survive a kill.

:mod:`ckpt.undo.restart.plan`         what a restart has to do, from the logs of all ranks; pure
:mod:`ckpt.undo.restart.putting_back` does it
:mod:`ckpt.undo.restart.places`       reaches names and files without following a symbolic link
:mod:`ckpt.undo.restart.restoring`    all intervals since a line
:mod:`ckpt.undo.restart.state`        what is known of the undo log as a whole
:mod:`ckpt.undo.restart.ending`       what somebody else has changed since the job ended
"""
