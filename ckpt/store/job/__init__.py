"""The job directory: making it, its lock, its lines of images, its event log."""
