"""The port: drives the state machines with sockets, clocks and a helper thread."""
