"""What counters of devices are at the start of a job, to be compared with after a fault: `survey` reads them.

Not here: what has grown since then (:mod:`ckpt.diagnosis.growth`)."""
