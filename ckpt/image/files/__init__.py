"""Open files, descriptors and standard streams: noted before an image, opened again after a restart."""
