"""The images of one rank: when one is wanted, where the program can be captured, how it is written."""
