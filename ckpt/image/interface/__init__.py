"""The one interface for libraries: what is special for one of them is a class, found through a registry."""
