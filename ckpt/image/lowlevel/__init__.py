"""Objects as they are in memory: looked at without running any code of theirs; addresses; the deep C stack."""
