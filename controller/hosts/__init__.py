"""Ranks on several hosts: an agent on each, started by an engine (ssh, Slurm, any command), that dials in to the controller."""
