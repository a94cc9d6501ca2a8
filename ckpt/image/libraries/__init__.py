"""Libraries that hold data: arrays, tables, files, pictures, numbers. One file each, and what is large beside it."""
