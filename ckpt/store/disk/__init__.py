"""The store's interface to the operating system: files, owners, threads, memory for large blocks; and a simulated disk."""
