"""What a restart has to put back, found out from the undo logs. Pure.

:mod:`ckpt.undo.planning.plan`          from the logs of all ranks in an interval
:mod:`ckpt.undo.planning.planned`       the plan, as data
:mod:`ckpt.undo.planning.before_images` what ranks have changed while the checkpoint was taken
:mod:`ckpt.undo.planning.moves`         directories that were renamed or removed, and what that says of paths
:mod:`ckpt.undo.planning.across_hosts`  the order of changes of ranks on several hosts
"""
