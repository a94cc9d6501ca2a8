"""The pickler of images, and the search for the object that could not be saved."""
