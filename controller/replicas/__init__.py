"""Replicas of ranks, seen by the controller: who has a voice, what follows from a difference or a loss, what is printed."""
