"""The engine of one rank: matching, operations under way, failures of ranks. Communicators call the engine."""
