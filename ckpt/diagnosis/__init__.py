"""Where a fault is: which cable, port, fan, host or process is behind an error of the network.

Nothing here runs while all is well: no server, no heartbeat. When a call has failed, the error gives candidates
(`errors_map`), files say how each is looked at (`models`), all are asked at once (`manager`), and what was answered
gives roots, consequences and what could not be known (`verdict`). Source: Sakai and Ishikawa, "MPI communication
library with cluster monitoring"; docs/diagnosis.md.

No rank imports this package, and `import ckpt` does not.
"""
