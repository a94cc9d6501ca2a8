"""One rank of a job: from a forked process to its end, its network, its way to the controller."""
