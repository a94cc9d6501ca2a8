"""The controller's state machines: rounds, restarts, lines, decisions after failures. Pure."""
