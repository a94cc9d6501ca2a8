"""State of the process: signals, limits, exit functions, environment, directory."""
