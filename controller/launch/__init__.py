"""How ranks come to be: a launcher for each engine, the agent that forks them, fencing.

The seam is `Launcher` (`launcher.py`): the service talks to one of these and to nothing below it.
"""
