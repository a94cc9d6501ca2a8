"""The controller's driver: sockets of ranks and of commands, clocks, commit, output."""
