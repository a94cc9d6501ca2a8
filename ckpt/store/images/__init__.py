"""One rank's image on disk: its blocks, the pack file that holds them, and the writer and reader of both."""
