"""The seam to the operating system: files, owners, memory for large blocks; and a simulated disk."""
