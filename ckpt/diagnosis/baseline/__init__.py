"""What counters of devices are at the start of a job, to be compared with after a fault."""
