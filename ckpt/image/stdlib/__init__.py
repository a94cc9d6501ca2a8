"""Objects of the standard library that are made in C."""
