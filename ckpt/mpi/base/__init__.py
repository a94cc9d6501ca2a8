"""What every room of ckpt.mpi knows: constants, errors, handles, info, attributes, envelopes."""
