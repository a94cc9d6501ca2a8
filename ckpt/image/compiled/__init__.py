"""Libraries whose objects live in C or C++: factorised matrices, trained models, documents, files in progress."""
