"""The pickler of images, and why a variable could not be saved."""
