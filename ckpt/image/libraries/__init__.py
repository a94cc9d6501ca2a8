"""Libraries that hold data: arrays, tables, files, pictures, numbers. One module for each, and a second one for large
ones."""
