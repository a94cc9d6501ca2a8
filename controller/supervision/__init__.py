"""The controller's state machines: rounds, restarts, lines, what failures lead to. Pure."""
