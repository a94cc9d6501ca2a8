"""Ranks on several hosts: an agent on each, started by an engine (ssh, Slurm, …), that dials in to the controller."""
