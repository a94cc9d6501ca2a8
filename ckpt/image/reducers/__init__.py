"""How objects of Python's own types, classes and functions are taken apart and made again."""
