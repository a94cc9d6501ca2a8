"""How ranks are started and ended: the launcher, the agent that forks ranks, fencing.

The interface is `Launcher` (`launcher.py`): the service uses a launcher and no other module of this room for its ranks.
"""
