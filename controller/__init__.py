"""The job's side of ckpt: launch, broadcast, commit, supervise, restart, command line.

cli/                    the `ckpt` command. Start reading at `cli/run.py`
service/                the event loop, and the commit
supervision/            decisions: rounds, restarts, the end; pure
launch/                 how ranks are started and ended on one machine
hosts/, adoption/,      several hosts: agents and leases; ranks that outlive their controller; file systems that hosts
sharing/                share
faults/                 which host, cable or device has cost a rank
replicas/               jobs whose ranks are computed by several processes
doctor/                 `ckpt doctor`
errors                  the exceptions, and exit codes
boot                    the script that the process of an agent begins with
"""
