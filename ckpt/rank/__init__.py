"""One rank of a job: its start in a forked process, its end, its network, its channel to the controller."""
