"""How ranks come to be: a launcher for each engine, the agent that forks them, fencing.

The interface is `Launcher` (`launcher.py`): the service uses a launcher and no other module of this room for its ranks.
"""
