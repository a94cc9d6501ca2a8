"""The one interface for libraries: a class says what is special for one library; a registry finds the class."""
