"""What belongs to the process: signals, limits, exit functions, environment, directory."""
