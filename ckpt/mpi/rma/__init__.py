"""One-sided communication: `MPI.Win`. The room is loaded when a program uses the name `MPI.Win` or `MPI.WIN_NULL`."""
