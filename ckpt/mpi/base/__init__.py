"""Definitions that every room of ckpt.mpi uses: constants, errors, handles, infos, attributes, groups, envelopes."""
