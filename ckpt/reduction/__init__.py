"""Reductions that wait for nobody and survive a death: tasks of two items instead of rounds of all ranks."""
