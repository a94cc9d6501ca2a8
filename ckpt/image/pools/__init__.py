"""Pools of processes: saved with the work that is open; a new process starts workers anew and gives them that work again."""
