"""`ckpt doctor`: the trial, the comparison with an undisturbed run, the report."""
