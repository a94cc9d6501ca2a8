"""Open files, descriptors and standard streams: recorded before an image is taken, opened again after a restart."""
