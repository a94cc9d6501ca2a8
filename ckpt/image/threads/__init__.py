"""The program's other threads: captured with the main thread, started again in a new process."""
