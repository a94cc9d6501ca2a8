"""What this machine knows by itself of others, without a topology: `own` reads tables of the kernel.

Not here: the file of a topology (:mod:`ckpt.diagnosis.topology`)."""
