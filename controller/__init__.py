"""The job's side of ckpt: launch, broadcast, commit, supervise, restart, command line."""
