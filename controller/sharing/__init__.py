"""Which file systems all hosts of a job share, so that files on them go back with the program.

:mod:`ckpt.controller.sharing.proof`  decides it from what all hosts see; pure
:mod:`ckpt.controller.sharing.facts`  what one host sees, and the file by which it is proven

Not here: how a host knows a shared file system (:mod:`ckpt.undo.shared`), who asks the hosts
(:mod:`ckpt.controller.hosts.launch.launcher`).
"""
